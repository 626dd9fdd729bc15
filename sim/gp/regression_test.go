package gp

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// problem is a random kernel with points and hyper-parameters for it.
type problem struct {
	kernel Kernel
	x, y   []float64
	h      Hyper
}

func drawProblem(t *rapid.T) problem {
	p := problem{kernel: Kernel{
		Shape:  Shape(rapid.IntRange(0, int(SquaredExponential)).Draw(t, "shape")),
		Groups: rapid.SliceOfN(rapid.IntRange(1, 3), 1, 3).Draw(t, "groups"),
	}}
	n := rapid.IntRange(1, 12).Draw(t, "points")
	value := rapid.Float64Range(-3, 3)
	p.x = rapid.SliceOfN(value, n*p.kernel.columns(), n*p.kernel.columns()).Draw(t, "x")
	p.y = rapid.SliceOfN(value, n, n).Draw(t, "y")
	p.h = rapid.SliceOfN(rapid.Float64Range(-1.5, 1.5), p.kernel.Hypers(), p.kernel.Hypers()).Draw(t, "hyper")
	return p
}

func (p problem) load(t interface {
	Helper()
	Fatal(...any)
}) *Regression {
	t.Helper()
	r := &Regression{}
	if err := r.Load(p.kernel, p.x, p.y); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGradientIsThatOfTheEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		r := p.load(t)
		gradient := make([]float64, len(p.h))
		if _, err := r.Evidence(p.h, gradient); err != nil {
			t.Fatal(err)
		}
		const step = 1e-5
		for i := range p.h {
			at := func(by float64) float64 {
				h := append(Hyper(nil), p.h...)
				h[i] += by
				v, err := r.Evidence(h, nil)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			// Five points: the error falls with the fourth power of the step.
			want := (8*(at(step)-at(-step)) - (at(2*step) - at(-2*step))) / (12 * step)
			if math.Abs(gradient[i]-want) > 1e-4*(1+math.Abs(want)) {
				t.Fatalf("derivative %d is %v, differences say %v", i, gradient[i], want)
			}
		}
	})
}

func TestPredictionsOfRegression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		r := p.load(t)
		if err := r.Condition(p.h); err != nil {
			t.Fatal(err)
		}
		if r.factor.jitter != 0 {
			t.Fatalf("the matrix is not positive definite by itself: jitter %v", r.factor.jitter)
		}
		d := p.kernel.columns()
		x := rapid.SliceOfN(rapid.Float64Range(-5, 5), d, d).Draw(t, "at")
		got, err := r.Predict(x)
		if err != nil {
			t.Fatal(err)
		}
		prior, noise := math.Exp(2*p.h[len(p.kernel.Groups)]), math.Exp(2*p.h[len(p.h)-1])
		switch {
		case math.IsNaN(got.Mean) || math.IsInf(got.Mean, 0):
			t.Fatalf("mean %v", got.Mean)
		case !(got.Variance >= 0) || got.Variance > prior*(1+1e-9):
			t.Fatalf("variance %v, that of the prior is %v", got.Variance, prior)
		case math.Abs(got.Observed-got.Variance-noise) > 1e-12*(got.Observed):
			t.Fatalf("variance of an observation %v, of the function %v, of the noise %v", got.Observed, got.Variance, noise)
		}

		// The order of the points says nothing.
		order := rapid.Permutation(indices(len(p.y))).Draw(t, "order")
		q := problem{kernel: p.kernel, h: p.h}
		for _, i := range order {
			q.x, q.y = append(q.x, p.x[i*d:(i+1)*d]...), append(q.y, p.y[i])
		}
		s := q.load(t)
		before, _ := r.Evidence(p.h, nil)
		after, err := s.Evidence(p.h, nil)
		if err != nil || math.Abs(before-after) > 1e-7*(1+math.Abs(before)) {
			t.Fatalf("log evidence %v, in another order %v (%v)", before, after, err)
		}
		if err := s.Condition(p.h); err != nil {
			t.Fatal(err)
		}
		other, err := s.Predict(x)
		if err != nil || math.Abs(other.Mean-got.Mean) > 1e-7*(1+math.Abs(got.Mean)) || math.Abs(other.Variance-got.Variance) > 1e-7*(1+prior) {
			t.Fatalf("prediction %+v, in another order %+v (%v)", got, other, err)
		}
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestShapes holds each shape against its definition, and its slope against differences.
func TestShapes(t *testing.T) {
	for shape, of := range map[Shape]func(r float64) float64{
		Exponential:        func(r float64) float64 { return math.Exp(-r) },
		Matern32:           func(r float64) float64 { return (1 + math.Sqrt(3)*r) * math.Exp(-math.Sqrt(3)*r) },
		Matern52:           func(r float64) float64 { return (1 + math.Sqrt(5)*r + 5*r*r/3) * math.Exp(-math.Sqrt(5)*r) },
		SquaredExponential: func(r float64) float64 { return math.Exp(-r * r / 2) },
	} {
		for _, r := range []float64{0, 0.01, 0.3, 1, 2.5, 10} {
			value, slope := shape.at(r * r)
			near(t, fmt.Sprintf("%v at %v", shape, r), value, of(r), 1e-14)
			if r > 0 {
				const step = 1e-6
				up, _ := shape.at(r*r + step*r)
				down, _ := shape.at(r*r - step*r)
				near(t, fmt.Sprintf("slope of %v at %v", shape, r), slope, (up-down)/(2*step*r), 1e-6*(1+math.Abs(slope)))
			}
		}
	}
}

