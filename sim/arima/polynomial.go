package arima

import "math"

// widest is the greatest partial autocorrelation that is tried: past it the stationary covariance loses its digits.
const widest = 1 - 1e-10

// fromPartial turns partial autocorrelations, each in (-1, 1), into the coefficients of the stationary autoregression
// that has them, by the Durbin-Levinson recursion (Monahan 1984; Jones 1980). In place; tmp is as long.
func fromPartial(r, tmp []float64) {
	for k := 1; k < len(r); k++ {
		a := r[k]
		for j := 0; j < k; j++ {
			tmp[j] = r[j] - a*r[k-1-j]
		}
		copy(r[:k], tmp[:k])
	}
}

// toPartial is the inverse of fromPartial. Coefficients that are not stationary give partial autocorrelations beyond
// 1, which are drawn in to bound. In place; tmp is as long.
func toPartial(c, tmp []float64, bound float64) {
	for k := len(c) - 1; k >= 0; k-- {
		a := c[k]
		if !(math.Abs(a) <= bound) {
			a = math.Copysign(bound, a)
			c[k] = a
		}
		d := 1 - a*a
		for j := 0; j < k; j++ {
			tmp[j] = (c[j] + a*c[k-1-j]) / d
		}
		copy(c[:k], tmp[:k])
	}
}

// coefs are ARMA coefficients in the order ar, ma, sar, sma, with the polynomials that they make.
type coefs struct {
	spec    Spec
	raw     []float64 // ar, ma, sar, sma
	tmp     []float64
	partial []float64
	u, tanh []float64 // what was transformed last, and the partial autocorrelations that it stands for

	// phi[i] multiplies w(t-1-i); theta[i] multiplies e(t-i), theta[0] = 1. Both have the dimension of the ARMA state
	// and are 0 past their orders p and q.
	phi, theta []float64
	p, q       int
}

func (c *coefs) reset(s Spec) {
	c.spec = s
	n := s.coefficients()
	c.raw, c.tmp = grow(c.raw, n), grow(c.tmp, n)
	c.u, c.tanh = grow(c.u, n), grow(c.tanh, n)
	clear(c.u)
	clear(c.tanh)
	r := s.order()
	c.phi, c.theta = grow(c.phi, r), grow(c.theta, r)
	c.p, c.q = s.P+s.SP*s.Period, s.Q+s.SQ*s.Period
	clear(c.phi)
	clear(c.theta)
}

// parts are the four groups of coefficients within a slice in the order of raw.
func (s Spec) parts(x []float64) (ar, ma, sar, sma []float64) {
	a, b, c := s.P, s.P+s.Q, s.P+s.Q+s.SP
	return x[:a], x[a:b], x[b:c], x[c : c+s.SQ]
}

// transform sets the coefficients from unbounded u: tanh(u) are partial autocorrelations.
func (c *coefs) transform(u []float64) {
	for i, v := range u {
		if v != c.u[i] { // of a gradient's evaluations all but one are where they were
			c.u[i], c.tanh[i] = v, min(max(math.Tanh(v), -widest), widest)
		}
		c.raw[i] = c.tanh[i]
	}
	if c.p <= 1 && c.q <= 1 { // so there is nothing to multiply
		c.theta[0] = 1
		if c.p == 1 {
			c.phi[0] = c.raw[0]
		}
		if c.q == 1 {
			c.raw[c.p] = -c.raw[c.p]
			c.theta[1] = c.raw[c.p]
		}
		return
	}
	ar, ma, sar, sma := c.spec.parts(c.raw)
	for _, x := range [...][]float64{ar, ma, sar, sma} {
		if len(x) > 1 {
			fromPartial(x, c.tmp)
		}
	}
	for i := range ma {
		ma[i] = -ma[i]
	}
	for i := range sma {
		sma[i] = -sma[i]
	}
	c.expand()
}

// untransform finds the u that gives the coefficients raw, drawn in to partial autocorrelations of at most bound.
func (c *coefs) untransform(raw, u []float64, bound float64) {
	copy(u, raw)
	ar, ma, sar, sma := c.spec.parts(u)
	for i := range ma {
		ma[i] = -ma[i]
	}
	for i := range sma {
		sma[i] = -sma[i]
	}
	for _, x := range [...][]float64{ar, ma, sar, sma} {
		toPartial(x, c.tmp, bound)
	}
	for i, v := range u {
		u[i] = math.Atanh(v)
	}
}

// stationary says whether the autoregressions of raw are.
func (c *coefs) stationary() bool {
	c.partial = grow(c.partial, len(c.raw))
	copy(c.partial, c.raw)
	ar, _, sar, _ := c.spec.parts(c.partial)
	for _, x := range [...][]float64{ar, sar} {
		toPartial(x, c.tmp, 1)
		for _, a := range x {
			if !(math.Abs(a) < 1) {
				return false
			}
		}
	}
	return true
}

// edgeOf is edge for raw as it is; 1 if a moving average is not invertible.
func (c *coefs) edgeOf() float64 {
	c.partial = grow(c.partial, len(c.raw))
	copy(c.partial, c.raw)
	ar, ma, sar, sma := c.spec.parts(c.partial)
	var highest float64
	for i, x := range [...][]float64{ar, sar, ma, sma} {
		if i >= 2 {
			for j := range x {
				x[j] = -x[j]
			}
		}
		toPartial(x, c.tmp, 1)
		for _, v := range x {
			highest = max(highest, math.Abs(v))
		}
	}
	return highest
}

// expand multiplies the seasonal and the plain polynomials of raw.
func (c *coefs) expand() {
	ar, ma, sar, sma := c.spec.parts(c.raw)
	s := c.spec.Period
	clear(c.phi)
	clear(c.theta)
	copy(c.phi, ar)
	for k, b := range sar {
		at := (k + 1) * s
		c.phi[at-1] += b
		for i, a := range ar {
			c.phi[at+i] -= a * b
		}
	}
	c.theta[0] = 1
	copy(c.theta[1:], ma)
	for k, b := range sma {
		at := (k + 1) * s
		c.theta[at] += b
		for i, a := range ma {
			c.theta[at+i+1] += a * b
		}
	}
}

// edge is the greatest absolute partial autocorrelation of raw: 1 is a unit root.
func (c *coefs) edge(u []float64) float64 {
	var highest float64
	for _, v := range u {
		highest = max(highest, math.Abs(math.Tanh(v)))
	}
	return highest
}

// differencing are the delta with which y(t) = w(t) + delta[0] y(t-1) + delta[1] y(t-2) + .... out are those of
// another structure, and are kept if they are the same.
func differencing(s, before Spec, out []float64) []float64 {
	if s.D == before.D && s.SD == before.SD && s.Period == before.Period && len(out) == s.lags() {
		return out
	}
	out = grow(out, s.lags())
	clear(out)
	poly := make([]float64, len(out)+1)
	poly[0] = 1
	times := func(lag int) {
		for i := len(poly) - 1; i >= lag; i-- {
			poly[i] -= poly[i-lag]
		}
	}
	for range s.D {
		times(1)
	}
	for range s.SD {
		times(s.Period)
	}
	for i := range out {
		out[i] = -poly[i+1]
	}
	return out
}

// grow returns a slice of length n that reuses x if that is large enough. Its values are not defined.
func grow(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}
