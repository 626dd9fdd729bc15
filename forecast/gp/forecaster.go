package gp

import (
	"errors"
	"fmt"
	"math"
)

// Config is how a Forecaster makes patterns of a series, and of what kind its kernel is.
type Config struct {
	Shape    Shape
	History  int  // h: values of a pattern, 1 to 100
	Patterns int  // N: latest patterns that are learned from, 4 to 500
	Time     bool // whether the time of a pattern is a column besides its values, with a length scale of its own
	Linear   bool // whether the kernel has its linear term: an autoregression on the pattern
	Change   bool // whether the change since the latest value is learned, instead of the value
}

// ErrTooFew is returned for a window with too few patterns in it to learn from: fewer than minPatterns, or none that
// ends where a forecast could begin.
var ErrTooFew = errors.New("gp: too few patterns")

// ErrConstant is returned by Fit for a window whose values are all the same, from which there is nothing to learn.
var ErrConstant = errors.New("gp: the series is constant")

const minPatterns = 4

// flat is the standard deviation, relative to the largest value, under which a window counts as constant: what is
// left of it is rounding.
const flat = 1e-11

// Forecaster predicts series from their latest values. It is a workspace: nothing that a series said stays in it
// between calls, so that one serves any number of series. After a first call it does not allocate in Forecast.
type Forecaster struct {
	config Config
	kernel Kernel
	priors []Prior
	cold   []Hyper
	reg    Regression

	z          []float64 // the window, standardised
	center     float64   // what standardising took off
	spread     float64   // and divided by
	x, y       []float64 // patterns, by rows, and what followed each
	state      []float64 // latest pattern with its time, while it is rolled on
	slopes     []float64 // of the mean by the state
	covariance []float64 // of the values in state, h x h by rows
	column     []float64
}

