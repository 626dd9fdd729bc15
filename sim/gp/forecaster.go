package gp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// Config is how a Forecaster makes patterns of a series, and of what shape its kernel is.
type Config struct {
	Shape    Shape
	History  int  // h: values of a pattern, 1 to 100
	Patterns int  // N: latest patterns that are learned from, 4 to 500
	Time     bool // whether the time of a pattern is a column besides its values, with a length scale of its own
}

// Default is what predicted best of what was tried on measured use of virtual machines.
var Default = Config{Shape: Exponential, History: 10, Patterns: 50, Time: true}

// ErrTooFew is returned for a window with too few patterns in it to learn from, or too few measured values where the
// forecast would begin.
var ErrTooFew = errors.New("gp: too few patterns")

// ErrConstant is returned by Fit for a window whose values are all the same, from which there is nothing to learn.
var ErrConstant = errors.New("gp: the series is constant")

// minPatterns is the fewest patterns whose outcome must be known for each step ahead.
const minPatterns = 4

// constant is the standard deviation, relative to the largest value, under which a window counts as constant: what is
// left of it is rounding.
const constant = 1e-11

// Forecaster predicts series from their latest values. It is a workspace: nothing that a series said stays in it
// between calls, so that one serves any number of series. After a first call of a size Forecast does not allocate.
//
// A pattern is x~_t = [t, y_{t-h} .. y_{t-1}] (Pace, eq. 5) of the standardised window; time counts in N samples. All
// steps ahead share the patterns and their kernel matrix: for step k, the value that is learned of a pattern is
// y_{t+k-1}, directly, so that what is not known k steps ahead shows as noise and cannot add up. (Feeding means back
// with their uncertainty, to first order, predicted worse beyond a few steps: errors of the slope multiply.)
//
// A step's value is noisier than that of the first. So for each step the noise is multiplied by one of noises, and the
// whole covariance by s², each by evidence: that of s² is greatest at yᵀK⁻¹y/n, taken with one observation's worth of
// belief that it is 1.
//
// A value that was not measured (NaN) takes its patterns out, those it is in and those whose outcome it is. In the
// latest pattern, of which half must be measured, it counts as the value measured before it.
type Forecaster struct {
	config Config
	kernel Kernel
	priors []Prior
	cold   []Hyper
	reg    Regression

	z      []float64 // the window, standardised
	center float64   // what standardising took off
	spread float64   // and divided by; 0: all values are the same
	places []int     // of the patterns' first outcomes in z, ascending
	x, y   []float64 // patterns, by rows, and their first outcomes
	latest []float64 // the pattern to predict from

	prior    []float64 // covariances of the latest pattern with all
	outcomes []float64 // patterns x steps, standardised; 0 where the window ends before
	solved   []float64 // L⁻¹ outcomes
	logs     []float64 // ½ log determinant of the first i+1 patterns' kernel matrix
	steps    []step
}

// step is the best found of one step ahead, for the standardised window.
type step struct {
	evidence       float64 // up to what all candidates have in common
	mean, variance float64
}

// noises are the logarithms of what multiplies the standard deviation of the noise, steps ahead, and noiseDeviation is
// that of a normal prior of them.
var noises = [...]float64{0, 0.5, 1, 2}

const noiseDeviation = 2

// NewForecaster checks the config.
func NewForecaster(c Config) (*Forecaster, error) {
	if c.History < 1 || c.History > 100 {
		return nil, fmt.Errorf("gp: history of %d values, want 1 to 100", c.History)
	}
	if c.Patterns < minPatterns || c.Patterns > 500 {
		return nil, fmt.Errorf("gp: %d patterns, want %d to 500", c.Patterns, minPatterns)
	}
	f := &Forecaster{config: c, kernel: Kernel{Shape: c.Shape}}
	if c.Time {
		f.kernel.Groups = append(f.kernel.Groups, 1)
	}
	f.kernel.Groups = append(f.kernel.Groups, c.History)
	if err := f.kernel.check(); err != nil {
		return nil, err
	}
	f.priors, f.cold = believe(c)
	return f, nil
}

// believe gives the priors for standardised values, and the starts of a cold search: a signal that changes fast, one
// that changes slowly, and mostly noise.
func believe(c Config) (priors []Prior, cold []Hyper) {
	cold = make([]Hyper, 3)
	add := func(p Prior, starts ...float64) {
		priors = append(priors, p)
		for i, v := range starts {
			cold[i] = append(cold[i], v)
		}
	}
	if c.Time {
		add(Prior{Mean: 0, Deviation: 1.5, Low: -4, High: 5}, -1, 1, 0)
	}
	// Two patterns of independent standardised values lie √2h apart.
	apart := math.Log(2*float64(c.History)) / 2
	add(Prior{Mean: apart, Deviation: 1.5, Low: apart - 4, High: apart + 5}, apart-1, apart+1.5, apart)
	add(Prior{Mean: 0, Deviation: 1.5, Low: -6, High: 4}, -0.2, 0.5, -1)
	// The floor of the noise, a thousandth of the window's deviation, keeps matrices well-conditioned.
	add(Prior{Mean: -1, Deviation: 1.5, Low: math.Log(1e-3), High: math.Log(3)}, -1.5, -1, -0.3)
	return priors, cold
}

