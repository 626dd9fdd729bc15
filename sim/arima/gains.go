package arima

import "math"

// gains are what the Kalman filter does at each step of a series without gaps, in units of sigma2 = 1: the same for
// every column that is filtered, since they depend on the coefficients alone.
type gains struct {
	// Before the gain has converged: root[t] is 1 over the standard deviation of the innovation, step[t*r:] is what one
	// unit of it moves the state by. After it the standard deviation is 1.
	root, step []float64
	unsettled  int     // steps before that
	logdet     float64 // sum of the logarithms of the innovations' variances

	k, w, tw []float64
}

// gainTolerance is how near its limit a gain counts as there. What is neglected is of the order of the arithmetic's own
// error, so that the likelihood stays smooth enough to be differentiated numerically.
const gainTolerance = 1e-15

// reset computes the gains for n steps from the stationary start, by the Chandrasekhar recursions (Morf, Sidhu,
// Kailath 1974; Pearlman 1980): the covariance of the state changes by a matrix of rank 1, w m w', each step, and only
// w and m are carried.
func (g *gains) reset(c *coefs, m *moments, n int) {
	r := len(c.phi)
	g.root, g.step = grow(g.root, n), grow(g.step, n*r)
	g.k, g.w, g.tw = grow(g.k, r), grow(g.w, r), grow(g.tw, r)
	k, w, tw, phi := g.k, g.w, g.tw, c.phi
	f := m.first[0]
	for i := range k {
		k[i] = phi[i] * f
		if i+1 < r {
			k[i] += m.first[i+1]
		}
	}
	copy(w, k)
	scale := -1 / f
	product, logs := 1.0, 0.0
	t := 0
	for ; t < n; t++ {
		var highest float64
		for _, x := range w {
			highest = max(highest, x*x)
		}
		if -scale*highest < gainTolerance && f-1 < 1e-10 { // what is left of f-1 is rounding
			break
		}
		inverse := 1 / f
		g.root[t] = math.Sqrt(inverse)
		step := g.step[t*r : (t+1)*r]
		for i, x := range k {
			step[i] = x * inverse
		}
		product *= f
		if product > 1e150 {
			logs += math.Log(product)
			product = 1
		}
		w0 := w[0]
		for i := 0; i < r-1; i++ {
			tw[i] = phi[i]*w0 + w[i+1]
		}
		tw[r-1] = phi[r-1] * w0
		next := f + scale*w0*w0
		if !(next >= 1) { // it is 1 plus a variance: less is rounding
			next = 1
		}
		a, b := scale*w0, w0/next
		for i := range k {
			k[i] += a * tw[i]
			w[i] = tw[i] - b*k[i]
		}
		scale *= next * inverse
		f = next
	}
	g.unsettled = t
	g.logdet = logs + math.Log(product)
}

// filter writes the innovations of y, each divided by its standard deviation, into e, and leaves in state the
// prediction of the state after the last.
func (g *gains) filter(c *coefs, y, e, state []float64) {
	r := len(c.phi)
	phi, theta := c.phi, c.theta
	clear(state)
	a := state
	for t, root := range g.root[:g.unsettled] {
		v := y[t] - a[0]
		e[t] = v * root
		k := g.step[t*r : (t+1)*r]
		a0 := a[0]
		for i := 0; i < len(a)-1; i++ {
			a[i] = phi[i]*a0 + a[i+1] + k[i]*v
		}
		a[r-1] = phi[r-1]*a0 + k[r-1]*v
	}
	y, e = y[g.unsettled:], e[g.unsettled:len(y)]
	// Once the gain is settled the state after an innovation v is T(a + R v), and a[0] + v = y.
	switch r {
	case 1:
		p0, a0 := phi[0], a[0]
		for t, x := range y {
			e[t] = x - a0
			a0 = p0 * x
		}
		a[0] = a0
	case 2:
		p0, p1, t1 := phi[0], phi[1], theta[1]
		a0, a1 := a[0], a[1]
		for t, x := range y {
			v := x - a0
			e[t] = v
			a0, a1 = p0*x+a1+t1*v, p1*x
		}
		a[0], a[1] = a0, a1
	case 3:
		p0, p1, p2, t1, t2 := phi[0], phi[1], phi[2], theta[1], theta[2]
		a0, a1, a2 := a[0], a[1], a[2]
		for t, x := range y {
			v := x - a0
			e[t] = v
			a0, a1, a2 = p0*x+a1+t1*v, p1*x+a2+t2*v, p2*x
		}
		a[0], a[1], a[2] = a0, a1, a2
	case 4:
		p0, p1, p2, p3, t1, t2, t3 := phi[0], phi[1], phi[2], phi[3], theta[1], theta[2], theta[3]
		a0, a1, a2, a3 := a[0], a[1], a[2], a[3]
		for t, x := range y {
			v := x - a0
			e[t] = v
			a0, a1, a2, a3 = p0*x+a1+t1*v, p1*x+a2+t2*v, p2*x+a3+t3*v, p3*x
		}
		a[0], a[1], a[2], a[3] = a0, a1, a2, a3
	default:
		for t, x := range y {
			v := x - a[0]
			e[t] = v
			for i := 0; i < r-1; i++ {
				a[i] = phi[i]*x + a[i+1] + theta[i+1]*v
			}
			a[r-1] = phi[r-1] * x
		}
	}
}

// conditional writes the residuals of y into e that follow from residuals of 0 before and through the first p values:
// the conditional sum of squares (Box, Jenkins).
func conditional(c *coefs, y, e []float64) {
	start := min(c.p, len(y))
	clear(e[:start])
	for t := start; t < len(y); t++ {
		v := y[t]
		for i := 1; i <= c.p; i++ {
			v -= c.phi[i-1] * y[t-i]
		}
		for j := 1; j <= min(c.q, t-start); j++ {
			v -= c.theta[j] * e[t-j]
		}
		e[t] = v
	}
}
