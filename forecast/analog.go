package forecast

import "slices"

// analog forecasts the values that followed those moments of the past that were most like the present one. It is the
// idea of the GP on history patterns (Pace, eq. 4-6) without the normal distribution: it takes the values that came after
// the nearest patterns as a sample, so that jobs that start on the hour, levels that alternate and mass
// points are kept.
type analog struct {
	length   int  // values of a pattern
	nearest  int  // patterns to take
	relative bool // patterns, and what followed them, count from their own last value: for series without a level
}

// fade is how much less each earlier value of a pattern counts in the squared distance.
const fade = 0.7

type neighbour struct {
	distance float64
	age      int
}

func (e analog) name() string {
	switch {
	case e.relative:
		return "analog-change"
	case e.length == 1:
		return "analog-1"
	}
	return "analog"
}
func (e analog) observe(*history, *Workspace) {}
func (e analog) archive(*archive)             {}

func (e analog) predict(h *history, w *Workspace, out *grid) bool {
	n := h.size()
	candidates := n - e.length
	if candidates < 3*e.length+Horizon {
		return false
	}
	want := min(e.nearest, candidates/3)
	// Up to Horizon-1 of the nearest are too young to have been followed by all that is asked for.
	near, keep := w.near[:0], want+Horizon
	var now [8]float64
	for j := range e.length {
		now[j] = h.at(j)
		if e.relative {
			now[j] -= h.at(0)
		}
	}
	for k := 1; k <= candidates; k++ {
		base := 0.0
		if e.relative {
			base = h.at(k)
		}
		worst := -1.0
		if len(near) == keep {
			worst = near[keep-1].distance
		}
		d, weight := 0.0, 1.0
		for j := range e.length {
			x := now[j] - (h.at(k+j) - base)
			d += weight * x * x
			weight *= fade
			if worst >= 0 && d >= worst {
				break
			}
		}
		if worst >= 0 && d >= worst {
			continue
		}
		if len(near) < keep {
			near = append(near, neighbour{})
		}
		i := len(near) - 1
		for ; i > 0 && near[i-1].distance > d; i-- {
			near[i] = near[i-1]
		}
		near[i] = neighbour{d, k}
	}
	w.near = near
	for s := range Horizon {
		v := w.values[:0]
		for _, c := range near {
			if len(v) == want {
				break
			}
			after := c.age - s - 1
			if after < 0 || !h.measured(after) {
				continue
			}
			x := h.at(after)
			if e.relative {
				x += h.at(0) - h.at(c.age)
			}
			v = append(v, x)
		}
		w.values = v
		if len(v) < 3 {
			return false
		}
		slices.Sort(v)
		out[s].ofSample(v)
	}
	return true
}
