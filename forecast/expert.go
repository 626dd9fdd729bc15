package forecast

import "slices"

// Horizon is how many steps ahead a mixture predicts by what it learned of its errors at each of them. Further steps
// follow from the last: see Mixture.Predict.
const Horizon = 10

// grid is what is said of the next Horizon values: quantiles at Levels, the very next value first.
type grid [Horizon]quantiles

// expert is one opinion within a mixture. Experts read the history that all of them share and keep next to nothing
// themselves: the memory of a series is counted in kilobytes.
type expert interface {
	name() string
	// observe follows the newest value of h, measured or filled in.
	observe(h *history, w *Workspace)
	// predict changes nothing but scratch memory and out, apart from what it remembers of what it said.
	predict(h *history, w *Workspace, out *grid) bool
	archive(a *archive)
}

// Workspace is scratch memory for series. Any number of series may share one, but not two goroutines. It carries
// nothing from one call to the next.
type Workspace struct {
	values []float64
	near   []neighbour
	grids  []grid
	able   []bool
	share  shares
	mean   []float64
}

// NewWorkspace returns scratch memory.
func NewWorkspace() *Workspace { return &Workspace{mean: make([]float64, Horizon)} }

// recent forecasts that the next values are distributed as the latest n were, however far ahead. For use that jumps about a
// level no model is better. Experts with several n cover several speeds of change.
type recent struct{ n int }

func (e recent) name() string {
	switch e.n {
	case 8:
		return "recent-8"
	case 24:
		return "recent-24"
	case 96:
		return "recent-96"
	}
	return "recent"
}
func (e recent) observe(*history, *Workspace) {}
func (e recent) archive(*archive)             {}
func (e recent) predict(h *history, w *Workspace, out *grid) bool {
	w.values = h.latest(w.values, e.n)
	if len(w.values) < 3 {
		return false
	}
	slices.Sort(w.values)
	out[0].ofSample(w.values)
	for i := 1; i < Horizon; i++ {
		out[i] = out[0]
	}
	return true
}

// walk forecasts that the value stays where it is and moves within s steps as it did within s steps before. It is the model
// "last value" with the distribution of its errors. A mixture is of use only if it is better than walk.
type walk struct{ n int }

func (e walk) name() string                 { return "walk" }
func (e walk) observe(*history, *Workspace) {}
func (e walk) archive(*archive)             {}
func (e walk) predict(h *history, w *Workspace, out *grid) bool {
	n := min(e.n, h.size())
	last := h.at(0)
	for s := range Horizon {
		v := w.values[:0]
		for k := 0; k+s+1 < n; k++ {
			if h.measured(k) && h.measured(k+s+1) {
				v = append(v, h.at(k)-h.at(k+s+1))
			}
		}
		w.values = v
		if len(v) < 3 {
			if s == 0 {
				return false
			}
			out[s] = out[s-1]
			continue
		}
		slices.Sort(v)
		out[s].ofSample(v)
		for i := range out[s] {
			out[s][i] += last
		}
	}
	return true
}

// clip moves quantiles beyond a range to its ends.
func (g *grid) clip(low, high float64) {
	for h := range g {
		for l, q := range g[h] {
			g[h][l] = max(low, min(high, q))
		}
	}
}
