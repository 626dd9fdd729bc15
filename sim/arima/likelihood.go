package arima

import (
	"math"
	"slices"
)

// columns are the series and its regressors as the filters take them: centred and scaled, so that nothing depends on
// the unit or the origin of the series.
type columns struct {
	spec  Spec
	delta []float64
	gaps  bool
	first int // index of the first measured value: the missing ones before it add nothing

	// level[0] is the series from first on, level[1:] its regressors, the mean among them first. diff are the same,
	// differenced: only without gaps.
	level, diff [][]float64
	n           int // length of level
	used        int // values that the likelihood is computed from

	searching bool // what is prepared is of one series until the search ends
	kept      bool // and is still there

	center, scale float64 // of the series
	xcenter       []float64
	xscale        []float64

	buffer []float64
}

// objective evaluates the likelihood of columns at given coefficients, sigma2 and the regression profiled out.
// Many fields: it is work space that is kept from one evaluation to the next, so that an evaluation allocates little.
type objective struct {
	columns
	css   bool
	c     coefs
	mom   moments
	gains gains
	cov   covariance

	e      [][]float64 // scaled innovations of each column
	eBuf   []float64
	state  []float64
	start  []float64 // the values that differencing starts from
	gram   []float64
	chol   []float64
	beta   []float64 // in the units of columns
	terms  int       // innovations that count
	ssq    float64
	logdet float64

	// last is where it was evaluated last, if nothing changed since, and lastValue what came of it.
	last      []float64
	lastValue float64
	current   bool

	evaluations int  // those that were answered from last among them
	general     bool // for tests: no short ways
}

// at is the negative log-likelihood per value, constants left out, of the unbounded coefficients u; +Inf where it
// cannot be computed.
func (o *objective) at(u []float64) float64 {
	if o.current && !o.general && slices.Equal(u, o.last) {
		o.evaluations++
		return o.lastValue
	}
	o.c.transform(u)
	o.lastValue = o.value()
	o.last, o.current = append(o.last[:0], u...), true
	return o.lastValue
}

// value is at for the coefficients that are set.
func (o *objective) value() float64 {
	o.evaluations++
	o.current = false
	if o.single() {
		return o.valueOfSingle()
	}
	if !o.innovations() || !o.regress() {
		return math.Inf(1)
	}
	return o.profile(o.ssq)
}

// profile is the objective at the sum of squares ssq, with the determinants of the last filtering.
func (o *objective) profile(ssq float64) float64 {
	n := float64(o.terms)
	// Below this the fit is exact within the precision of doubles, and the logarithm would only measure rounding.
	v := 0.5 * (math.Log(max(ssq/n, 1e-28)) + o.logdet/n)
	if math.IsNaN(v) {
		return math.Inf(1)
	}
	return v
}

// innovations filters all columns.
func (o *objective) innovations() bool {
	k := len(o.level)
	n := o.n - len(o.delta)
	o.residuals(k, n)
	switch {
	case o.css:
		for j, col := range o.diff {
			conditional(&o.c, col, o.e[j])
			o.e[j] = o.e[j][min(o.c.p, n):]
		}
		o.terms, o.logdet = len(o.e[0]), 0
		return o.terms > 0
	case !o.mom.reset(&o.c):
		return false
	case o.gaps:
		return o.filterGaps()
	}
	o.gains.reset(&o.c, &o.mom, n)
	o.state = grow(o.state, len(o.c.phi))
	for j, col := range o.diff {
		o.gains.filter(&o.c, col, o.e[j], o.state)
	}
	o.terms, o.logdet = n, o.gains.logdet
	return true
}

// residuals makes room for those of k columns of n values.
func (o *objective) residuals(k, n int) {
	o.eBuf = grow(o.eBuf, k*n)
	if cap(o.e) < k {
		o.e = make([][]float64, k)
	}
	o.e = o.e[:k]
	for j := range o.e {
		o.e[j] = o.eBuf[j*n : (j+1)*n]
	}
}

