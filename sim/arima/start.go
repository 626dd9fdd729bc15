package arima

import "math"

// longAR finds where to start: Hannan and Rissanen's two regressions (1982).
type longAR struct {
	w, e, acf, ar, tmp []float64
	gram, rhs          []float64
}

// start writes coefficients for the model of o into raw, in the order of coefs.raw: an autoregression of high order
// gives residuals, and a regression on past values and past residuals gives the coefficients. The seasonal ones are
// estimated apart, from the residuals. It is false if the series does not allow it.
func (l *longAR) start(o *objective, raw []float64) bool {
	s := o.spec
	n := o.n - len(o.delta)
	l.w, l.e = grow(l.w, n), grow(l.e, n)
	if o.gaps {
		// Gaps are filled with 0, the mean of what is filtered; the start need not be better than that.
		for t := range l.w {
			l.w[t] = o.diff[0][t]
		}
		center := average(l.w)
		for t, v := range l.w {
			if l.w[t] = v - center; math.IsNaN(v) {
				l.w[t] = 0
			}
		}
	} else {
		// What the regression leaves, at coefficients of 0: there the innovations are the differences themselves.
		clear(l.e)
		clear(raw)
		if math.IsInf(o.at(raw), 1) || len(o.e[0]) > n {
			return false
		}
		clear(l.w)
		copy(l.w[n-len(o.e[0]):], o.e[0])
	}
	clear(raw)
	ar, ma, sar, sma := s.parts(raw)
	if !l.regress(ar, ma, 1) {
		return false
	}
	if len(sar)+len(sma) > 0 {
		for t := range l.w {
			l.w[t] = l.e[t]
		}
		if !l.regress(sar, sma, s.Period) {
			clear(sar)
			clear(sma)
		}
	}
	return true
}

// alone writes coefficients as if the model had no moving average; it needs the residuals that start left.
func (l *longAR) alone(o *objective, raw []float64) bool {
	s := o.spec
	if s.P+s.SP == 0 || s.Q+s.SQ == 0 {
		return false
	}
	clear(raw)
	ar, _, sar, _ := s.parts(raw)
	if !l.regress(ar, nil, 1) {
		return false
	}
	copy(l.w, l.e)
	return l.regress(sar, nil, s.Period)
}

// regress estimates ar and ma at multiples of lag from w, and leaves the residuals in e.
func (l *longAR) regress(ar, ma []float64, lag int) bool {
	n := len(l.w)
	p, q := len(ar), len(ma)
	copy(l.e, l.w)
	if p+q == 0 {
		return true
	}
	order := 0
	if q > 0 {
		order = min(p+q+int(2*math.Log(float64(n))), n/(4*lag))
		if order < 1 || !l.levinson(order, lag) {
			return false
		}
	}
	from := (max(p, q) + order) * lag
	k := p + q
	if n-from < 2*k+2 {
		return false
	}
	if order > 0 {
		for t := n - 1; t >= 0; t-- {
			v := l.w[t]
			for i, a := range l.ar {
				if at := t - (i+1)*lag; at >= 0 {
					v -= a * l.w[at]
				}
			}
			l.e[t] = v
		}
	}
	l.gram, l.rhs = grow(l.gram, k*k), grow(l.rhs, k)
	clear(l.gram)
	clear(l.rhs)
	column := func(i int) []float64 { // the regressor i at t = from..n-1
		if i < p {
			at := (i + 1) * lag
			return l.w[from-at : n-at]
		}
		at := (i - p + 1) * lag
		return l.e[from-at : n-at]
	}
	for i := range k {
		x := column(i)
		for j := i; j < k; j++ {
			v := dot(x, column(j))
			l.gram[i*k+j], l.gram[j*k+i] = v, v
		}
		l.rhs[i] = dot(x, l.w[from:])
	}
	if !cholesky(l.gram, l.rhs) {
		return false
	}
	copy(ar, l.rhs[:p])
	copy(ma, l.rhs[p:])
	// The residuals of this fit, for the seasonal one.
	for t := range l.e {
		v := l.w[t]
		for i, a := range ar {
			if at := t - (i+1)*lag; at >= 0 {
				v -= a * l.w[at]
			}
		}
		for j, b := range ma {
			if at := t - (j+1)*lag; at >= 0 {
				v -= b * l.e[at]
			}
		}
		l.e[t] = min(max(v, -1e100), 1e100) // not invertible as yet: it may run away
	}
	return true
}

// levinson fits an autoregression of the given order at multiples of lag to w by the Yule-Walker equations, into ar.
func (l *longAR) levinson(order, lag int) bool {
	n := len(l.w)
	l.acf, l.ar, l.tmp = grow(l.acf, order+1), grow(l.ar, order), grow(l.tmp, order)
	for k := range l.acf {
		l.acf[k] = dot(l.w[:n-k*lag], l.w[k*lag:])
	}
	v := l.acf[0]
	if !(v > 0) {
		return false
	}
	for k := range order {
		a := l.acf[k+1]
		for j := range k {
			a -= l.ar[j] * l.acf[k-j]
		}
		a /= v
		l.ar[k] = a
		for j := range k {
			l.tmp[j] = l.ar[j] - a*l.ar[k-1-j]
		}
		copy(l.ar[:k], l.tmp[:k])
		if v *= 1 - a*a; !(v > 0) {
			return false
		}
	}
	return true
}
