package replay

import (
	"math"

	"evenkeel/forecast"
	"evenkeel/sim/arima"
	"evenkeel/sim/gp"
)

// few is how many observations Pace's prototype trains its models on (sec. V): the ten past ones. Those of package fitted look at
// 200 and 120, and say nothing before they have 40.
const few = 10

// refit is after how many observations a model is fitted again.
const refit = 5

// recent are the latest values of a series.
type recent struct {
	values [few]float64 // the oldest first
	n      int
}

// add says whether it is time to fit.
func (r *recent) add(y float64) bool {
	copy(r.values[:], r.values[1:])
	r.values[few-1] = y
	r.n++
	return r.n >= few && r.n%refit == 0
}

// FewARIMA makes ARIMA models of the latest ten values, orders by AIC; those of one call share their scratch memory.
func FewARIMA() func(phase int) forecast.Model {
	w := &fewFitter{lately: map[[few]float64]fewFit{}}
	return func(int) forecast.Model { return &fewARIMA{w: w} }
}

type fewFitter struct {
	arima.Fitter
	lately         map[[few]float64]fewFit
	m              arima.Model
	mean, variance [16]float64
}

// fewFit is a model that was fitted; the zero value: none can be.
type fewFit struct {
	spec   arima.Spec
	params arima.Params
	fitted bool
}

// maxSlots is how many fits are remembered. A tenth of all are of values that another series had just now: components of an application that use the same.
const maxSlots = 1 << 12

type fewARIMA struct {
	recent
	fewFit
	w *fewFitter
}

func (*fewARIMA) Name() string { return "arima10" }

func (m *fewARIMA) Observe(y float64) {
	if !m.add(y) {
		return
	}
	fit, known := m.w.lately[m.values]
	if !known {
		found, err := m.w.Search(m.values[:], arima.Bounds{P: 1, Q: 1, D: -1, Criterion: arima.AIC, Models: 5}, arima.Options{Evaluations: 60, Tolerance: 1e-4, Starts: 1})
		if err == nil {
			fit = fewFit{found.Spec, found.Params, true}
		}
		if len(m.w.lately) == maxSlots {
			clear(m.w.lately)
		}
		m.w.lately[m.values] = fit
	}
	if fit.fitted {
		m.fewFit = fit
	}
}

func (m *fewARIMA) Predict(out []forecast.Prediction) bool {
	n := len(out)
	if !m.fitted || n > len(m.w.mean) || m.w.m.Set(m.spec, m.params, m.values[:], nil) != nil {
		return false
	}
	return m.w.m.Forecast(m.w.mean[:n], m.w.variance[:n]) == nil && normal(out, m.w.mean[:n], m.w.variance[:n])
}

// FewGP makes Gaussian processes on patterns of three values among the latest ten; those of one call share their scratch memory.
func FewGP() func(phase int) forecast.Model {
	f, err := gp.NewForecaster(gp.Config{Shape: gp.Exponential, History: 3, Patterns: few - 3, Time: true})
	if err != nil {
		panic(err) // the configuration is a constant
	}
	w := &fewProcess{Forecaster: f, lately: map[fewStart]fewHyper{}}
	return func(int) forecast.Model { return &fewGP{w: w} }
}

type fewProcess struct {
	*gp.Forecaster
	lately         map[fewStart]fewHyper
	mean, variance [16]float64
}

// fewHyper are hyper-parameters that were found; the zero value: none were.
type fewHyper struct {
	hyper  [8]float64
	fitted bool
}

// fewStart is what a fit follows from: the values, and where it begins.
type fewStart struct {
	values [few]float64
	from   fewHyper
}

type fewGP struct {
	recent
	fewHyper
	w *fewProcess
}

func (*fewGP) Name() string { return "gp10" }

func (m *fewGP) Observe(y float64) {
	if !m.add(y) {
		return
	}
	from := fewStart{m.values, m.fewHyper}
	fit, known := m.w.lately[from]
	if !known {
		var start gp.Hyper
		effort := gp.Effort{Evaluations: 30, Gradient: 0.2}
		if m.fitted {
			start, effort = m.hyper[:m.w.Hypers()], gp.Effort{Evaluations: 8, Gradient: 0.2}
		}
		if found, _, err := m.w.Fit(m.values[:], start, effort); err == nil && len(found) <= len(fit.hyper) {
			copy(fit.hyper[:], found)
			fit.fitted = true
		}
		if len(m.w.lately) == maxSlots {
			clear(m.w.lately)
		}
		m.w.lately[from] = fit
	}
	if fit.fitted {
		m.fewHyper = fit
	}
}

func (m *fewGP) Predict(out []forecast.Prediction) bool {
	n := len(out)
	if !m.fitted || n > len(m.w.mean) {
		return false
	}
	return m.w.Forecast(m.values[:], m.hyper[:m.w.Hypers()], m.w.mean[:n], m.w.variance[:n]) == nil && normal(out, m.w.mean[:n], m.w.variance[:n])
}

// normal states normal distributions, if these are any.
func normal(out []forecast.Prediction, mean, variance []float64) bool {
	for i := range out {
		if math.IsNaN(mean[i]) || math.IsInf(mean[i], 0) || !(variance[i] >= 0) || math.IsInf(variance[i], 0) {
			return false
		}
		out[i] = forecast.Prediction{Mean: mean[i], Variance: variance[i]} // buffers of deviations read no quantiles
	}
	return true
}
