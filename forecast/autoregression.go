package forecast

import "math"

const (
	arOrder  = 5
	arWidth  = arOrder + 1
	arForget = 0.998 // a value of 350 steps ago counts half
)

// autoregression is an AR(5) by recursive least squares, updated with every value: what ARIMA finds out by a search
// now and then it follows all the time. Rolled on for further steps; its errors are learned.
type autoregression struct {
	level  float64 // slow mean
	scale  float64 // slow mean absolute deviation from it, the unit of the regression
	weight [arWidth]float64
	cov    [arWidth][arWidth]float64
	count  int
	errors residuals
}

func newAutoregression() *autoregression {
	e := &autoregression{errors: newResiduals()}
	e.restart()
	return e
}

func (e *autoregression) restart() {
	e.weight, e.cov = [arWidth]float64{1: 0.9}, [arWidth][arWidth]float64{}
	for i := range arWidth {
		e.cov[i][i] = 10
	}
}

func (e *autoregression) name() string { return "ar" }

func (e *autoregression) observe(h *history, _ *Workspace) {
	y := h.at(0)
	if h.n == 1 {
		e.level = y
	}
	if !h.measured(0) {
		return
	}
	e.errors.learn(h.n-1, y)
	rate := max(0.01, 1/float64(h.seen+1))
	e.level += rate * (y - e.level)
	e.scale += rate * (math.Abs(y-e.level) - e.scale)
	if h.size() < arWidth+1 || !(e.scale > 0) {
		return
	}
	// Values count up to 8 units from the level: one outlier must not be the whole regression.
	var x, k [arWidth]float64
	x[0] = 1
	for i := 1; i < arWidth; i++ {
		x[i] = within((h.at(i)-e.level)/e.scale, 8)
	}
	miss := within((y-e.level)/e.scale, 8)
	var xcx float64
	for i := range arWidth {
		for j := range arWidth {
			k[i] += e.cov[i][j] * x[j]
		}
		xcx += k[i] * x[i]
		miss -= e.weight[i] * x[i]
	}
	gain := 1 / (arForget + xcx)
	var trace float64
	for i := range arWidth {
		e.weight[i] += k[i] * gain * miss
		for j := range arWidth {
			e.cov[i][j] = (e.cov[i][j] - k[i]*k[j]*gain) / arForget
		}
		trace += e.cov[i][i]
	}
	// What a quiet series says nothing of grows without end; and rounding may undo what keeps the covariance positive.
	const top = 1e4
	for i := range arWidth {
		if !(e.cov[i][i] > 0) || !(trace < math.MaxFloat32) || math.Abs(e.weight[i]) > 1e3 {
			e.restart()
			break
		}
	}
	if trace > top {
		for i := range arWidth {
			for j := range arWidth {
				e.cov[i][j] *= top / trace
			}
		}
	}
	e.count = min(e.count+1, 1000)
}

func (e *autoregression) predict(h *history, w *Workspace, out *grid) bool {
	if e.count < 8 || h.size() < arOrder || !(e.scale > 0) {
		return false
	}
	var lag [arOrder + Horizon]float64
	for i := range arOrder {
		lag[arOrder-1-i] = within((h.at(i)-e.level)/e.scale, 20)
	}
	for s := range Horizon {
		y := e.weight[0]
		for i := 1; i <= arOrder; i++ {
			y += e.weight[i] * lag[arOrder+s-i]
		}
		lag[arOrder+s] = within(y, 20)
		w.mean[s] = e.level + e.scale*lag[arOrder+s]
	}
	e.errors.spread(h.n, w.mean, out)
	return true
}

func (e *autoregression) archive(a *archive) {
	a.float(&e.level)
	a.float(&e.scale)
	a.floats(e.weight[:])
	for i := range e.cov {
		a.floats(e.cov[i][:])
	}
	a.count(&e.count, 1000)
	e.errors.archive(a)
}

// within is x, or the bound that it is beyond.
func within(x, bound float64) float64 { return max(-bound, min(bound, x)) }

func (e *autoregression) lose() { e.errors.lose() }