// filterGaps is innovations for a series with values missing.
func (o *objective) filterGaps() bool {
	nd, k := len(o.delta), len(o.level)
	y := o.level[0]
	o.start = grow(o.start, nd)
	start := o.start
	for i := range start {
		start[i] = y[nd-1-i]
	}
	o.cov.reset(&o.c, &o.mom, o.delta, start)
	m := o.cov.m
	o.state = grow(o.state, k*m)
	clear(o.state)
	for j, col := range o.level {
		a := o.state[j*m : (j+1)*m]
		for i := range nd {
			a[o.cov.r+i] = col[nd-1-i]
			if math.IsNaN(start[i]) {
				a[o.cov.r+i] = 0
			}
		}
	}
	terms, product, logs := 0, 1.0, 0.0
	for t := nd; t < o.n; t++ {
		there := !math.IsNaN(y[t])
		informative := o.cov.next(there)
		if !there {
			for j := range k {
				o.cov.advance(o.state[j*m:(j+1)*m], 0)
			}
			continue
		}
		f := o.cov.f
		root := 1 / math.Sqrt(f)
		for j, col := range o.level {
			a := o.state[j*m : (j+1)*m]
			v := col[t] - o.cov.along(a)
			if informative {
				o.e[j][terms] = v * root
			}
			for i, g := range o.cov.gain {
				a[i] += g * v
			}
			o.cov.advance(a, 0)
		}
		if informative {
			terms++
			if product *= f; product > 1e150 {
				logs += math.Log(product)
				product = 1
			}
		}
	}
	for j := range o.e {
		o.e[j] = o.e[j][:terms]
	}
	o.terms, o.logdet = terms, logs+math.Log(product)
	return terms > 0 && o.cov.unknown == 0
}

// regress solves for the regression that leaves the least squares, and sets beta and ssq. It is false if the
// regressors are not independent.
func (o *objective) regress() bool {
	k := len(o.e) - 1
	y := o.e[0]
	o.beta = grow(o.beta, k)
	o.gram = grow(o.gram, k*k)
	if k > 0 {
		for i := range k {
			for j := i; j < k; j++ {
				v := dot(o.e[i+1], o.e[j+1])
				o.gram[i*k+j], o.gram[j*k+i] = v, v
			}
			o.beta[i] = dot(o.e[i+1], y)
		}
		o.chol = grow(o.chol, k*k)
		copy(o.chol, o.gram)
		if !cholesky(o.chol, o.beta) {
			return false
		}
		for i, b := range o.beta {
			x := o.e[i+1]
			for t := range y {
				y[t] -= b * x[t]
			}
		}
	}
	o.ssq = dot(y, y)
	return true
}

func dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1 float64
	i := 0
	for ; i+1 < len(a); i += 2 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
	}
	if i < len(a) {
		s0 += a[i] * b[i]
	}
	return s0 + s1
}

// cholesky solves A x = b for A symmetric and positive definite, by rows, both overwritten. It is false if A is not, or
// so nearly not that the answer would be noise.
func cholesky(a, b []float64) bool {
	n := len(b)
	for i := range n {
		for j := 0; j <= i; j++ {
			v := a[i*n+j]
			for l := range j {
				v -= a[i*n+l] * a[j*n+l]
			}
			if i != j {
				a[i*n+j] = v / a[j*n+j]
				continue
			}
			if !(v > 1e-13*a[i*n+i]) {
				return false
			}
			a[i*n+i] = math.Sqrt(v)
		}
	}
	for i := range n {
		v := b[i]
		for l := range i {
			v -= a[i*n+l] * b[l]
		}
		b[i] = v / a[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		v := b[i]
		for l := i + 1; l < n; l++ {
			v -= a[l*n+i] * b[l]
		}
		b[i] = v / a[i*n+i]
	}
	return true
}