// TestJitter: points that stand twice and noise far below rounding leave a singular matrix.
func TestJitter(t *testing.T) {
	x := make([]float64, 40)
	y := make([]float64, 40)
	for i := range x {
		x[i] = float64(i/2) / 100
		y[i] = math.Sin(x[i])
	}
	var r Regression
	must(t, r.Load(Kernel{Shape: SquaredExponential, Groups: []int{1}}, x, y))
	must(t, r.Condition(Hyper{0, 0, -40}))
	if j := r.factor.jitter; !(j >= firstJitter && j <= 1e-5) {
		t.Errorf("jitter %v", j)
	}
	p, err := r.Predict([]float64{0.105})
	must(t, err)
	near(t, "mean between two points", p.Mean, math.Sin(0.105), 1e-4)

	// Noise near what rounding leaves makes the variance negative at points that were seen, but for its bound.
	bounded := false
	for noise := -20.0; noise < -12; noise += 0.25 {
		must(t, r.Condition(Hyper{0, 0, noise}))
		for i := range x {
			p, err := r.Predict(x[i : i+1])
			must(t, err)
			if !(p.Variance >= 0 && p.Variance < 1e-4) {
				t.Errorf("noise e^%v: variance %v at a point that was seen", noise, p.Variance)
			}
			bounded = bounded || p.Variance == 0
		}
	}
	if !bounded {
		t.Error("no variance was bounded: the test shows nothing")
	}

	var f factor
	if err := f.set(2, []float64{1, 0, 3, 1}, []float64{1, 1}); err != ErrNotPositive {
		t.Errorf("an indefinite matrix: %v", err)
	}
	for _, bad := range []float64{0, math.NaN(), math.Inf(1)} {
		if err := f.set(1, []float64{bad}, []float64{1}); err != ErrNotPositive {
			t.Errorf("a diagonal of %v: %v", bad, err)
		}
	}
}