// Window is how many values a Forecaster needs to see all its patterns where none is missing. It looks further back
// in a longer window only to make up for values that were not measured.
func (f *Forecaster) Window() int { return f.config.Patterns + f.config.History }

// Hypers is how many numbers a Hyper of this Forecaster has.
func (f *Forecaster) Hypers() int { return f.kernel.Hypers() }

// Fit finds the hyper-parameters of the greatest evidence of the next value, for a window with the oldest value first
// and NaN for one that was not measured. With no start it is a cold search from several places; with one, a warm search
// from there. It returns the evidence of the standardised window. The result is to be handed to Forecast, for this
// window and later ones of the series. ErrConstant is said of the values that a forecast of one step looks at: one of
// more steps looks further back, and may need a Hyper yet.
func (f *Forecaster) Fit(window []float64, start Hyper, effort Effort) (Hyper, float64, error) {
	if err := f.load(window, 1); err != nil {
		return nil, 0, err
	}
	if f.spread == 0 {
		return nil, 0, ErrConstant
	}
	if err := f.reg.Load(f.kernel, f.x, f.y); err != nil {
		return nil, 0, err
	}
	if start != nil {
		return f.reg.Maximize([]Hyper{start}, f.priors, effort)
	}
	return f.reg.Maximize(f.cold, f.priors, effort)
}

// Forecast fills mean and variance, of equal length, with what is predicted of the values after the window, the very
// next one first: variance is that of the value itself, noise included, in the unit squared, and never falls from one
// step to the next.
//
// A window of equal values is predicted to go on as it is, with variance 0, whatever the hyper-parameters.
func (f *Forecaster) Forecast(window []float64, hyper Hyper, mean, variance []float64) error {
	if len(mean) != len(variance) {
		return fmt.Errorf("gp: %d means and %d variances", len(mean), len(variance))
	}
	if len(mean) == 0 {
		return nil
	}
	if err := f.load(window, len(mean)); err != nil {
		return err
	}
	if f.spread == 0 {
		for i := range mean {
			mean[i], variance[i] = f.center, 0
		}
		return nil
	}
	if err := f.reg.Load(f.kernel, f.x, f.y); err != nil {
		return err
	}
	if err := f.predict(hyper, len(mean)); err != nil {
		return err
	}
	widest := 0.0
	for i, s := range f.steps {
		widest = max(widest, s.variance)
		mean[i], variance[i] = f.center+f.spread*s.mean, f.spread*f.spread*widest
	}
	return nil
}

// load chooses and standardises the patterns of the window, for as many steps ahead.
func (f *Forecaster) load(window []float64, ahead int) error {
	h := f.config.History
	for i, v := range window {
		if !math.IsNaN(v) && !usable(v) {
			return fmt.Errorf("gp: value %d of the window: %v is out of range", i, v)
		}
	}
	f.choose(window, ahead)
	if known := len(f.places) - (ahead - 1); known < minPatterns {
		return fmt.Errorf("%w: %d in %d values for %d steps ahead, want %d", ErrTooFew, max(known, 0), len(window), ahead, minPatterns)
	}
	oldest := f.places[0] - h
	if !f.standardise(window[oldest:]) {
		return fmt.Errorf("%w: fewer than half of the latest %d values are measured", ErrTooFew, h)
	}
	f.x, f.y = f.x[:0], f.y[:0]
	for p, i := range f.places {
		i -= oldest
		f.places[p] = i
		if f.config.Time {
			f.x = append(f.x, float64(i-len(f.z))/float64(f.config.Patterns))
		}
		f.x = append(f.x, f.z[i-h:i]...)
		f.y = append(f.y, f.z[i])
	}
	return nil
}

// choose fills places with those in window of the first outcomes of its latest patterns, all of whose outcomes within
// the window are measured.
func (f *Forecaster) choose(window []float64, ahead int) {
	f.places = f.places[:0]
	measured := 0 // values in a row from a place on
	for i := len(window) - 1; i >= 0 && len(f.places) < f.config.Patterns; i-- {
		if math.IsNaN(window[i]) {
			measured = 0
			continue
		}
		measured++
		needed := min(f.config.History+ahead, len(window)-i)
		if first := i + f.config.History; first < len(window) && measured >= needed {
			f.places = append(f.places, first)
		}
	}
	slices.Reverse(f.places)
}