// NewForecaster checks the config.
func NewForecaster(c Config) (*Forecaster, error) {
	if c.History < 1 || c.History > 100 {
		return nil, fmt.Errorf("gp: history of %d values, want 1 to 100", c.History)
	}
	if c.Patterns < minPatterns || c.Patterns > 500 {
		return nil, fmt.Errorf("gp: %d patterns, want %d to 500", c.Patterns, minPatterns)
	}
	f := &Forecaster{config: c, kernel: Kernel{Shape: c.Shape, Linear: c.Linear}}
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

// believe gives the priors for standardised values, and the starts of a cold search.
func believe(c Config) (priors []Prior, cold []Hyper) {
	// Two patterns of independent standardised values lie √2h apart.
	apart := math.Log(math.Sqrt(2 * float64(c.History)))
	short, long, rough := Hyper{}, Hyper{}, Hyper{}
	if c.Time {
		// Time runs from 0 to 1 over the window.
		priors = append(priors, Prior{Mean: 0, Deviation: 1.5, Low: -4, High: 5})
		short, long, rough = append(short, -1), append(long, 1), append(rough, 0)
	}
	priors = append(priors, Prior{Mean: apart, Deviation: 1.5, Low: apart - 4, High: apart + 5})
	short, long, rough = append(short, apart-1), append(long, apart+1.5), append(rough, apart)
	priors = append(priors, Prior{Mean: 0, Deviation: 1.5, Low: -6, High: 4})
	short, long, rough = append(short, -0.2), append(long, 0.5), append(rough, -1)
	if c.Linear {
		priors = append(priors, Prior{Mean: 0, Deviation: 1.5, Low: -6, High: 4})
		short, long, rough = append(short, -1), append(long, 0.5), append(rough, 0)
	}
	// The floor of the noise, a thousandth of the window's deviation, keeps matrices well-conditioned.
	priors = append(priors, Prior{Mean: -1, Deviation: 1.5, Low: math.Log(1e-3), High: math.Log(3)})
	short, long, rough = append(short, -1.5), append(long, -1), append(rough, -0.3)
	return priors, []Hyper{short, long, rough}
}

// Window is how many values a Forecaster looks at: a longer window counts from its end.
func (f *Forecaster) Window() int { return f.config.Patterns + f.config.History }

// Hypers is how many numbers a Hyper of this Forecaster has.
func (f *Forecaster) Hypers() int { return f.kernel.Hypers() }

// load standardises the window and makes its patterns. It reports whether all its values are the same.
func (f *Forecaster) load(window []float64) (constant bool, err error) {
	window = window[max(0, len(window)-f.Window()):]
	n := 0
	largest := 0.0
	f.center = 0
	for i, v := range window {
		if math.IsNaN(v) {
			continue
		}
		if !usable(v) {
			return false, fmt.Errorf("gp: value %d of the window: %v is out of range", i, v)
		}
		n++
		f.center += (v - f.center) / float64(n)
		largest = max(largest, math.Abs(v))
	}
	f.spread = 0
	for _, v := range window {
		if !math.IsNaN(v) {
			f.spread += (v - f.center) * (v - f.center) / float64(n)
		}
	}
	f.spread = math.Sqrt(f.spread)
	if f.spread <= flat*largest {
		f.spread = 1
		constant = true
	}
	f.z = resize(f.z, len(window))
	for i, v := range window {
		f.z[i] = (v - f.center) / f.spread
	}
	f.x, f.y = f.x[:0], f.y[:0]
	h := f.config.History
	for i := h; i < len(f.z); i++ {
		if math.IsNaN(f.z[i]) || !whole(f.z[i-h:i]) {
			continue
		}
		if f.config.Time {
			f.x = append(f.x, f.time(i))
		}
		f.x = append(f.x, f.z[i-h:i]...)
		target := f.z[i]
		if f.config.Change {
			target -= f.z[i-1]
		}
		f.y = append(f.y, target)
	}
	if len(f.y) < minPatterns {
		return constant, fmt.Errorf("%w: %d in %d values, want %d", ErrTooFew, len(f.y), len(window), minPatterns)
	}
	return constant, nil
}

// time of place i of the window, so that its latest value has time 1.
func (f *Forecaster) time(i int) float64 {
	return 1 + float64(i-len(f.z)+1)/float64(f.config.Patterns)
}

func whole(values []float64) bool {
	for _, v := range values {
		if math.IsNaN(v) {
			return false
		}
	}
	return true
}

// Fit finds the hyper-parameters of the greatest evidence for the window, oldest value first, NaN for one that was
// not measured. With no start it is a cold search from several places; with one, a warm search from there. It returns
// the evidence of the standardised window. The result is to be handed to Forecast, for this window and later ones.
func (f *Forecaster) Fit(window []float64, start Hyper, effort Effort) (Hyper, float64, error) {
	constant, err := f.load(window)
	if err != nil {
		return nil, 0, err
	}
	if constant {
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
// next one first: variance is that of the value itself, noise included, in the unit squared.
//
// A window of equal values is predicted to go on as it is, with variance 0, whatever the hyper-parameters.
func (f *Forecaster) Forecast(window []float64, hyper Hyper, mean, variance []float64) error {
	if len(mean) != len(variance) {
		return fmt.Errorf("gp: %d means and %d variances", len(mean), len(variance))
	}
	constant, err := f.load(window)
	if err != nil {
		return err
	}
	if constant {
		for i := range mean {
			mean[i], variance[i] = f.center, 0
		}
		return nil
	}
	if err := f.reg.Load(f.kernel, f.x, f.y); err != nil {
		return err
	}
	if err := f.reg.Condition(hyper); err != nil {
		return err
	}
	return f.roll(mean, variance)
}

// roll predicts step by step, each prediction a value of the next pattern.
//
// The values of a pattern are then uncertain. They are taken as normal, and the predictive mean as linear in them
// within that uncertainty: Var[y] = σ²(μ) + gᵀSg, Cov[y, pattern] = Sg, where μ and S are the pattern's mean and
// covariance and g the mean's gradient at μ (Girard, Rasmussen, Quiñonero-Candela, Murray-Smith: Gaussian process
// priors with uncertain inputs, NIPS 2002, with the mean to first order).
//
// It starts at the latest place with a whole pattern before it, so that values that were not measured since are
// predicted alike; one that was measured takes its place in the pattern as certain.
func (f *Forecaster) roll(mean, variance []float64) error {
	h, n := f.config.History, len(f.z)
	from := n
	for from >= h && !whole(f.z[from-h:from]) {
		from--
	}
	if from < h {
		return fmt.Errorf("%w: no whole one", ErrTooFew)
	}
	f.state = f.state[:0]
	if f.config.Time {
		f.state = append(f.state, 0)
	}
	f.state = append(f.state, f.z[from-h:from]...)
	pattern := f.state[len(f.state)-h:]
	f.slopes = resize(f.slopes, len(f.state))
	slopes := f.slopes[len(f.state)-h:]
	f.covariance, f.column = resize(f.covariance, h*h), resize(f.column, h)
	clear(f.covariance)
	for i := from; i < n+len(mean); i++ {
		if f.config.Time {
			f.state[0] = f.time(i)
		}
		p := f.reg.predict(f.state)
		f.reg.tangent(f.state, f.slopes)
		next, spread := p.Mean, p.Observed
		if f.config.Change {
			next += pattern[h-1]
			slopes[h-1]++
		}
		for a := range h {
			sum := 0.0
			for b, g := range slopes {
				sum += f.covariance[a*h+b] * g
			}
			f.column[a] = sum
		}
		for a, g := range slopes {
			spread += g * f.column[a]
		}
		if i < n && !math.IsNaN(f.z[i]) {
			next, spread = f.z[i], 0
			clear(f.column)
		}
		// The pattern moves on by one.
		for a := range h - 1 {
			copy(f.covariance[a*h:a*h+h-1], f.covariance[(a+1)*h+1:(a+2)*h])
			f.covariance[a*h+h-1] = f.column[a+1]
			f.covariance[(h-1)*h+a] = f.column[a+1]
		}
		f.covariance[h*h-1] = spread
		copy(pattern, pattern[1:])
		pattern[h-1] = next
		if k := i - n; k >= 0 {
			mean[k] = f.center + f.spread*next
			variance[k] = f.spread * f.spread * max(spread, 0)
		}
	}
	return nil
}
