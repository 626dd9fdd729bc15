package fitted

import (
	"math"

	"evenkeel/sim/arima"
)

const arimaWindow = 200 // values that it is fitted to and filtered from

// arimaBounds of the search, which goes by AICc: by the AIC of the paper short windows get too many coefficients.
var arimaBounds = arima.Bounds{P: 3, Q: 2, D: -1, Models: 10}

type arimaSpace struct{ arima.Fitter }

// arimaModel is structure and coefficients. Its state is filtered out of the window each time (some microseconds).
type arimaModel struct {
	spec   arima.Spec
	params arima.Params
	fitted bool
}

func (*arimaModel) name() string { return "arima" }

func (f *arimaModel) fit(values []float64, w *Workspace) bool {
	bounds := arimaBounds
	if f.fitted {
		// From where it was, if its coefficients fit at all any more.
		if m, err := arima.At(f.spec, f.params, values, nil); err == nil {
			bounds.From = m
		}
	}
	found, err := w.arima.Search(values, bounds, arima.Options{Evaluations: 200, Tolerance: 1e-6, Starts: 1})
	if err != nil || !sound(found.Params) {
		return false
	}
	f.spec, f.params, f.fitted = found.Spec, found.Params, true
	return true
}

func sound(p arima.Params) bool {
	ok := math.Abs(p.Mean) <= math.MaxFloat32 && p.Sigma2 >= 0 && p.Sigma2 <= math.MaxFloat32
	for _, v := range p.AR {
		ok = ok && math.Abs(v) <= math.MaxFloat32
	}
	for _, v := range p.MA {
		ok = ok && math.Abs(v) <= math.MaxFloat32
	}
	return ok
}

func (f *arimaModel) forecast(values []float64, _ *Workspace, mean, variance []float64) bool {
	m, err := arima.At(f.spec, f.params, values, nil)
	return err == nil && m.Forecast(mean, variance) == nil
}

// NewARIMA is the model that the paper compares: ARIMA(p,d,q) searched by an information criterion, filtered with each of the
// latest 200 values. A nil w is a workspace of its own.
func NewARIMA(phase int, w *Workspace) *Model { return newModel(&arimaModel{}, arimaWindow, phase, w) }
