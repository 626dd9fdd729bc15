package score

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"evenkeel/forecast"
	"evenkeel/sim/trace"
)

// How a record is cut for TestTrustOnRecords.
const (
	trustFirstSeed = 1
	trustSeeds     = 3

	trustSeries = 80  // of each set and resource, drawn
	trustLength = 500 // values of each, from a drawn place on
	trustMin    = 280 // values that a series must have
	trustGaps   = 20  // one value in so many may be missing
)

// trustCount is what series of one set and resource showed.
type trustCount struct {
	first  []int // values until each was trusted
	inside [3]shareCount
	after  [3]shareCount // stated within 20 steps of a change
}

type shareCount struct{ inside, all int }

func (c *shareCount) add(inside bool) {
	c.all++
	if inside {
		c.inside++
	}
}

func (c shareCount) percent() float64 { return 100 * float64(c.inside) / float64(max(1, c.all)) }

var trustHorizons = [3]int{1, 3, 10}

// When forecasts of published records are trusted first, and how often their 95% intervals hold then: in all, and right after a change. It reads all records
// below the folder that EVENKEEL_TRACES names.
func TestTrustOnRecords(t *testing.T) {
	dir := os.Getenv("EVENKEEL_TRACES")
	if dir == "" {
		t.Skip("EVENKEEL_TRACES names no folder with published traces")
	}
	d, err := trace.Load(trace.Options{}, trace.Source{FS: os.DirFS(dir), Name: "."})
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string][]trace.Series{}
	for _, s := range d.Series {
		if key := s.Set + " " + string(s.Resource); len(s.Values) >= trustMin {
			sets[key] = append(sets[key], s)
		}
	}
	w := forecast.NewWorkspace()
	for key, all := range sets {
		var firsts []int
		for seed := range uint64(trustSeeds) {
			seed += trustFirstSeed
			c := trustOf(all, rand.New(rand.NewPCG(seed, 5)), w)
			median := c.first[len(c.first)/2]
			t.Logf("%s, seed %d: %d series, half trusted after %d values; hold %.1f, %.1f, %.1f%%; after changes %.1f, %.1f, %.1f%%", key, seed, len(c.first), median,
				c.inside[0].percent(), c.inside[1].percent(), c.inside[2].percent(), c.after[0].percent(), c.after[1].percent(), c.after[2].percent())
			firsts = append(firsts, c.first...)
		}
		slices.Sort(firsts)
		if median := firsts[len(firsts)/2]; median >= 75 {
			t.Errorf("%s: half of all series are trusted after %d values", key, median)
		}
	}
}

// trustOf counts what drawn parts of series show.
func trustOf(all []trace.Series, r *rand.Rand, w *forecast.Workspace) (c trustCount) {
	for _, k := range r.Perm(len(all)) {
		values := all[k].Values
		at := r.IntN(len(values) - trustMin + 1)
		values = values[at:min(len(values), at+trustLength)]
		missing := 0
		for _, y := range values {
			if math.IsNaN(y) {
				missing++
			}
		}
		if math.IsNaN(values[0]) || missing*trustGaps > len(values) {
			continue
		}
		c.play(values, w)
		if len(c.first) == trustSeries {
			break
		}
	}
	slices.Sort(c.first)
	return c
}

// play lets a series be forecast, and checks what is stated while it is trusted.
func (c *trustCount) play(values []float64, w *forecast.Workspace) {
	type stated struct{ low, high float64 }
	waiting := make([][3]*stated, len(values)+forecast.Horizon)
	changed := changesOf(values)
	s := forecast.New(forecast.Options{Period: 288, Positive: true, Workspace: w})
	ahead := make([]forecast.Prediction, forecast.Horizon)
	first := math.MaxInt
	for t, y := range values {
		for i, x := range waiting[t] {
			if x == nil || math.IsNaN(y) {
				continue
			}
			inside := x.low <= y && y <= x.high
			c.inside[i].add(inside)
			if changed[t-trustHorizons[i]] {
				c.after[i].add(inside)
			}
		}
		_ = s.Observe(int64(t), y, false) // steps ascend: it has nothing to refuse
		if ok, _ := s.Trusted(); !ok || !s.Predict(ahead) {
			continue
		}
		first = min(first, t+1)
		for i, h := range trustHorizons {
			q := ahead[h-1].Quantiles
			low, high := q[1], q[len(q)-2]
			slack := 1e-6 * (math.Abs(low) + math.Abs(high)) // a mass point, rounded
			waiting[t+h][i] = &stated{low - slack, high + slack}
		}
	}
	c.first = append(c.first, first)
}

// changesOf says of each step whether it is one of the twenty from a change on: five values whose mean, and the first of which, lie over four deviations of the
// twenty before them away from their mean.
func changesOf(values []float64) []bool {
	const before, after, lasts = 20, 5, 20
	out := make([]bool, len(values))
	for t := before; t+after < len(values); t++ {
		m, s := meanAndDeviation(values[t-before : t])
		now, _ := meanAndDeviation(values[t : t+after])
		if far := 4*s + 0.02*math.Abs(m); math.Abs(now-m) > far && math.Abs(values[t]-m) > far {
			for k := t; k < min(t+lasts, len(values)); k++ {
				out[k] = true
			}
		}
	}
	return out
}

func meanAndDeviation(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(v)-1))
}
