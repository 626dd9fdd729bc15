package arima

import "math"

// descent minimises an objective by quasi-Newton steps: the directions are gonum's BFGS, the gradient is by forward
// differences (the objective costs microseconds and is smooth to 1e-15), the line search backtracks. It is driven
// here and not by optimize.Minimize, which starts goroutines and reads the clock.
type descent struct {
	direction
	dir, trial, gr []float64
}

const (
	difference = 1e-6 // step of the gradient, in partial-autocorrelation (atanh) space
	longest    = 1.5  // greatest change of a coordinate in one step: beyond, tanh is flat and the way back is lost
	outermost  = 11.5 // tanh of it is 1 - 2e-10
)

// minimise moves u to a minimum of f, spending at most limit evaluations, until a step gains less than tol. It returns
// the value there. With polish, differences are taken on both sides once those on one side find no more. known is f(u); NaN if
// it is not known. Either way it counts as an evaluation.
func (d *descent) minimise(f func(u []float64) float64, u []float64, known float64, limit int, tol float64, polish bool) (value float64, converged bool) {
	n := len(u)
	if value = known; math.IsNaN(known) {
		value = f(u)
	}
	spent := 1
	if n == 0 || math.IsInf(value, 1) {
		return value, n == 0
	}
	d.dir, d.trial, d.gr = grow(d.dir, n), grow(d.trial, n), grow(d.gr, n)
	spent += d.forward(f, u, value)
	central, fresh, small := false, true, 0
	d.begin(u, value, d.gr, d.dir)
	// refine goes over to differences on both sides, the first time.
	refine := func() bool {
		if central || !polish {
			return false
		}
		central, fresh = true, true
		spent += d.central(f, u)
		d.begin(u, value, d.gr, d.dir)
		return true
	}
	// restart forgets the curvature, or refines where there is none to forget.
	restart := func() bool {
		if fresh {
			return refine()
		}
		d.begin(u, value, d.gr, d.dir)
		fresh = true
		return true
	}
	for spent < limit {
		slope, highest, steep := d.slope()
		if steep < 1e-8 {
			if !refine() {
				return value, true
			}
			continue
		}
		if !(slope < 0) || math.IsInf(highest, 0) {
			if !restart() {
				return value, true
			}
			continue
		}
		step := 1.0
		if fresh {
			step = min(1, 0.5/highest)
		}
		step = min(step, longest/highest)
		next, evaluations, accepted := d.backtrack(f, u, line{value, slope, highest, step}, limit-spent)
		spent += evaluations
		if !accepted {
			if spent >= limit {
				return value, false
			}
			if !restart() {
				return value, true
			}
			continue
		}
		gain := value - next
		curvature := 0.0
		for i := range u {
			curvature -= (d.trial[i] - u[i]) * d.gr[i]
		}
		// curvature becomes s·(g' - g): s·g' is added below.
		copy(d.dir, d.trial)
		for i := range u {
			d.dir[i] -= u[i]
		}
		copy(u, d.trial)
		value = next
		if gain < tol {
			if small++; small == 2 {
				if !refine() {
					return value, true
				}
				small = 0
				continue
			}
		} else {
			small = 0
		}
		if central {
			spent += d.central(f, u)
		} else {
			spent += d.forward(f, u, value)
		}
		for i := range u {
			curvature += d.dir[i] * d.gr[i]
		}
		if fresh = !(curvature > 1e-16); fresh {
			d.begin(u, value, d.gr, d.dir)
		} else {
			d.next(u, value, d.gr, d.dir)
		}
	}
	return value, false
}

// forward sets gr to the gradient at u, where the objective is value, by differences on one side. It returns how many evaluations
// that took.
func (d *descent) forward(f func(u []float64) float64, u []float64, value float64) int {
	copy(d.trial, u)
	for i := range u {
		h := difference
		if u[i] > 0 { // away from the edge
			h = -difference
		}
		d.trial[i] = u[i] + h
		d.gr[i] = (f(d.trial) - value) / h
		d.trial[i] = u[i]
		if math.IsNaN(d.gr[i]) || math.IsInf(d.gr[i], 0) {
			d.gr[i] = 0
		}
	}
	return len(u)
}

// central is forward with differences on both sides.
func (d *descent) central(f func(u []float64) float64, u []float64) int {
	copy(d.trial, u)
	for i := range u {
		d.trial[i] = u[i] + 100*difference
		above := f(d.trial)
		d.trial[i] = u[i] - 100*difference
		d.gr[i] = (above - f(d.trial)) / (200 * difference)
		d.trial[i] = u[i]
		if math.IsNaN(d.gr[i]) || math.IsInf(d.gr[i], 0) {
			d.gr[i] = 0
		}
	}
	return 2 * len(u)
}

// slope is the derivative in the direction, the greatest coordinate of the direction and the greatest of the gradient.
func (d *descent) slope() (slope, highest, steep float64) {
	for i, g := range d.gr {
		slope += g * d.dir[i]
		highest = max(highest, math.Abs(d.dir[i]))
		steep = max(steep, math.Abs(g))
	}
	return slope, highest, steep
}

// line is a search along the direction: the objective where it begins and its slope there, the greatest part of the direction,
// and the first step.
type line struct{ value, slope, highest, step float64 }

// backtrack is the line search: it shortens the step in the direction until the objective falls enough (Armijo's rule), spending
// at most limit evaluations. trial is where it ends, next the objective there.
func (d *descent) backtrack(f func(u []float64) float64, u []float64, l line, limit int) (next float64, spent int, accepted bool) {
	for range 25 {
		for i := range u {
			d.trial[i] = min(max(u[i]+l.step*d.dir[i], -outermost), outermost)
		}
		next = f(d.trial)
		if spent++; next <= l.value+1e-4*l.step*l.slope {
			return next, spent, true
		}
		if spent >= limit || l.step*l.highest < 1e-9 {
			break
		}
		// The minimum of the parabola through what is known, within reason.
		shrink := 0.5
		if !math.IsInf(next, 1) {
			shrink = -l.step * l.slope / (2 * (next - l.value - l.step*l.slope))
		}
		l.step *= min(max(shrink, 0.1), 0.5)
	}
	return next, spent, false
}
