package forecast

import "math"

// fit is what one series keeps of a model that is fitted to a window now and then: ARIMA, or a Gaussian process.
type fit interface {
	name() string
	// observe fits again if it is time to, after the newest value of h.
	observe(h *history, w *Workspace)
	// forecast fills mean and variance, and says whether it could.
	forecast(h *history, w *Workspace, mean, variance []float64) bool
	archive(a *archive)
}

// Fitted is a Model that is fitted to the latest values, seldom, and predicts normally: see NewARIMA and NewGP.
type Fitted struct {
	h              history
	w              *Workspace
	fit            fit
	mean, variance []float64
}

func newFitted(f fit, w *Workspace) *Fitted {
	if w == nil {
		w = NewWorkspace()
	}
	return &Fitted{w: w, fit: f}
}

// Name implements Model.
func (m *Fitted) Name() string { return m.fit.name() }

// Observe implements Model.
func (m *Fitted) Observe(y float64) {
	m.h.observe(y)
	m.fit.observe(&m.h, m.w)
}

// Predict implements Model.
func (m *Fitted) Predict(out []Prediction) bool {
	m.mean, m.variance = resize(m.mean, len(out)), resize(m.variance, len(out))
	if !m.fit.forecast(&m.h, m.w, m.mean, m.variance) {
		return false
	}
	for i := range out {
		out[i] = Normal(m.mean[i], m.variance[i])
	}
	return true
}

func resize(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}

func roots(x []float64) {
	for i := range x {
		x[i] = math.Sqrt(x[i])
	}
}

// fittedExpert is a fitted model within a mixture: with the quantiles that its errors had in place of the normal ones.
type fittedExpert struct {
	fit    fit
	errors residuals
}

func (e *fittedExpert) name() string { return e.fit.name() }

func (e *fittedExpert) observe(h *history, w *Workspace) {
	if h.measured(0) {
		e.errors.learn(h.n-1, h.at(0))
	}
	e.fit.observe(h, w)
}

func (e *fittedExpert) predict(h *history, w *Workspace, out *grid) bool {
	if !e.fit.forecast(h, w, w.mean, w.spread) {
		return false
	}
	roots(w.spread)
	e.errors.spread(h.n, w.mean, w.spread, out)
	return true
}

func (e *fittedExpert) archive(a *archive) {
	e.fit.archive(a)
	e.errors.archive(a)
}

func (e *fittedExpert) lose() { e.errors.lose() }
