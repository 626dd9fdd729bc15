package forecast

import "evenkeel/forecast/gp"

const (
	gpWindow    = 120 // values that patterns are taken from: twice as many as are needed without gaps
	maxGPHypers = 8

	// freshAlone and freshMixed are the steps between fits of a model that is used alone, and of one within a mixture. A mixture
	// learns and weighs the errors of old parameters, so that fresh ones make no measurable difference there.
	freshAlone = 10
	freshMixed = 60
)

// gpFit is what one series keeps of its GP: hyper-parameters. All else is computed from the window each time.
type gpFit struct {
	schedule
	hyper  [maxGPHypers]float64
	count  int
	fitted bool
}

// newGPFit searches first after 40 values, then every so many steps.
func newGPFit(phase, fresh int) *gpFit {
	return &gpFit{schedule: schedule{phase: phase + 7, fresh: fresh, retry: 15, minMeasured: 40}}
}

func (f *gpFit) name() string { return "gp" }

func (f *gpFit) observe(h *history, w *Workspace) {
	if !h.measured(0) || !f.due(h.n, h.seen, f.fitted) { // nothing new is nothing to fit to, however long a gap
		return
	}
	w.sample = h.span(w.sample, gpWindow)
	var start gp.Hyper
	effort := gp.Cold
	if f.fitted {
		start, effort = f.hyper[:f.count], gp.Warm
	}
	found, _, err := w.gp.Fit(w.sample, start, effort)
	if err != nil || len(found) > maxGPHypers {
		return
	}
	for _, v := range found {
		if !countable(v) {
			return
		}
	}
	f.count = copy(f.hyper[:], found)
	f.fitted = true
}

func (f *gpFit) forecast(h *history, w *Workspace, mean, variance []float64) bool {
	if !f.fitted || f.count != w.gp.Hypers() {
		return false
	}
	w.sample = h.span(w.sample, gpWindow)
	return w.gp.Forecast(w.sample, f.hyper[:f.count], mean, variance) == nil && finite(mean, variance)
}

func (f *gpFit) archive(a *archive) {
	a.flag(&f.fitted)
	a.count(&f.count, maxGPHypers)
	a.floats(f.hyper[:])
}

// NewGP is Pace's second Model: Gaussian-process regression on history patterns. It looks at the latest patterns only; its
// hyper-parameters are searched at steps shifted by phase. A nil w is a workspace of its own.
func NewGP(phase int, w *Workspace) *Fitted { return newFitted(newGPFit(phase, freshAlone), w) }
