package main

import (
	"hash/fnv"
	"io"
	"time"

	"evenkeel/forecast"
	"evenkeel/sim/baseline"
	"evenkeel/sim/fitted"
	"evenkeel/sim/trace"
)

// forecaster is a kind of model that can be scored, by start.
type forecaster struct {
	name  string
	usage string
	make  func(trace.Series) forecast.Model
}

// forecasters are all kinds, the simple ones first.
var forecasters = []forecaster{
	{"last", "what was measured last",
		func(trace.Series) forecast.Model { return baseline.NewLast() }},
	{"peak", "the peak of the latest 60 values",
		func(trace.Series) forecast.Model { return baseline.NewPeak(baseline.PeakWindow) }},
	{"histogram", "percentiles of the past that fades with a half-life of a day",
		func(s trace.Series) forecast.Model { return baseline.NewHistogram(float64(perDay(s))) }},
	{"smooth", "exponential smoothing, with and without a trend",
		func(trace.Series) forecast.Model { return baseline.NewSmooth() }},
	{"arima", "ARIMA, its order chosen by AIC",
		func(s trace.Series) forecast.Model { return fitted.NewARIMA(phase(s), nil) }},
	{"gp", "Gaussian-process regression on patterns of the past",
		func(s trace.Series) forecast.Model { return fitted.NewGP(phase(s), nil) }},
	{"mixture", "what production states: ten simple experts, weighed by what they were worth, intervals corrected",
		newProduction},
}

// start makes a model of the kind for a series. Use is never negative: what a model states below 0 counts as 0, so
// that all are scored alike.
func (f forecaster) start(s trace.Series) forecast.Model { return positive{f.make(s)} }

// positive is a model whose quantiles and means are 0 where it states less. Its variances stay as they are: they are not
// scored.
type positive struct{ forecast.Model }

func (p positive) Predict(out []forecast.Prediction) bool {
	if !p.Model.Predict(out) {
		return false
	}
	for i := range out {
		out[i].Mean = max(0, out[i].Mean)
		for l, q := range out[i].Quantiles {
			out[i].Quantiles[l] = max(0, q)
		}
	}
	return true
}

// perDay is how many steps of a series a day has.
func perDay(s trace.Series) int { return int(24 * time.Hour / max(s.Step, time.Second)) }

// phase is a number that differs between series.
func phase(s trace.Series) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key(s)) // a hash takes everything
	return int(h.Sum32() >> 1)
}

func key(s trace.Series) string { return s.Set + "\x00" + s.VM + "\x00" + string(s.Resource) }

// production is the forecaster of the daemon as a Model. It knows that use is not negative, as the daemon does, but not what
// the VM has: in traces use goes beyond that, such as that of Bitbrains' CPUs, whose clocks go beyond the MHz provisioned.
type production struct {
	series *forecast.Series
	step   int64
}

func newProduction(s trace.Series) forecast.Model {
	return &production{series: forecast.New(forecast.Options{Period: perDay(s), Positive: true})}
}

func (p *production) Name() string { return "mixture" }

func (p *production) Observe(y float64) {
	p.step++
	_ = p.series.Observe(p.step, y, false) // refuses steps of the past only
}

func (p *production) Predict(out []forecast.Prediction) bool { return p.series.Predict(out) }
