package fitted

import (
	"math"

	"evenkeel/forecast"
)

// Workspace is scratch memory for models. Any number may share one, but not two goroutines. It carries nothing from one call to
// the next.
type Workspace struct {
	arima arimaSpace
	gp    gpSpace
}

// NewWorkspace returns scratch memory.
func NewWorkspace() *Workspace { return &Workspace{gp: newGPSpace()} }

// kind is what one series keeps of a model that is fitted to a window now and then.
type kind interface {
	name() string
	// fit takes the latest values, oldest first, NaN where none was measured; false leaves the model as it was.
	fit(values []float64, w *Workspace) bool
	// forecast fills mean and variance, and says whether it could.
	forecast(values []float64, w *Workspace, mean, variance []float64) bool
}

// Model implements forecast.Model: it is fitted to the latest values, seldom, and predicts normally. See NewARIMA and NewGP.
type Model struct {
	kind           kind
	w              *Workspace
	values         []float64 // the latest, oldest first; NaN: not measured. The first was
	window         int       // values that are kept at most
	n, seen        int       // values that came, and of these measured
	phase          int       // any number: it moves the steps at which the model is fitted, so that many are not fitted in one step
	fitted         bool
	mean, variance []float64
}

const (
	largest     = 1e17 // absolute value that counts as measured
	minMeasured = 40   // values before the first fit
	fresh       = 10   // steps from a fit that succeeded to the next
	retry       = 15   // steps between tries until one has
)

func newModel(k kind, window, phase int, w *Workspace) *Model {
	if w == nil {
		w = NewWorkspace()
	}
	return &Model{kind: k, w: w, window: window, phase: phase}
}

// Name implements forecast.Model.
func (m *Model) Name() string { return m.kind.name() }

// Observe implements forecast.Model. Nothing new is nothing to fit to, however long a gap.
func (m *Model) Observe(y float64) {
	m.n++
	measured := math.Abs(y) <= largest
	if measured {
		m.seen++
	} else {
		y = math.NaN()
	}
	if len(m.values) == m.window {
		copy(m.values, m.values[1:])
		m.values = m.values[:m.window-1]
	}
	m.values = append(m.values, y)
	if measured && m.due() {
		m.fitted = m.kind.fit(m.known(), m.w) || m.fitted
	}
}

// known are the values from the first that was measured on.
func (m *Model) known() []float64 {
	for i, y := range m.values {
		if y == y {
			return m.values[i:]
		}
	}
	return nil
}

func (m *Model) due() bool {
	every := retry
	if m.fitted {
		every = fresh
	}
	return m.seen >= minMeasured && (m.n+m.phase)%every == 0
}

// Predict implements forecast.Model.
func (m *Model) Predict(out []forecast.Prediction) bool {
	m.mean, m.variance = resize(m.mean, len(out)), resize(m.variance, len(out))
	if !m.fitted || !m.kind.forecast(m.known(), m.w, m.mean, m.variance) {
		return false
	}
	for i := range out {
		if !(math.Abs(m.mean[i]) <= largest) || !(m.variance[i] >= 0) || m.variance[i] > math.MaxFloat32 {
			return false
		}
	}
	for i := range out {
		out[i] = forecast.Normal(m.mean[i], m.variance[i])
	}
	return true
}

func resize(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}
