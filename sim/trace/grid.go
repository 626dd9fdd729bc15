package trace

import (
	"fmt"
	"math"
	"slices"
)

// sample is one row of a file with times: seconds since 1970 and up to two values.
type sample struct {
	at     int64
	values [2]float64
}

// grid is rows put on places that are step seconds apart.
type grid struct {
	start, step int64        // seconds
	values      [2][]float64 // NaN: not measured
	repeated    int          // rows whose place was taken
}

// newGrid orders rows by time and gives each the place that is nearest to a whole number of steps after the row before
// it, so that a clock that drifts by a second now and then costs nothing. The step is the median of the distances, the lower of two.
// rows is reordered. most bounds the number of places. Rows of one time only give a grid without places.
func newGrid(rows []sample, limit int) (grid, error) {
	slices.SortStableFunc(rows, func(a, b sample) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	var apart []int64
	for i := 1; i < len(rows); i++ {
		if d := rows[i].at - rows[i-1].at; d > 0 {
			apart = append(apart, d)
		}
	}
	if len(apart) == 0 {
		return grid{}, nil
	}
	slices.Sort(apart)
	g := grid{start: rows[0].at, step: apart[(len(apart)-1)/2]}
	place, last := 0, rows[0].at // of the row that was placed last
	for i, row := range rows {
		if i > 0 {
			ahead := (row.at - last + g.step/2) / g.step
			if ahead == 0 {
				g.repeated++
				continue
			}
			if ahead > int64(limit-1-place) {
				return grid{}, fmt.Errorf("more than %d places of %d s between the first row and one %d s later", limit, g.step, row.at-g.start)
			}
			place, last = place+int(ahead), row.at
		}
		for k := range g.values {
			for len(g.values[k]) < place {
				g.values[k] = append(g.values[k], math.NaN())
			}
			g.values[k] = append(g.values[k], row.values[k])
		}
	}
	return g, nil
}
