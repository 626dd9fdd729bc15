package forecast

import (
	"math"

	"evenkeel/forecast/arima"
)

const (
	arimaWindow = 200 // values that it is fitted to and filtered from
	maxARIMAP   = 3
	maxARIMAQ   = 2
)

// arimaBounds of the search, which goes by AICc: by the AIC of the paper short windows get too many coefficients.
var arimaBounds = arima.Bounds{P: maxARIMAP, Q: maxARIMAQ, D: -1, Models: 10}

// arimaFit is what one series keeps of its ARIMA model: structure and coefficients. Its state is filtered out of the
// window each time (some microseconds), and so is the same after a restart as without.
type arimaFit struct {
	schedule
	spec   arima.Spec
	params arima.Params
	fitted bool
}

// newArimaFit fits first after 40 values, then every so many steps.
func newArimaFit(phase, fresh int) *arimaFit {
	return &arimaFit{schedule: schedule{phase: phase, fresh: fresh, retry: 15, minMeasured: 40}}
}

func (f *arimaFit) name() string { return "arima" }

// observe implements fit. A window that is refused leaves the model as it was.
func (f *arimaFit) observe(h *history, w *Workspace) {
	if !h.measured(0) || !f.due(h.n, h.seen, f.fitted) { // nothing new is nothing to fit to, however long a gap
		return
	}
	w.sample = h.span(w.sample, arimaWindow)
	o := arima.Options{Evaluations: 200, Tolerance: 1e-6, Starts: 1}
	bounds := arimaBounds
	if f.fitted {
		// From where it was, if its coefficients fit at all any more.
		if m, err := arima.At(f.spec, f.params, w.sample, nil); err == nil {
			bounds.From = m
		}
	}
	found, err := w.arima.Search(w.sample, bounds, o)
	if err != nil || !sound(found.Params) {
		return
	}
	f.spec, f.params, f.fitted = found.Spec, found.Params, true
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

func (f *arimaFit) forecast(h *history, w *Workspace, mean, variance []float64) bool {
	if !f.fitted {
		return false
	}
	w.sample = h.span(w.sample, arimaWindow)
	m, err := arima.At(f.spec, f.params, w.sample, nil)
	if err != nil {
		return false
	}
	return m.Forecast(mean, variance) == nil && finite(mean, variance)
}

// finite says whether all means are values and all variances those of something.
func finite(mean, variance []float64) bool {
	for i := range mean {
		if !countable(mean[i]) || !(variance[i] >= 0) || variance[i] > math.MaxFloat32 {
			return false
		}
	}
	return true
}

func (f *arimaFit) archive(a *archive) {
	a.flag(&f.fitted)
	a.count(&f.spec.P, maxARIMAP)
	a.count(&f.spec.D, 2)
	a.count(&f.spec.Q, maxARIMAQ)
	a.flag(&f.spec.Mean)
	if a.reading {
		f.params.AR, f.params.MA = make([]float64, f.spec.P), make([]float64, f.spec.Q)
	}
	a.floats(f.params.AR)
	a.floats(f.params.MA)
	a.float(&f.params.Mean)
	a.float(&f.params.Sigma2)
}

// NewARIMA is the Model that the paper compares: ARIMA(p,d,q) searched by an information criterion, filtered with each of the
// latest 200 values. It is fitted at steps shifted by phase. A nil w is a workspace of its own.
func NewARIMA(phase int, w *Workspace) *Fitted { return newFitted(newArimaFit(phase, freshAlone), w) }