// standardise fills z, center, spread and latest from values, and says whether there is a latest pattern.
func (f *Forecaster) standardise(values []float64) bool {
	n, largest := 0, 0.0
	f.center = 0
	for _, v := range values {
		if !math.IsNaN(v) {
			n++
			f.center += (v - f.center) / float64(n)
			largest = max(largest, math.Abs(v))
		}
	}
	f.spread = 0
	if largest > 0 {
		for _, v := range values {
			if !math.IsNaN(v) {
				d := (v - f.center) / largest // whose square neither overflows nor vanishes
				f.spread += d * d / float64(n)
			}
		}
	}
	f.spread = math.Sqrt(f.spread)
	if f.spread <= constant {
		f.spread = 0
	}
	f.spread *= largest
	f.z = resize(f.z, len(values))
	for i, v := range values {
		f.z[i] = v - f.center
		if f.spread > 0 {
			f.z[i] /= f.spread
		}
	}
	h := f.config.History
	f.latest = f.latest[:0]
	if f.config.Time {
		f.latest = append(f.latest, 0)
	}
	missing, before := 0, f.z[0] // which is in a pattern, so measured
	for i, v := range f.z {
		fresh := i >= len(f.z)-h
		switch {
		case !math.IsNaN(v):
			before = v
		case fresh:
			missing++
		}
		if fresh {
			f.latest = append(f.latest, before)
		}
	}
	return 2*missing <= h
}

// predict fills steps. The patterns are in the order of time, so that those whose outcome k steps ahead is known are
// the first ones, and the factor of their kernel matrix is the upper left part of that of all.
func (f *Forecaster) predict(hyper Hyper, ahead int) error {
	r := &f.reg
	if err := r.Condition(hyper); err != nil {
		return err
	}
	n := r.n
	f.outcomes, f.solved = resize(f.outcomes, n*ahead), resize(f.solved, n*ahead)
	for p, i := range f.places {
		row := f.outcomes[p*ahead : (p+1)*ahead]
		clear(row[copy(row, f.z[i:]):])
	}
	if cap(f.steps) < ahead {
		f.steps = make([]step, ahead)
	}
	f.steps = f.steps[:ahead]
	for k := range f.steps {
		f.steps[k] = step{evidence: math.Inf(-1)}
	}
	r.correlate(f.latest)
	f.prior = append(f.prior[:0], r.cross...)
	noise := 0.0 // what is in k beyond that of hyper
	for _, more := range noises {
		if more > 0 {
			added := r.scales.noise*math.Exp(2*more) - r.scales.noise - noise
			for i := range n {
				r.k[i*n+i] += added
			}
			noise += added
			if err := r.factor.set(n, r.k, nil); err != nil {
				return err
			}
		}
		copy(r.cross, f.prior)
		r.factor.solveLower(r.cross)
		copy(f.solved, f.outcomes)
		if ahead == 1 {
			r.factor.solveLower(f.solved)
		} else {
			blas64.Trsm(blas.Left, blas.NoTrans, 1, r.factor.triangle(), blas64.General{Rows: n, Cols: ahead, Stride: ahead, Data: f.solved})
		}
		f.judge(r.scales.noise+noise, -more*more/(2*noiseDeviation*noiseDeviation))
	}
	return nil
}

// judge keeps for each step ahead what the present factor predicts, if its evidence is the best so far. noise is
// the variance of the noise in it, belief its log prior.
func (f *Forecaster) judge(noise, belief float64) {
	n, ahead := f.reg.n, len(f.steps)
	f.logs = resize(f.logs, n)
	if last := f.known(ahead-1) - 1; f.reg.factor.few() {
		product := 1.0
		for i := range n {
			if product *= f.reg.factor.l[i*n+i]; i >= last {
				f.logs[i] = math.Log(product)
			}
		}
	} else {
		sum := 0.0
		for i := range n {
			sum += math.Log(f.reg.factor.l[i*n+i])
			f.logs[i] = sum
		}
	}
	for k := range f.steps {
		square, mean, variance := 0.0, 0.0, f.reg.scales.signal+noise
		known := f.known(k)
		for i, c := range f.reg.cross[:known] {
			v := f.solved[i*ahead+k]
			square += v * v
			mean += c * v
			variance -= c * c
		}
		count := float64(known) + 1
		scale := (square + 1) / count
		if e := belief - count/2*math.Log(scale) - f.logs[known-1]; e > f.steps[k].evidence {
			f.steps[k] = step{e, mean, scale * max(variance, noise)}
		}
	}
}

// known is how many patterns have their outcome k+1 steps ahead in the window.
func (f *Forecaster) known(k int) int {
	n := len(f.places)
	for n > 0 && f.places[n-1]+k >= len(f.z) {
		n--
	}
	return n
}
