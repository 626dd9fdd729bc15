package casanova

import (
	"math"
	"slices"
	"time"

	"evenkeel/cmd/vcsim/chart"
)

func (r *Results) column(name string) int { return slices.Index(r.algorithms, name) }

// measure is a figure of an outcome that counts if ok.
type measure func(o *outcome) (value float64, ok bool)

func minYield(o *outcome) (float64, bool)     { return o.yield, o.solved }
func averageYield(o *outcome) (float64, bool) { return o.average, o.solved }
func milliseconds(o *outcome) (float64, bool) {
	return float64(o.took) / float64(time.Millisecond), true
}
func failure(o *outcome) (float64, bool) {
	if o.solved {
		return 0, true
	}
	return 1, true
}

// styles keeps each algorithm's look from figure to figure.
var styles = map[string]int{
	boundName: 0, "MCB8": 1, "GR": 2, "SG": 3, "GB": 4, "SGB": 5, "RRND": 6, "RRNZ": 7, exactName: 8,
	"MCB7": 0, "MCB6": 2, "MCB5": 3, "MCB4": 4, "MCB3": 5, "MCB2": 6, "MCB1": 7, // in figures of their own
}

// curve is the mean of a measure over the instances for each value of x.
func (r *Results) curve(name string, x func(spec) float64, m measure) chart.Series {
	a := r.column(name)
	type mean struct{ sum, n float64 }
	var xs []float64
	means := map[float64]*mean{}
	for i, row := range r.outcomes {
		at := x(r.specs[i/r.Instances])
		if means[at] == nil {
			means[at] = &mean{}
			xs = append(xs, at)
		}
		if v, ok := m(&row[a]); ok {
			means[at].sum += v
			means[at].n++
		}
	}
	slices.Sort(xs)
	s := chart.Series{Name: name, Style: styles[name]}
	for _, at := range xs {
		s.Points = append(s.Points, chart.Point{X: at, Y: means[at].sum / means[at].n}) // no number if there is none
	}
	return s
}

func bySlack(s spec) float64 { return s.slack }
func byTasks(s spec) float64 { return float64(s.tasks) }

// mean of a measure over all instances for which it counts.
func (r *Results) mean(name string, m measure) float64 {
	a, sum, n := r.column(name), 0.0, 0.0
	for _, row := range r.outcomes {
		if v, ok := m(&row[a]); ok {
			sum += v
			n++
		}
	}
	return sum / n
}

// count is on how many instances f holds for an algorithm's outcome.
func (r *Results) count(name string, f func(*outcome) bool) (n int) {
	a := r.column(name)
	for _, row := range r.outcomes {
		if f(&row[a]) {
			n++
		}
	}
	return n
}

func failed(o *outcome) bool { return !o.solved }

// degradation is how far, in percent, an algorithm's minimum yield is below the
// best of the algorithms named: over the instances that it solved, and on average
// also if an instance that it fails and another solves counts as 100%.
func (r *Results) degradation(name string, among []string) (average, highest, withFailures float64) {
	a, solved, failed := r.column(name), 0, 0
	for _, row := range r.outcomes {
		best, any := 0.0, false
		for _, other := range among {
			if o := &row[r.column(other)]; o.solved {
				best, any = max(best, o.yield), true
			}
		}
		switch {
		case !row[a].solved && any:
			failed++
		case row[a].solved:
			d := 0.0
			if best > 0 {
				d = 100 * (best - row[a].yield) / best
			}
			average += d
			highest = max(highest, d)
			solved++
		}
	}
	return average / float64(solved), highest, (average + 100*float64(failed)) / float64(solved+failed)
}

// relative is by how many percent the mean minimum yield of a is above that of
// b, over the instances that both solved and keep accepts.
func (r *Results) relative(a, b string, keep func(spec) bool) float64 {
	ca, cb := r.column(a), r.column(b)
	var sa, sb float64
	for i, row := range r.outcomes {
		if row[ca].solved && row[cb].solved && (keep == nil || keep(r.specs[i/r.Instances])) {
			sa += row[ca].yield
			sb += row[cb].yield
		}
	}
	if sb == 0 {
		return math.NaN()
	}
	return 100 * (sa/sb - 1)
}

// zeroRelative is relative for a bound b, with a failure of a counted as a yield of zero.
func (r *Results) zeroRelative(a, b string, keep func(spec) bool) float64 {
	ca, cb := r.column(a), r.column(b)
	var sa, sb float64
	for i, row := range r.outcomes {
		if keep(r.specs[i/r.Instances]) {
			if row[ca].solved {
				sa += row[ca].yield
			}
			sb += row[cb].yield // a bound also where the memory does not suffice
		}
	}
	return 100 * (sa/sb - 1)
}

func slackOf(slack float64) func(spec) bool {
	return func(s spec) bool { return s.slack > slack-0.01 && s.slack < slack+0.01 }
}
