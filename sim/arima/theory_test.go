package arima

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// of are the coefficients of a plain ARMA.
func of(ar, ma []float64) (Spec, *coefs) {
	s := Spec{P: len(ar), Q: len(ma)}
	c := &coefs{}
	c.reset(s)
	copy(c.raw, ar)
	copy(c.raw[s.P:], ma)
	c.expand()
	return s, c
}

// The autocorrelations and impulse weights that R documents (ARMAacf, ARMAtoMA).
func TestMoments(t *testing.T) {
	for _, c := range []struct {
		ar, ma, acf, psi []float64
	}{
		{[]float64{1, -0.25}, []float64{1}, []float64{1, 0.875, 0.625}, []float64{1, 2, 1.75, 1.25, 0.8125, 0.5, 0.296875, 0.171875, 0.09765625, 0.0546875, 0.03027344}},
		{[]float64{0.6, 0.3, -0.2}, nil, []float64{1, 0.6923077, 0.5769231, 0.3538462}, nil},
	} {
		_, k := of(c.ar, c.ma)
		var m moments
		if !m.reset(k) {
			t.Fatalf("%v is stationary", c.ar)
		}
		for i, want := range c.acf {
			if got := m.gamma[i] / m.gamma[0]; math.Abs(got-want) > 1e-7 {
				t.Errorf("autocorrelation %d of %v, %v is %v, want %v", i, c.ar, c.ma, got, want)
			}
		}
		psi := make([]float64, len(c.psi))
		impulse(psi, k)
		for i, want := range c.psi {
			if math.Abs(psi[i]-want) > 1e-7 {
				t.Errorf("weight %d of %v, %v is %v, want %v", i, c.ar, c.ma, psi[i], want)
			}
		}
	}
	// Partial autocorrelations of an autoregression are what its last coefficients were at each order.
	r := []float64{0.875, -0.6, 0.375, -0.2727273, 0.2142857}
	x, tmp := append([]float64(nil), r...), make([]float64, 5)
	fromPartial(x, tmp)
	toPartial(x, tmp, 1)
	for i, want := range r {
		if math.Abs(x[i]-want) > 1e-12 {
			t.Errorf("partial autocorrelation %d came back as %v, was %v", i, x[i], want)
		}
	}
}

// drawSpec draws a structure of small orders with coefficients inside the stationary and invertible region.
func drawSpec(t *rapid.T, seasonal bool) (Spec, Params) {
	s := Spec{P: rapid.IntRange(0, 3).Draw(t, "p"), Q: rapid.IntRange(0, 3).Draw(t, "q"), D: rapid.IntRange(0, 2).Draw(t, "d"), Mean: rapid.Bool().Draw(t, "mean")}
	if seasonal && rapid.Bool().Draw(t, "seasonal") {
		s.SP, s.SQ, s.SD = rapid.IntRange(0, 1).Draw(t, "sp"), rapid.IntRange(0, 1).Draw(t, "sq"), rapid.IntRange(0, 1).Draw(t, "sd")
		s.Period = rapid.IntRange(2, 5).Draw(t, "period")
	}
	var c coefs
	c.reset(s)
	u := make([]float64, s.coefficients())
	for i := range u {
		u[i] = rapid.Float64Range(-1.5, 1.5).Draw(t, "u")
	}
	c.transform(u)
	var p Params
	p.AR, p.MA, p.SAR, p.SMA = s.parts(c.raw)
	p = p.clone()
	p.Sigma2 = rapid.Float64Range(0.1, 10).Draw(t, "sigma2")
	if s.Mean {
		p.Mean = rapid.Float64Range(-5, 5).Draw(t, "mu")
	}
	return s, p
}

