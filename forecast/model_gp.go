package forecast

import "evenkeel/forecast/gp"

const (
	gpWindow     = 120 // values that patterns are taken from: twice as many as are needed without gaps
	gpMostHypers = 8

	// Steps between fits of a model that stands alone, and of one within a mixture: there errors of old parameters are
	// learned and weighed, so that fresh ones make no difference that could be measured.
	freshAlone = 10
	freshMixed = 60
)

// gpFit is what one series keeps of its GP: hyper-parameters. All else is computed from the window each time.
type gpFit struct {
	schedule
	hyper  [gpMostHypers]float64
	count  int
	fitted bool
}

// newGPFit searches first after 40 values, then every so many steps.
func newGPFit(phase, fresh int) gpFit {
	return gpFit{schedule: schedule{phase: phase + 7, fresh: fresh, retry: 15, least: 40}}
}

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
	if err != nil || len(found) > gpMostHypers {
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
	a.count(&f.count, gpMostHypers)
	a.floats(f.hyper[:])
}

// gpExpert is the GP within a mixture: with the quantiles that its errors had in place of the normal ones.
type gpExpert struct {
	fit    gpFit
	errors residuals
}

func (e *gpExpert) name() string { return "gp" }

func (e *gpExpert) observe(h *history, w *Workspace) {
	if h.measured(0) {
		e.errors.learn(h.n-1, h.at(0))
	}
	e.fit.observe(h, w)
}

func (e *gpExpert) predict(h *history, w *Workspace, out *grid) bool {
	if !e.fit.forecast(h, w, w.mean, w.spread) {
		return false
	}
	roots(w.spread)
	e.errors.spread(h.n, w.mean, w.spread, out)
	return true
}

func (e *gpExpert) archive(a *archive) {
	e.fit.archive(a)
	e.errors.archive(a)
}

// GP is Pace's second Model: Gaussian-process regression on history patterns, predicting normally. It looks at the
// latest patterns only; its hyper-parameters are searched seldom.
type GP struct {
	h              history
	w              *Workspace
	fit            gpFit
	mean, variance []float64
}

// NewGP is a model whose hyper-parameters are searched at steps shifted by phase. A nil w is a workspace of its own.
func NewGP(phase int, w *Workspace) *GP {
	if w == nil {
		w = NewWorkspace()
	}
	return &GP{w: w, fit: newGPFit(phase, freshAlone)}
}

// Name implements Model.
func (m *GP) Name() string { return "gp" }

// Observe implements Model.
func (m *GP) Observe(y float64) {
	m.h.observe(y)
	m.fit.observe(&m.h, m.w)
}

// Predict implements Model.
func (m *GP) Predict(out []Prediction) bool {
	m.mean, m.variance = resize(m.mean, len(out)), resize(m.variance, len(out))
	if !m.fit.forecast(&m.h, m.w, m.mean, m.variance) {
		return false
	}
	for i := range out {
		out[i] = Normal(m.mean[i], m.variance[i])
	}
	return true
}

func (e *gpExpert) lose() { e.errors.lose() }
