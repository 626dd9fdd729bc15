package main

import (
	"hash/fnv"
	"io"
	"time"

	"evenkeel/forecast"
	"evenkeel/trace"
)

// forecaster is a kind of model that can be scored.
type forecaster struct {
	name  string
	usage string
	make  func(trace.Series) forecast.Model
}

// forecasters are all kinds, the simple ones first.
var forecasters = []forecaster{
	{"last", "what was measured last",
		func(trace.Series) forecast.Model { return forecast.NewLast() }},
	{"peak", "the peak of the latest 60 values",
		func(trace.Series) forecast.Model { return forecast.NewPeak(forecast.PeakWindow) }},
	{"histogram", "percentiles of the past that fades with a half-life of a day",
		func(s trace.Series) forecast.Model { return forecast.NewHistogram(float64(perDay(s))) }},
	{"smooth", "exponential smoothing, with and without a trend",
		func(trace.Series) forecast.Model { return forecast.NewSmooth() }},
	{"arima", "ARIMA, its order chosen by AIC",
		func(s trace.Series) forecast.Model { return forecast.NewARIMA(phase(s), nil) }},
	{"gp", "Gaussian-process regression on patterns of the past",
		func(s trace.Series) forecast.Model { return forecast.NewGP(phase(s), nil) }},
	{"mixture", "what production states: all that is above and more, weighed by what it was worth, intervals corrected",
		newProduction},
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
	return &production{series: forecast.New(forecast.Options{Period: perDay(s), Phase: phase(s), Positive: true})}
}

func (p *production) Name() string { return "mixture" }

func (p *production) Observe(y float64) {
	p.step++
	_ = p.series.Observe(p.step, y, false) // refuses steps of the past only
}

func (p *production) Predict(out []forecast.Prediction) bool { return p.series.Predict(out) }
