package arima

// vague is the variance, in units of sigma2, of a past value that was never measured. Where F, the variance of an
// innovation, is mostly vague, the value only serves to learn the state, and is not evidence about the coefficients.
const vague = 1e7

// covariance is the covariance of the state before each value, in units of sigma2 = 1, with the gains that follow.
//
// The state is the ARMA state in Harvey's form (r values, the first is w(t)) and then the last values of the
// undifferenced series (y(t-1), y(t-2), ...), so that a gap in the series costs the value that is missing and no
// more. The observation is y(t) = w(t) + delta·lags, without noise.
type covariance struct {
	c     *coefs
	delta []float64
	r, m  int // order of the ARMA part, of the whole

	p       []float64 // m by m, symmetric
	f       float64   // variance of the innovation at the last step
	gain    []float64 // of the whole state, at the last step
	steady  bool      // p is what it will be as long as no value is missing
	known   bool      // f and gain are those of the steady state
	unknown int       // past values of which nothing is known

	scratch []float64
}

// reset starts at the stationary state. start[i] is the value that is i+1 steps back (nil: all known), NaN if unknown.
func (k *covariance) reset(c *coefs, m *moments, delta []float64, start []float64) {
	k.c, k.delta, k.r = c, delta, len(c.phi)
	k.m = k.r + len(delta)
	k.p, k.gain, k.scratch = grow(k.p, k.m*k.m), grow(k.gain, k.m), grow(k.scratch, k.m*k.m)
	clear(k.p)
	m.covariance(c, k.p, k.m)
	k.unknown = 0
	for i, v := range start {
		if v != v {
			k.p[(k.r+i)*k.m+k.r+i] = vague
			k.unknown++
		}
	}
	k.f, k.steady = 1, false
	k.check()
}

// times is P Z': the covariance of each element of the state with the next value.
func (k *covariance) times(out []float64) {
	m := k.m
	for i := range m {
		row := k.p[i*m : (i+1)*m]
		v := row[0]
		for j, d := range k.delta {
			v += d * row[k.r+j]
		}
		out[i] = v
	}
}

// along is Z x.
func (k *covariance) along(x []float64) float64 {
	v := x[0]
	for j, d := range k.delta {
		v += d * x[k.r+j]
	}
	return v
}

// observe takes a measured value in: it sets f and gain and leaves p as it is after the value, before the next step.
// informative is false for a value that only determined an unknown earlier one.
func (k *covariance) observe() (informative bool) {
	m := k.m
	k.times(k.gain)
	k.f = k.along(k.gain)
	if !(k.f >= 1) {
		k.f = 1
	}
	inv := 1 / k.f
	for i := range m {
		gi := k.gain[i] * inv
		row := k.p[i*m : (i+1)*m]
		for j := i; j < m; j++ {
			v := row[j] - gi*k.gain[j]
			row[j], k.p[j*m+i] = v, v
		}
	}
	for i := range m {
		k.gain[i] *= inv
		if d := k.p[i*m+i]; d < 0 {
			k.p[i*m+i] = 0
		}
	}
	if k.unknown > 0 && k.f > 1e-3*vague {
		k.unknown--
		return false
	}
	return true
}

// step moves p on to the next value: T P T' + R R'.
func (k *covariance) step() {
	m, r, phi := k.m, k.r, k.c.phi
	tp := k.scratch
	// T P, row by row.
	for i := range r {
		out := tp[i*m : (i+1)*m]
		first := k.p[:m]
		f := phi[i]
		if i+1 < r {
			below := k.p[(i+1)*m : (i+2)*m]
			for j := range out {
				out[j] = f*first[j] + below[j]
			}
		} else {
			for j := range out {
				out[j] = f * first[j]
			}
		}
	}
	if r < m {
		k.times(tp[r*m : (r+1)*m]) // Z P, P being symmetric
		copy(tp[(r+1)*m:m*m], k.p[r*m:(m-1)*m])
	}
	// (T P) T', column by column.
	for i := range m {
		in, out := tp[i*m:(i+1)*m], k.p[i*m:(i+1)*m]
		for j := range r {
			v := phi[j] * in[0]
			if j+1 < r {
				v += in[j+1]
			}
			out[j] = v
		}
		if r < m {
			out[r] = k.along(in)
			copy(out[r+1:], in[r:m-1])
		}
	}
	for i := range r {
		for j := range r {
			k.p[i*m+j] += k.c.theta[i] * k.c.theta[j]
		}
	}
}

// next is observe and step for a value that is there (or not), remembering when the covariance has settled.
func (k *covariance) next(there bool) (informative bool) {
	if !there {
		k.step()
		k.steady = false
		return false
	}
	if k.steady {
		if !k.known {
			k.f, k.known = 1, true
			clear(k.gain)
			copy(k.gain, k.c.theta)
		}
		return true
	}
	informative = k.observe()
	k.step()
	k.check()
	return informative
}

// check sees whether p has come to its limit: R R' for the ARMA part and 0 for the past values.
func (k *covariance) check() {
	m := k.m
	for i := range m {
		row := k.p[i*m : (i+1)*m]
		for j := i; j < m; j++ {
			v := row[j]
			if j < k.r {
				v -= k.c.theta[i] * k.c.theta[j]
			}
			if v > 10*gainTolerance || v < -10*gainTolerance {
				return
			}
		}
	}
	k.steady, k.known = true, false
}

// advance moves a state on by one step and returns the value that it stood for, the mean of the differences included.
func (k *covariance) advance(a []float64, mean float64) float64 {
	r, phi := k.r, k.c.phi
	y := k.along(a) + mean
	a0 := a[0]
	for i := 0; i < r-1; i++ {
		a[i] = phi[i]*a0 + a[i+1]
	}
	a[r-1] = phi[r-1] * a0
	if r < k.m {
		copy(a[r+1:], a[r:k.m-1])
		a[r] = y
	}
	return y
}
