package fitted

import (
	"math"

	"evenkeel/sim/gp"
)

const gpWindow = 120 // values that patterns are taken from: twice as many as are needed without gaps

type gpSpace struct{ *gp.Forecaster }

func newGPSpace() gpSpace {
	f, err := gp.NewForecaster(gp.Default)
	if err != nil { // only constants went in: the package is wrong, not its input
		panic(err)
	}
	return gpSpace{f}
}

// gpModel is hyper-parameters. All else is computed from the window each time.
type gpModel struct{ hyper gp.Hyper }

func (*gpModel) name() string { return "gp" }

func (f *gpModel) fit(values []float64, w *Workspace) bool {
	effort := gp.Cold
	if f.hyper != nil {
		effort = gp.Warm
	}
	found, _, err := w.gp.Fit(values, f.hyper, effort)
	if err != nil {
		return false
	}
	for _, v := range found {
		if !(math.Abs(v) <= largest) {
			return false
		}
	}
	f.hyper = append(f.hyper[:0:0], found...)
	return true
}

func (f *gpModel) forecast(values []float64, w *Workspace, mean, variance []float64) bool {
	return len(f.hyper) == w.gp.Hypers() && w.gp.Forecast(values, f.hyper, mean, variance) == nil
}

// NewGP is Pace's second model: Gaussian-process regression on history patterns. It looks at the latest patterns only. A nil w is
// a workspace of its own.
func NewGP(phase int, w *Workspace) *Model { return newModel(&gpModel{}, gpWindow, phase+7, w) }