// dense is the log-likelihood by the definition: the covariance matrix of the values given the first ones, its Cholesky factor,
// and rows and columns left out where a value is missing. The values that differencing starts from must be there.
// NaN: next to a unit root.
func dense(t interface{ Fatalf(string, ...any) }, s Spec, p Params, y []float64) float64 {
	var c coefs
	c.reset(s)
	ar, ma, sar, sma := s.parts(c.raw)
	copy(ar, p.AR)
	copy(ma, p.MA)
	copy(sar, p.SAR)
	copy(sma, p.SMA)
	c.expand()
	// y = known + spread w: what the first values make of the rest, and how each difference spreads into it.
	delta := differencing(s, Spec{}, nil)
	nd := len(delta)
	n := len(y) - nd
	known := append([]float64(nil), y...)
	spread := make([]float64, n)
	for t := range n {
		known[nd+t] = p.Mean
		if t == 0 {
			spread[t] = 1
		}
		for j, d := range delta {
			known[nd+t] += d * known[nd+t-1-j]
			if t-1-j >= 0 {
				spread[t] += d * spread[t-1-j]
			}
		}
	}
	// Autocovariances by the sum of products of impulse weights, long enough for them to die out.
	psi := make([]float64, 6000+n)
	impulse(psi, &c)
	for _, w := range psi[5900:6000] {
		if math.Abs(w) > 1e-8 { // next to a unit root: this oracle is blind there
			return math.NaN()
		}
	}
	gamma := make([]float64, n)
	for k := range gamma {
		gamma[k] = dot(psi[:6000], psi[k:6000+k]) * p.Sigma2
	}
	whole, of := mat.NewSymDense(n, nil), mat.NewDense(n, n, nil)
	for i := range n {
		for j := range i + 1 {
			whole.SetSym(i, j, gamma[i-j])
			of.Set(i, j, spread[i-j])
		}
	}
	var half, full mat.Dense
	half.Mul(of, whole)
	full.Mul(&half, of.T())
	var at []int
	for i, v := range y[nd:] {
		if !math.IsNaN(v) {
			at = append(at, i)
		}
	}
	n = len(at)
	cov, v := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i, a := range at {
		v.SetVec(i, y[nd+a]-known[nd+a])
		for j, b := range at[:i+1] {
			cov.SetSym(i, j, full.At(a, b))
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		t.Fatalf("not positive definite: %v %+v", s, p)
	}
	var x mat.VecDense
	if err := chol.SolveVecTo(&x, v); err != nil {
		t.Fatalf("%v", err)
	}
	return -0.5 * (float64(n)*math.Log(2*math.Pi) + chol.LogDet() + mat.Dot(v, &x))
}

// The Kalman filter agrees with the definition of the likelihood, with gaps and without, differenced and not.
func TestLikelihoodIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSpec(t, true)
		n := s.lags() + rapid.IntRange(5, 40).Draw(t, "n")
		g := noise(rapid.Uint64Range(1, 1<<60).Draw(t, "seed"))
		y := make([]float64, n)
		for i := range y {
			y[i] = 3 * g.normal()
		}
		if rapid.Bool().Draw(t, "gaps") {
			for i := max(1, s.lags()); i < n-1; i++ {
				if g.next() < 0.2 {
					y[i] = math.NaN()
				}
			}
		}
		m, err := At(s, p, y, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := dense(t, s, p, y)
		if math.Abs(m.LogLik-want) > 1e-5*(1+math.Abs(want)) {
			t.Fatalf("%v %+v: log-likelihood %v, by definition %v", s, p, m.LogLik, want)
		}
		// The fast recursions and the regression on the mean: at the parameters that were fitted to it.
		f := new(Fitter)
		fit, err := f.Fit(y, s, Options{Evaluations: 60, Starts: 1})
		if err != nil {
			if n-s.lags() > 15 && !math.IsNaN(fraction(y)) {
				t.Fatal(err)
			}
			return
		}
		if want := dense(t, s, fit.Params, y); math.Abs(fit.LogLik-want) > 1e-5*(1+math.Abs(want)) {
			t.Fatalf("%v %+v: fitted log-likelihood %v, by definition %v", s, fit.Params, fit.LogLik, want)
		}
	})
}

// fraction is how much of y is there, NaN if that is under half.
func fraction(y []float64) float64 {
	n := 0
	for _, v := range y {
		if !math.IsNaN(v) {
			n++
		}
	}
	if 2*n < len(y) {
		return math.NaN()
	}
	return float64(n) / float64(len(y))
}

// A process looks the same backwards, and so must the likelihood, whichever values are unknown at the start.
func TestLikelihoodOfTheReverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{P: rapid.IntRange(0, 2).Draw(t, "p"), Q: rapid.IntRange(0, 2).Draw(t, "q"), SD: 1, Period: rapid.IntRange(2, 5).Draw(t, "period")}
		var c coefs
		c.reset(s)
		u := make([]float64, s.coefficients())
		for i := range u {
			u[i] = rapid.Float64Range(-1, 1).Draw(t, "u")
		}
		c.transform(u)
		var p Params
		p.AR, p.MA, p.SAR, p.SMA = s.parts(c.raw)
		p.Sigma2 = 2
		n := s.Period * rapid.IntRange(4, 8).Draw(t, "n")
		g := noise(rapid.Uint64Range(1, 1<<60).Draw(t, "seed"))
		y, back := make([]float64, n), make([]float64, n)
		for i := range y {
			if y[i] = g.normal(); g.next() < 0.25 && i > 0 && i < n-1 {
				y[i] = math.NaN()
			}
			back[n-1-i] = y[i]
		}
		forth, err1 := At(s, p, y, nil)
		other, err2 := At(s, p, back, nil)
		if err1 != nil || err2 != nil {
			if (err1 == nil) != (err2 == nil) {
				t.Fatalf("forth %v, back %v", err1, err2)
			}
			return
		}
		if math.Abs(forth.LogLik-other.LogLik) > 1e-4 {
			t.Fatalf("%v %+v %v: log-likelihood %v, of the reverse %v", s, p, y, forth.LogLik, other.LogLik)
		}
	})
}