// TestMaximizeKeepsTheBest: however little effort is allowed, what is returned is the best of what was evaluated, and
// its evidence is the one that is stated.
func TestMaximizeKeepsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		r := p.load(t)
		starts := []Hyper{p.h}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			starts = append(starts, rapid.SliceOfN(rapid.Float64Range(-2, 2), len(p.h), len(p.h)).Draw(t, "start"))
		}
		priors := make([]Prior, len(p.h))
		for i := range priors {
			priors[i] = Prior{Deviation: math.Inf(1), Low: -3, High: 3}
		}
		// Enough for the first evaluation of each start, at least.
		effort := Effort{Evaluations: len(starts) + rapid.IntRange(0, 40).Draw(t, "evaluations"), Gradient: 1e-6}
		h, reached, err := r.Maximize(starts, priors, effort)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := r.Evidence(h, nil); err != nil || at != reached {
			t.Fatalf("evidence stated as %v is %v (%v)", reached, at, err)
		}
		for i, v := range h {
			if v < priors[i].Low || v > priors[i].High {
				t.Fatalf("hyper-parameters %v are out of bounds", h)
			}
		}
		for _, start := range starts {
			at, err := r.Evidence(start, nil)
			if err != nil || at > reached {
				t.Fatalf("evidence %v at start %v (%v), the best is %v", at, start, err, reached)
			}
		}
	})
}

func TestRegressionRefuses(t *testing.T) {
	one := Kernel{Groups: []int{1}}
	nan, inf := math.NaN(), math.Inf(1)
	for name, p := range map[string]problem{
		"no groups":        {kernel: Kernel{}, x: []float64{1}, y: []float64{1}},
		"an empty group":   {kernel: Kernel{Groups: []int{1, 0}}, x: []float64{1}, y: []float64{1}},
		"too many columns": {kernel: Kernel{Groups: []int{math.MaxInt, 1}}, x: []float64{1}, y: []float64{1}},
		"unknown shape":    {kernel: Kernel{Shape: 9, Groups: []int{1}}, x: []float64{1}, y: []float64{1}},
		"no points":        {kernel: one},
		"too many points":  {kernel: one, x: make([]float64, maxPoints+1), y: make([]float64, maxPoints+1)},
		"columns missing":  {kernel: Kernel{Groups: []int{2}}, x: []float64{1}, y: []float64{1}},
		"x not a number":   {kernel: one, x: []float64{nan}, y: []float64{1}},
		"x infinite":       {kernel: one, x: []float64{inf}, y: []float64{1}},
		"y not a number":   {kernel: one, x: []float64{1}, y: []float64{nan}},
		"y infinite":       {kernel: one, x: []float64{1}, y: []float64{-inf}},
		"y too large":      {kernel: one, x: []float64{1}, y: []float64{1e200}},
	} {
		var r Regression
		if err := r.Load(p.kernel, p.x, p.y); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := r.Condition(Hyper{0, 0, 0}); err == nil {
			t.Errorf("%s: conditioned all the same", name)
		}
	}

	var r Regression
	must(t, r.Load(one, []float64{1, 2}, []float64{1, 2}))
	if _, err := r.Predict([]float64{1}); err == nil {
		t.Error("predicted without hyper-parameters")
	}
	for _, h := range []Hyper{nil, {0, 0}, {0, 0, nan}, {0, inf, 0}, {51, 0, 0}} {
		if err := r.Condition(h); err == nil {
			t.Errorf("hyper-parameters %v: accepted", h)
		}
	}
	if _, err := r.Evidence(Hyper{0, 0, 0}, make([]float64, 2)); err == nil {
		t.Error("a gradient too short: accepted")
	}
	must(t, r.Condition(Hyper{0, 0, 0}))
	for _, x := range [][]float64{nil, {1, 2}, {nan}, {inf}} {
		if _, err := r.Predict(x); err == nil {
			t.Errorf("point %v: accepted", x)
		}
	}
	good, priors := []Hyper{{0, 0, 0}}, []Prior{free, free, free}
	for name, err := range map[string]error{
		"no start":     refusal(r.Maximize(nil, priors, Cold)),
		"no prior":     refusal(r.Maximize(good, nil, Cold)),
		"short start":  refusal(r.Maximize([]Hyper{{0}}, priors, Cold)),
		"bad bounds":   refusal(r.Maximize(good, []Prior{free, free, {Deviation: 1, Low: 1, High: 0}}, Cold)),
		"no deviation": refusal(r.Maximize(good, []Prior{free, free, {Low: 0, High: 1}}, Cold)),
		"no effort":    refusal(r.Maximize(good, priors, Effort{})),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func refusal(_ Hyper, _ float64, err error) error { return err }
