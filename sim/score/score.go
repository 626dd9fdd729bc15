package score

import (
	"math"

	"evenkeel/forecast"
)

// Coverages are the probabilities of the central intervals that are counted.
var Coverages = [...]float64{0.50, 0.80, 0.95, 0.99}

// bounds are the places of the intervals' lower ends in forecast.Levels; the upper ends are as far from the end.
var bounds = func() (at [len(Coverages)]int) {
	for i, c := range Coverages {
		at[i] = -1
		for k, p := range forecast.Levels {
			if math.Abs(p-(1-c)/2) < 1e-12 {
				at[i] = k
			}
		}
	}
	return at
}()

const (
	// StillShare of values that repeat makes a series still.
	StillShare = 0.95

	// equal is how far, relative to their size, equal values are apart at most.
	equal = 1e-9
)

// Options of Run.
type Options struct {
	Steps  int // predicted at each origin, >= 1
	Warmup int // measured values before the first origin, that of the origin included
	Every  int // values from one origin to the next that is asked for; 0 is 1
	Short  int // a series with fewer origins that count is short

	Stop func() bool // asked before each value; true ends the run there. May be nil

	// Each, if any, takes each prediction that is scored: of which model, after which value, of which one (both counted from 0), and what came.
	Each func(model, origin, of int, p *forecast.Prediction, came float64)
}

// Tally sums what came against what was predicted, in the unit of the series.
type Tally struct {
	N        int                 // values scored
	AbsError float64             // of the median
	Pinball  float64             // mean over forecast.Levels
	Inside   [len(Coverages)]int // values strictly within the intervals
	OnBound  [len(Coverages)]int // values on a bound of them
}

// Add counts u in.
func (t *Tally) Add(u Tally) {
	t.N += u.N
	t.AbsError += u.AbsError
	t.Pinball += u.Pinball
	for i := range t.Inside {
		t.Inside[i] += u.Inside[i]
		t.OnBound[i] += u.OnBound[i]
	}
}

// value scores one value.
func (t *Tally) value(y float64, p *forecast.Prediction) {
	t.N++
	t.AbsError += math.Abs(y - p.Quantiles[forecast.Median])
	loss := 0.0
	for i, level := range forecast.Levels {
		if d := y - p.Quantiles[i]; d >= 0 {
			loss += level * d
		} else {
			loss += (level - 1) * d
		}
	}
	t.Pinball += loss / float64(len(forecast.Levels))
	slack := equal * math.Abs(y)
	for i, lower := range bounds {
		lo, hi := p.Quantiles[lower], p.Quantiles[len(forecast.Levels)-1-lower]
		switch {
		case math.Abs(y-lo) <= slack || math.Abs(y-hi) <= slack:
			t.OnBound[i]++
		case lo < y && y < hi:
			t.Inside[i]++
		}
	}
}

// Model is how one model did on one series.
type Model struct {
	Name     string
	Unable   int     // origins at which it could not predict
	Broken   int     // origins at which it stated what is no prediction: not finite, or quantiles that descend
	Horizons []Tally // one step ahead first
}

// Total is all horizons together.
func (m Model) Total() Tally {
	var t Tally
	for _, h := range m.Horizons {
		t.Add(h)
	}
	return t
}

// Result is how models did on one series.
type Result struct {
	Values   int     // of the series
	Measured int     // of them
	Asked    int     // origins
	Origins  int     // of them where every model could predict: those that count
	Scale    float64 // mean absolute difference of neighbours that were both measured; 0 if there is none
	Repeats  float64 // larger share of: values equal to the one before, values equal to the commonest
	Short    bool
	Models   []Model
}

// Still says whether nearly all values are equal.
func (r Result) Still() bool { return r.Repeats >= StillShare }

// Run scores models, which must be new, on one series; NaN is a value that was not measured. It keeps nothing of values.
func Run(values []float64, models []forecast.Model, o Options) Result {
	o.Steps, o.Every = max(o.Steps, 1), max(o.Every, 1)
	r := facts(values)
	predictions := make([][]forecast.Prediction, len(models))
	for i, m := range models {
		r.Models = append(r.Models, Model{Name: m.Name(), Horizons: make([]Tally, o.Steps)})
		predictions[i] = make([]forecast.Prediction, o.Steps)
	}
	seen := 0
	for t, y := range values {
		if o.Stop != nil && o.Stop() {
			break
		}
		for _, m := range models {
			m.Observe(y)
		}
		if !measured(y) {
			continue
		}
		seen++
		if seen < o.Warmup || (seen-max(o.Warmup, 1))%o.Every != 0 {
			continue
		}
		coming := values[t+1 : min(len(values), t+1+o.Steps)]
		if !anyMeasured(coming) {
			continue
		}
		r.Asked++
		all := true
		for i, m := range models {
			switch {
			case !m.Predict(predictions[i]):
				r.Models[i].Unable++
				all = false
			case !sound(predictions[i]):
				r.Models[i].Broken++
				all = false
			}
		}
		if !all {
			continue
		}
		r.Origins++
		for i := range models {
			for h, y := range coming {
				if measured(y) {
					r.Models[i].Horizons[h].value(y, &predictions[i][h])
					if o.Each != nil {
						o.Each(i, t, t+1+h, &predictions[i][h], y)
					}
				}
			}
		}
	}
	r.Short = r.Origins < max(o.Short, 1)
	return r
}

// facts of a series that hold for every model.
func facts(values []float64) Result {
	r := Result{Values: len(values)}
	pairs, repeats, sum, last := 0, 0, 0.0, math.NaN()
	counts := map[float64]int{}
	commonest := 0
	for _, y := range values {
		if measured(y) {
			r.Measured++
			counts[y]++
			commonest = max(commonest, counts[y])
			if measured(last) {
				pairs++
				d := math.Abs(y - last)
				sum += d
				if d <= equal*math.Abs(y) {
					repeats++
				}
			}
		}
		last = y
	}
	if pairs > 0 {
		r.Scale = sum / float64(pairs)
		r.Repeats = float64(repeats) / float64(pairs)
	}
	if r.Measured > 0 {
		r.Repeats = max(r.Repeats, float64(commonest)/float64(r.Measured))
	}
	return r
}

func measured(y float64) bool { return !math.IsNaN(y) && !math.IsInf(y, 0) }

func anyMeasured(values []float64) bool {
	for _, y := range values {
		if measured(y) {
			return true
		}
	}
	return false
}

// sound says whether these are predictions: finite, with quantiles that do not descend and a variance that is not negative.
func sound(predictions []forecast.Prediction) bool {
	for i := range predictions {
		p := &predictions[i]
		if !measured(p.Mean) || !measured(p.Variance) || p.Variance < 0 {
			return false
		}
		before := math.Inf(-1)
		for _, q := range p.Quantiles {
			if !measured(q) || q < before {
				return false
			}
			before = q
		}
	}
	return true
}
