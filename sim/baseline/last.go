package baseline

import (
	"math"
	"slices"

	"evenkeel/forecast"
)

// Last is the random walk: every future value is the last one measured. How far values went from it within 1, 2, ...
// steps is taken from the latest 128 values, for each number of steps by itself. It is the baseline that any forecast
// must beat, and hard to beat one step ahead.
//
// Quantiles are those of these errors, the k-th least of n standing at level k/(n+1); the median is the last value
// itself. Levels beyond the least and the greatest error are those of a normal distribution of the same mean square where that is
// farther out. Intervals and variance never narrow with the horizon. Horizons of which fewer than 8 errors are known
// take those of the next shorter one, widened by the square root of the steps. After a gap of g steps a prediction
// of h steps is one of g+h.
//
// It predicts after 8 errors of one number of steps: 9 values without a gap. 2.1 kB; a step costs nothing, a prediction
// one sort of at most 127 numbers per horizon.
type Last struct {
	track track
	last  float64
	age   int // steps since last was measured
}

// NewLast is a Last that has seen nothing.
func NewLast() *Last {
	l := &Last{last: math.NaN()}
	l.track.values = make([]float64, trackLength)
	l.track.stated = l.track.values // a random walk states what came
	l.track.sorted = make([]float64, 0, trackLength)
	return l
}

// Name implements Model.
func (l *Last) Name() string { return "last" }

// Observe implements Model. Magnitudes above 1e100 count as not measured.
func (l *Last) Observe(y float64) {
	y = usable(y)
	l.track.add(y, y)
	if math.IsNaN(y) {
		l.age++
		return
	}
	l.last, l.age = y, 0
}

// Predict implements Model.
func (l *Last) Predict(out []forecast.Prediction) bool {
	return l.track.predict(out, l.last, l.age, true)
}

// usable is y, or NaN where no model could calculate with it: differences and squares must stay finite.
func usable(y float64) float64 {
	if math.Abs(y) > 1e100 {
		return math.NaN()
	}
	return y
}

const (
	trackLength = 128 // values that errors are taken from
	minErrors   = 8   // that an interval is taken from
)

// normalQuantiles are those of the standard normal distribution at forecast.Levels.
var normalQuantiles = forecast.Normal(0, 1).Quantiles

// track remembers the latest values and what was stated when they came of the ones to follow, so that the errors
// of statements any number of steps ahead can be had.
type track struct {
	values, stated []float64 // rings of trackLength, NaN where not measured or stated
	growth         []float64 // of what was stated, by a step; nil if there is none
	damping        float64   // of the growth at each step
	next, n        int
	sorted         []float64 // of errors last put in it; its contents outlive no call
}

func (t *track) add(value, stated float64) {
	t.values[t.next], t.stated[t.next] = value, stated
	t.next = (t.next + 1) % trackLength
	t.n = min(t.n+1, trackLength)
}

// errors counts the errors of statements lag steps ahead, and puts them in t.sorted, not sorted yet.
func (t *track) errors(lag int) int {
	t.sorted = t.sorted[:0]
	steps, p := 0.0, t.damping
	if t.growth != nil {
		for range lag {
			steps += p
			p *= t.damping
		}
	}
	came := t.next - t.n + lag
	for ; came < t.next; came++ {
		i, j := came&(trackLength-1), (came-lag)&(trackLength-1) // of negative numbers too
		e := t.values[i] - t.stated[j]
		if t.growth != nil {
			e -= steps * t.growth[j]
		}
		if !math.IsNaN(e) {
			t.sorted = append(t.sorted, e)
		}
	}
	return len(t.sorted)
}

// base is the number of steps whose errors stand for those of lag steps, t.sorted holding them: lag itself, or the nearest below it, or
// the nearest above, with enough errors; 0 if there is none.
func (t *track) base(lag int) int {
	for b := min(lag, t.n-1); b > 0; b-- {
		if t.errors(b) >= minErrors {
			return b
		}
	}
	for b := lag + 1; b < t.n; b++ {
		if t.errors(b) >= minErrors {
			return b
		}
	}
	return 0
}

// predict states the values 1, 2, ... steps after one that is age steps old, of which now was said. An unbiased
// statement's errors are taken to be 0 in the mean and in the middle.
func (t *track) predict(out []forecast.Prediction, now float64, age int, unbiased bool) bool {
	var r reach
	for h := range out {
		mean, middle, ok := t.widen(&r, h+1+age, unbiased)
		if !ok {
			return false // for the first already, out is untouched
		}
		out[h] = r.around(now+mean, now+middle)
	}
	return true
}

// reach is how far values may lie from the middle, at each level, and their variance.
type reach struct {
	levels   [len(forecast.Levels)]float64
	variance float64
}

// widen makes r reach as far as errors of lag steps do, and never less than it did. It returns the errors' mean and median;
// false if none are known of any number of steps.
func (t *track) widen(r *reach, lag int, unbiased bool) (mean, middle float64, ok bool) {
	b := t.base(lag)
	if b == 0 {
		return 0, 0, false
	}
	slices.Sort(t.sorted)
	scale := math.Sqrt(max(1, float64(lag)/float64(b)))
	mean, variance := moments(t.sorted, unbiased)
	if !unbiased {
		middle = quantile(t.sorted, forecast.Median, mean, variance)
	}
	r.variance = max(r.variance, variance*scale*scale)
	for i := range r.levels {
		d := (quantile(t.sorted, i, mean, variance) - middle) * scale
		switch {
		case i < forecast.Median:
			r.levels[i] = min(r.levels[i], d)
		case i > forecast.Median:
			r.levels[i] = max(r.levels[i], d)
		}
	}
	return mean, middle, true
}

// around is the prediction that reaches as far as r does.
func (r *reach) around(mean, middle float64) forecast.Prediction {
	p := forecast.Prediction{Mean: mean, Variance: r.variance}
	for i, d := range r.levels {
		p.Quantiles[i] = middle + d
	}
	return p
}

// moments are the mean and the variance of errors; those of unbiased ones are about 0.
func moments(errors []float64, unbiased bool) (mean, variance float64) {
	n := float64(len(errors))
	if !unbiased {
		for _, e := range errors {
			mean += e / n
		}
	}
	for _, e := range errors {
		variance += (e - mean) * (e - mean) / n
	}
	return mean, variance
}

// quantile is that of sorted at Levels[i], the k-th least of n standing at k/(n+1); beyond its ends that of the
// normal distribution, where it is farther out.
func quantile(sorted []float64, i int, mean, variance float64) float64 {
	n := len(sorted)
	at := forecast.Levels[i] * float64(n+1)
	k := int(at)
	switch normal := mean + normalQuantiles[i]*math.Sqrt(variance); {
	case k < 1:
		return min(sorted[0], normal)
	case k >= n:
		return max(sorted[n-1], normal)
	}
	return sorted[k-1] + (at-float64(k))*(sorted[k]-sorted[k-1])
}
