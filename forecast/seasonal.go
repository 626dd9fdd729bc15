package forecast

// parts of a day that seasonal keeps a value for.
const parts = 288

// seasonal forecasts that at this time of the day use is what it was on the days before, the latest counting most, and that
// the present difference from that fades as earlier ones did. It forecasts from the second day on.
type seasonal struct {
	period   int // steps of a day
	day      [parts]float32
	base     float64 // what it said of the newest step, before it saw it
	off      float64 // by which the newest value differed
	off2     float64 // decayed sum of squares of the one before
	product  float64 // and of products of both
	errors   residuals
	complete bool
}

const (
	seasonalRate   = 0.5  // of a day's value in what is kept
	seasonalForget = 0.99 // of how differences fade
)

func newSeasonal(period int) *seasonal { return &seasonal{period: period, errors: newResiduals()} }

func (e *seasonal) name() string { return "seasonal" }

func (e *seasonal) part(t int) int { return t % e.period * parts / e.period }

func (e *seasonal) observe(h *history, _ *Workspace) {
	t, y := h.n-1, h.at(0)
	i := e.part(t)
	d := &e.day[i]
	if t < e.period {
		if t == 0 || e.part(t-1) != i {
			*d = float32(y)
		} else {
			*d += (float32(y) - *d) / 2
		}
		return
	}
	was := e.off
	e.base = float64(*d)
	e.off = y - e.base
	if !h.measured(0) {
		return
	}
	e.errors.learn(t, y)
	if e.complete {
		e.off2 = seasonalForget*e.off2 + was*was
		e.product = seasonalForget*e.product + was*e.off
	}
	e.complete = true
	share := seasonalRate * float64(parts) / float64(max(e.period, parts))
	*d += float32(share * e.off)
}

func (e *seasonal) predict(h *history, w *Workspace, out *grid) bool {
	if !e.complete {
		return false
	}
	var fade float64
	if e.off2 > 0 {
		fade = max(0, min(1, e.product/e.off2))
	}
	off := e.off
	for s := range Horizon {
		off *= fade
		w.mean[s] = float64(e.day[e.part(h.n+s)]) + off
	}
	e.errors.spread(h.n, w.mean, out)
	return true
}

func (e *seasonal) archive(a *archive) {
	a.singles(e.day[:], false)
	a.float(&e.base)
	a.float(&e.off)
	a.float(&e.off2)
	a.float(&e.product)
	a.flag(&e.complete)
	e.errors.archive(a)
}

func (e *seasonal) lose() { e.errors.lose() }
