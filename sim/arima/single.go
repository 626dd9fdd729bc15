package arima

import "math"

// single says whether each column can be filtered with a state of one number: without gaps, with at most one
// autoregressive and one moving-average coefficient, and with at most one regressor, the mean among them.
//
// In Harvey's form the state of an ARMA(1,1) is of two numbers. But the second of its transition, of its gain and of
// all that the Chandrasekhar recursions carry is 0, so that the second of the state is as well.
func (o *objective) single() bool {
	return !o.css && !o.gaps && !o.general && o.c.p <= 1 && o.c.q <= 1 && len(o.diff) <= 2
}

// valueOfSingle is value for models that are single: what moments, gains, filter and regress do, in one pass over the
// series and without matrices. Each number is made by the same operations in the same order, so that no bit differs.
func (o *objective) valueOfSingle() float64 {
	var p, q float64
	if o.c.p == 1 {
		p = o.c.phi[0]
	}
	if o.c.q == 1 {
		q = o.c.theta[1]
	}
	f, ok := varianceOfSingle(p, q, o.c.p == 1)
	if !ok {
		return math.Inf(1)
	}
	n := o.n - len(o.delta)
	o.residuals(len(o.diff), n)
	y, e := o.diff[0][:n], o.e[0][:n]
	x, ex := y, e // without a regressor the series stands in for one, and is written after it
	if len(o.diff) == 2 {
		x, ex = o.diff[1][:n], o.e[1][:n]
	}
	k := p*f + q
	w, scale := k, -1/f
	product, logs := 1.0, 0.0
	var ay, ax float64 // states
	t := 0
	for ; t < n; t++ {
		if -scale*(w*w) < gainTolerance && f-1 < 1e-10 {
			break
		}
		inverse := 1 / f
		root, step := math.Sqrt(inverse), k*inverse
		vx, vy := x[t]-ax, y[t]-ay
		ex[t] = vx * root
		e[t] = vy * root
		ax, ay = p*ax+step*vx, p*ay+step*vy
		if product *= f; product > 1e150 {
			logs += math.Log(product)
			product = 1
		}
		tw, next := p*w, f+scale*w*w
		if !(next >= 1) {
			next = 1
		}
		a, b := scale*w, w/next
		k += a * tw
		w = tw - b*k
		scale *= next * inverse
		f = next
	}
	for ; t < n; t++ {
		vx, vy := x[t]-ax, y[t]-ay
		ex[t] = vx
		e[t] = vy
		ax, ay = p*x[t]+q*vx, p*y[t]+q*vy
	}
	o.terms, o.logdet = n, logs
	if product != 1 {
		o.logdet += math.Log(product)
	}
	o.beta = grow(o.beta, len(o.diff)-1)
	if len(o.diff) == 2 {
		o.gram = grow(o.gram, 1)
		g := dot(ex, ex)
		o.gram[0] = g
		if !(g > 1e-13*g) {
			return math.Inf(1)
		}
		root := math.Sqrt(g)
		b := dot(ex, e) / root / root
		o.beta[0] = b
		for t := range e {
			e[t] -= b * ex[t]
		}
	}
	o.ssq = dot(e, e)
	return o.profile(o.ssq)
}

// varianceOfSingle is the variance of an ARMA(1,1) with innovations of variance 1, as moments finds it.
func varianceOfSingle(p, q float64, autoregressive bool) (float64, bool) {
	zero, one := 1+q*(q+p), q
	if autoregressive {
		determinant := 1.0
		if p != 0 {
			determinant -= p * p
			one += p * zero
		}
		if determinant == 0 || math.IsNaN(determinant) {
			return 0, false
		}
		one /= determinant
		zero += p * one
	}
	return zero, zero > 0 && !math.IsInf(zero, 0)
}

// runSingle takes in values up to the first that is missing by the steps of a model with a state of one number: of the
// covariance in Harvey's form only the first element is not that of the last innovation. Each number is made by the same
// operations as step makes it by.
func (m *Model) runSingle(y []float64) (terms int, ssq, logs float64) {
	k := &m.cov
	p, q := k.c.phi[0], 0.0
	if k.r == 2 {
		q = k.c.theta[1]
	}
	variance, f, gain, second := k.p[0], k.f, 1.0, q
	a, b := m.state[0], 0.0
	if k.r == 2 {
		b = m.state[1]
	}
	steady, known := k.steady, false
	t := 0
	for ; t < len(y) && y[t] == y[t]; t++ {
		v := y[t] - m.Params.Mean - a
		if steady {
			f, gain, second, known = 1, 1, q, true
		} else {
			if f = variance; !(f >= 1) {
				f = 1
			}
			inverse := 1 / f
			gain, second = variance*inverse, q*inverse
			mine := max(variance-gain*variance, 0)
			cross := q - gain*q
			theirs := max(q*q-second*q, 0)
			variance = p*(p*mine+cross) + (p*cross + theirs) + 1
			steady = variance-1 <= 10*gainTolerance && variance-1 >= -10*gainTolerance
		}
		ssq += v * v / f
		logs += math.Log(f)
		a += gain * v
		b += second * v
		a, b = p*a+b, 0
	}
	if t == 0 {
		return 0, 0, 0
	}
	k.p[0], k.f, k.gain[0], m.state[0] = variance, f, gain, a
	if k.r == 2 {
		k.p[1], k.p[2], k.p[3] = q, q, q*q
		k.gain[1], m.state[1] = second, b
	}
	k.steady, k.known = steady, known
	return t, ssq, logs
}
