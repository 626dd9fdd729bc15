package baseline

import (
	"math"

	"evenkeel/forecast"
	"evenkeel/sim/ets"
)

// Smooth is exponential smoothing (sim/ets): the level alone, ETS(A,N,N), or with a damped trend, ETS(A,Ad,N),
// whichever has the lesser AICc on the latest 128 values when both are fitted: first after 20 values, then after every 60. Between
// fits the states go on value by value.
//
// Measured use comes in bursts, and the models' own variances, of normal errors, are too wide for its middle and too
// narrow for its ends. So intervals are taken from the errors of what the chosen model said of the latest 128 values,
// 1, 2, ... steps ahead, as Last does; from the models' variances only until 8 errors are known. They never narrow with
// the horizon. After a gap of g steps a prediction of h steps is one of g+h.
//
// 8.4 kB; a step costs two updates, every 60th a fit of the two models besides, started from the last; a prediction
// one sort of at most 127 numbers per horizon.
type Smooth struct {
	track  track
	seen   int // values, gaps not counted
	age    int // steps since the last of them
	due    int // steps to the next fit
	kinds  [2]smoothed
	chosen int
	fitted bool
	means  []float64 // of forecasts, as long as the longest asked for
	spread []float64
}

// smoothed is one of the models that Smooth chooses from.
type smoothed struct {
	fitter *ets.Fitter
	model  *ets.Model
	fits   bool
}

const (
	smoothRefit = 60
	smoothFirst = 20
)

// smoothSpecs are the kinds that Smooth chooses from.
var smoothSpecs = [2]ets.Spec{
	{Error: ets.Additive, Trend: ets.None, Season: ets.None},
	{Error: ets.Additive, Trend: ets.Additive, Damped: true, Season: ets.None},
}

// NewSmooth is a Smooth that has seen nothing.
func NewSmooth() *Smooth {
	s := &Smooth{}
	s.track.values = make([]float64, trackLength)
	s.track.stated = make([]float64, trackLength)
	s.track.growth = make([]float64, trackLength)
	s.track.sorted = make([]float64, 0, trackLength)
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
	if s.fitted {
		for i := range s.kinds {
			s.kinds[i].model.Update(y)
		}
	}
	if s.age++; !math.IsNaN(y) {
		s.seen, s.age = s.seen+1, 0
	}
	place := s.track.next
	s.track.add(y, math.NaN())
	if s.due--; s.seen >= smoothFirst && s.due <= 0 && !math.IsNaN(y) {
		s.fit()
		s.due = smoothRefit
	}
	if s.fitted && s.age == 0 {
		s.track.stated[place], s.track.growth[place] = s.state()
	}
}

// state is the level and the growth of the chosen model.
func (s *Smooth) state() (level, growth float64) {
	m := s.kinds[s.chosen].model
	s.track.damping = m.Params().Phi
	return m.Level()
}

// fit fits both models to the latest values and chooses one. Where neither can be fitted the last fits stand.
func (s *Smooth) fit() {
	t := &s.track
	window := t.sorted[:0]
	for came := t.next - t.n; came < t.next; came++ {
		if y := t.values[came&(trackLength-1)]; len(window) > 0 || !math.IsNaN(y) {
			window = append(window, y)
		}
	}
	lowest := math.Inf(1)
	for i := range s.kinds {
		k := &s.kinds[i]
		fit := k.fitter.Refit
		if !k.fits {
			fit = k.fitter.Fit
		}
		if fit(k.model, window) != nil {
			continue
		}
		k.fits = true
		if c := k.model.AICc(); c < lowest || !s.fitted {
			lowest, s.chosen, s.fitted = c, i, true
		}
	}
}

// Predict implements Model. It cannot where all of the latest 128 values are a gap.
func (s *Smooth) Predict(out []forecast.Prediction) bool {
	if !s.fitted || s.age >= trackLength {
		return false
	}
	for len(s.means) < len(out) {
		s.means, s.spread = append(s.means, 0), append(s.spread, 0)
	}
	means, spread := s.means[:len(out)], s.spread[:len(out)]
	s.kinds[s.chosen].model.Forecast(means, spread)
	var r reach
	for h := range out {
		mean, middle, ok := s.track.widen(&r, h+1+s.age, true)
		if !ok {
			out[h] = forecast.Normal(means[h], spread[h])
			continue
		}
		out[h] = r.around(means[h]+mean, means[h]+middle)
	}
	return true
}
