package forecast

import (
	"math"

	"evenkeel/forecast/ets"
)

// Smooth is exponential smoothing (forecast/ets): the level alone, ETS(A,N,N), or with a damped trend, ETS(A,Ad,N),
// whichever has the lesser AICc on the latest 120 values when both are fitted: first after 20 values, then after every 60. Between fits
// the states go on value by value. Predictions are normal, with the models' own variances (their intervals never narrow
// with the horizon), in which the variance of errors is a running mean of their squares over 60 values, so
// that it follows a series that calms down or wakes up. After a gap of g steps a prediction of h steps is one of g+h.
//
// 4.5 kB; a step costs two updates, every 60th a fit of the two models besides, started from the last.
type Smooth struct {
	values [smoothWindow]float64 // a ring, NaN where not measured
	next   int
	seen   int // values, gaps not counted
	due    int // steps to the next fit
	kinds  [2]smoothed
	chosen int
	fitted bool
	window []float64 // what is fitted, in order
	mean   []float64 // of forecasts, as long as the longest asked for
	spread []float64
}

// smoothed is one of the models that Smooth chooses from.
type smoothed struct {
	fitter *ets.Fitter
	model  *ets.Model
	error2 float64 // running mean of squared errors
	fits   bool
}

const (
	smoothWindow = 120
	smoothRefit  = 60
	smoothFirst  = 20
)

// smoothSpecs are the kinds that Smooth chooses from.
var smoothSpecs = [2]ets.Spec{
	{Error: ets.Additive, Trend: ets.None, Season: ets.None},
	{Error: ets.Additive, Trend: ets.Additive, Damped: true, Season: ets.None},
}

// NewSmooth is a Smooth that has seen nothing.
func NewSmooth() *Smooth {
	s := &Smooth{window: make([]float64, 0, smoothWindow)}
	for i := range s.values {
		s.values[i] = math.NaN()
	}
	for i, spec := range smoothSpecs {
		k := &s.kinds[i]
		k.fitter, _ = ets.NewFitter(spec) // both are valid
		k.model, _ = ets.New(spec, ets.Params{Alpha: 0.3, Beta: 0.05, Phi: 0.9}, ets.State{})
	}
	return s
}

// Name implements Model.
func (s *Smooth) Name() string { return "smooth" }

// Observe implements Model. Magnitudes above 1e100 count as not measured.
func (s *Smooth) Observe(y float64) {
	y = usable(y)
	s.values[s.next] = y
	s.next = (s.next + 1) % smoothWindow
	if !math.IsNaN(y) {
		s.seen++
	}
	if s.fitted {
		for i := range s.kinds {
			k := &s.kinds[i]
			if _, e := k.model.Update(y); k.fits && !math.IsNaN(e) {
				k.error2 += (e*e - k.error2) / smoothRefit
			}
		}
	}
	if s.due--; s.seen >= smoothFirst && s.due <= 0 && !math.IsNaN(y) {
		s.fit()
		s.due = smoothRefit
	}
}

// fit fits both models to the window and chooses one. Where neither can be fitted the last fits stand.
func (s *Smooth) fit() {
	s.window = s.window[:0]
	for i := range s.values {
		if y := s.values[(s.next+i)%smoothWindow]; len(s.window) > 0 || !math.IsNaN(y) {
			s.window = append(s.window, y)
		}
	}
	least := math.Inf(1)
	for i := range s.kinds {
		k := &s.kinds[i]
		refit := k.fitter.Refit
		if !k.fits {
			refit = k.fitter.Fit
		}
		if refit(k.model, s.window) != nil {
			continue
		}
		if !k.fits {
			k.fits, k.error2 = true, k.model.Sigma2()
		}
		if c := k.model.AICc(); c < least || math.IsInf(c, -1) && !s.fitted {
			least, s.chosen, s.fitted = c, i, true
		}
	}
}

// Predict implements Model.
func (s *Smooth) Predict(out []Prediction) bool {
	if !s.fitted {
		return false
	}
	for len(s.mean) < len(out) {
		s.mean, s.spread = append(s.mean, 0), append(s.spread, 0)
	}
	k := &s.kinds[s.chosen]
	mean, spread := s.mean[:len(out)], s.spread[:len(out)]
	k.model.Forecast(mean, spread)
	factor := 0.0
	if v := k.model.Sigma2(); v > 0 {
		factor = k.error2 / v
	}
	for h := range out {
		out[h] = Normal(mean[h], spread[h]*factor)
	}
	return true
}
