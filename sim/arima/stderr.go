package arima

import "math"

// standardErrors are the roots of the diagonal of the inverse of the likelihood's curvature at the coefficients that
// are set, sigma2 profiled out, in the unit of the series: AR, MA, SAR, SMA, mean, regressors. The curvature is taken
// by second differences in the coefficients themselves.
func (f *Fitter) standardErrors() []float64 {
	o := &f.o
	n := len(o.c.raw)
	k := n + len(o.beta)
	at := make([]float64, k)
	copy(at, o.c.raw)
	copy(at[n:], o.beta)
	size := make([]float64, k) // of the steps
	for i := range size {
		size[i] = 1e-4
		if i >= n {
			// A coefficient of the regression: a small part of its own standard error.
			size[i] = 1e-2 * math.Sqrt(o.ssq/float64(o.terms)/o.gram[(i-n)*len(o.beta)+i-n])
		}
	}
	x := make([]float64, k)
	value := func() float64 {
		copy(o.c.raw, x[:n])
		o.c.expand()
		o.evaluations++
		if !o.innovations() {
			return math.NaN()
		}
		y := o.e[0]
		for j, b := range x[n:] {
			col := o.e[j+1]
			for t := range y {
				y[t] -= b * col[t]
			}
		}
		return o.profile(dot(y, y))
	}
	copy(x, at)
	center := value()
	hessian := make([]float64, k*k)
	shifted := func(i, j int, a, b float64) float64 {
		copy(x, at)
		x[i] += a * size[i]
		x[j] += b * size[j]
		return value()
	}
	for i := range k {
		hessian[i*k+i] = (shifted(i, i, 1, 0) - 2*center + shifted(i, i, -1, 0)) / (size[i] * size[i])
		for j := range i {
			v := (shifted(i, j, 1, 1) - shifted(i, j, 1, -1) - shifted(i, j, -1, 1) + shifted(i, j, -1, -1)) / (4 * size[i] * size[j])
			hessian[i*k+j], hessian[j*k+i] = v, v
		}
	}
	copy(o.c.raw, at[:n])
	o.c.expand()
	// Row i of the inverse, in weights of the coefficients as they are reported: the mean of a series whose regressors
	// were centred is that of the centred one less what the regressors have there.
	out := make([]float64, k)
	a, row, weights := make([]float64, k*k), make([]float64, k), make([]float64, k)
	for i := range out {
		clear(weights)
		weights[i] = 1
		if i >= n {
			weights[i] = o.scale
		}
		if j := i - n; o.spec.Mean && j == 0 {
			for l, center := range o.xcenter {
				weights[n+1+l] = -center * o.scale / o.xscale[l]
			}
		} else if o.spec.Mean && j > 0 {
			weights[i] /= o.xscale[j-1]
		} else if j >= 0 {
			weights[i] /= o.xscale[j]
		}
		copy(a, hessian)
		copy(row, weights)
		out[i] = math.NaN()
		if eliminate(a, row) {
			if v := dot(row, weights); v > 0 {
				out[i] = math.Sqrt(v / float64(o.used))
			}
		}
	}
	return out
}
