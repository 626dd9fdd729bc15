package arima

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// fuses says whether this machine's compiler makes one operation of a product and a sum, which rounds once: then what is
// written in two ways need not agree to the last bit.
func fuses() bool {
	g := noise(3)
	for range 20 {
		x, y := g.next(), g.next()
		if x*y-float64(x*y) != 0 {
			return true
		}
	}
	return false
}

// shortSeries draws what replays fit models to: some ten values, of which several may be equal or on a line.
func shortSeries(t *rapid.T) []float64 {
	n := rapid.IntRange(5, 14).Draw(t, "n")
	y := make([]float64, n)
	value := rapid.Float64Range(-1e9, 1e9)
	if rapid.Bool().Draw(t, "small") {
		value = rapid.Float64Range(0, 6)
	}
	level, slope := value.Draw(t, "level"), 0.0
	for i := range y {
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			level = value.Draw(t, "level")
		case 1:
			slope = value.Draw(t, "slope") / 20
		case 2:
			slope = 0
		}
		level += slope
		y[i] = level
	}
	return y
}

// A search by short ways finds what one without them does, to the last bit, and counts as many evaluations.
func TestShortcutsChangeNothing(t *testing.T) {
	if fuses() {
		t.Skip("products and sums are fused here")
	}
	short, long := new(Fitter), new(Fitter)
	long.o.general = true
	rapid.Check(t, func(t *rapid.T) {
		y := shortSeries(t)
		b := Bounds{P: rapid.IntRange(0, 2).Draw(t, "P"), Q: rapid.IntRange(0, 2).Draw(t, "Q"), D: rapid.IntRange(-1, 1).Draw(t, "D"), Drift: rapid.Bool().Draw(t, "drift"),
			Criterion: rapid.SampledFrom([]Criterion{AIC, AICc, BIC}).Draw(t, "criterion"), Models: rapid.IntRange(0, 6).Draw(t, "models"),
			Evaluations: rapid.SampledFrom([]int{0, 40, 100}).Draw(t, "evaluations")}
		o := Options{Evaluations: rapid.SampledFrom([]int{0, 20, 60}).Draw(t, "each"), Tolerance: rapid.SampledFrom([]float64{0, 1e-4}).Draw(t, "tolerance"),
			Starts: rapid.IntRange(0, 3).Draw(t, "starts"), StdErr: rapid.Bool().Draw(t, "errors")}
		if rapid.IntRange(0, 4).Draw(t, "gap") == 0 {
			y[rapid.IntRange(0, len(y)-1).Draw(t, "where")] = math.NaN()
		}
		a, failed := short.Search(y, b, o)
		c, alsoFailed := long.Search(y, b, o)
		if (failed == nil) != (alsoFailed == nil) || a.Tried != c.Tried || a.Refused != c.Refused || a.Spent != c.Spent {
			t.Fatalf("%+v, %v; without short ways %+v, %v", a, failed, c, alsoFailed)
		}
		if failed != nil {
			if failed.Error() != alsoFailed.Error() {
				t.Fatalf("%v; without short ways %v", failed, alsoFailed)
			}
			return
		}
		sameModel(t, a.Model, c.Model)
		one, failed := short.Fit(y, a.Spec, o)
		other, alsoFailed := long.Fit(y, a.Spec, o)
		if (failed == nil) != (alsoFailed == nil) {
			t.Fatalf("a fit: %v; without short ways %v", failed, alsoFailed)
		}
		if failed == nil {
			sameModel(t, one, other)
		}
	})
}

func sameModel(t *rapid.T, a, b *Model) {
	if a.Spec != b.Spec || !same(a.Params.AR, b.Params.AR) || !same(a.Params.MA, b.Params.MA) || a.Params.Mean != b.Params.Mean || a.Params.Sigma2 != b.Params.Sigma2 ||
		a.LogLik != b.LogLik || a.Converged != b.Converged || a.Evaluations != b.Evaluations || a.edge != b.edge || !same(a.StdErr, b.StdErr) || !same(a.state, b.state) {
		t.Fatalf("%v %+v %v; without short ways %v %+v %v", a.Spec, a.Params, a.LogLik, b.Spec, b.Params, b.LogLik)
	}
}

// same compares values, of which some may be no numbers.
func same(a, b []float64) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			return false
		}
	}
	return len(a) == len(b)
}

// The likelihood by one pass is that by moments, gains and filter, and the innovations are the same.
func TestSingleIsTheGeneral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{P: rapid.IntRange(0, 1).Draw(t, "P"), Q: rapid.IntRange(0, 1).Draw(t, "Q"), D: rapid.IntRange(0, 2).Draw(t, "D"), Mean: rapid.Bool().Draw(t, "mean")}
		y := simulated(rapid.Uint64Range(1, 1<<40).Draw(t, "seed"), rapid.IntRange(9, 60).Draw(t, "n"), Spec{P: 1}, Params{AR: []float64{0.7}})
		var short, long objective
		long.general = true
		u := make([]float64, s.coefficients())
		for _, o := range []*objective{&short, &long} {
			if err := o.prepare(s, y, nil); err != nil {
				t.Fatal(err)
			}
			o.c.reset(s)
		}
		for range 5 {
			for i := range u {
				u[i] = rapid.Float64Range(-11.5, 11.5).Draw(t, "u")
			}
			a, b := short.at(u), long.at(u)
			tolerance := 0.0
			if fuses() {
				tolerance = 1e-6 * (1 + math.Abs(b))
			}
			if !short.single() || !(math.Abs(a-b) <= tolerance) && a != b {
				t.Fatalf("%v at %v: %v, by the general way %v", s, u, a, b)
			}
			if !fuses() && (!reflect.DeepEqual(short.e, long.e) || !same(short.beta, long.beta)) {
				t.Fatalf("%v at %v: innovations %v, by the general way %v", s, u, short.e, long.e)
			}
		}
	})
}

// To be set to a series is to have followed it value by value, to the last bit, also where only the former has a short way.
func TestRunSingleIsStep(t *testing.T) {
	if fuses() {
		t.Skip("products and sums are fused here")
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{P: rapid.IntRange(0, 1).Draw(t, "P"), Q: rapid.IntRange(0, 1).Draw(t, "Q"), Mean: rapid.Bool().Draw(t, "mean")}
		p := Params{Sigma2: 2}
		coefficient := rapid.Float64Range(-0.9999, 0.9999)
		for range s.P {
			p.AR = append(p.AR, coefficient.Draw(t, "ar"))
		}
		for range s.Q {
			p.MA = append(p.MA, coefficient.Draw(t, "ma"))
		}
		if s.Mean {
			p.Mean = rapid.Float64Range(-5, 5).Draw(t, "mean")
		}
		y := shortSeries(t)
		if rapid.IntRange(0, 3).Draw(t, "gap") == 0 {
			y[rapid.IntRange(0, len(y)-1).Draw(t, "where")] = math.NaN()
		}
		set, err := At(s, p, y, nil)
		if err != nil {
			t.Fatal(err)
		}
		followed, err := At(s, p, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := 0
		for first < len(y) && math.IsNaN(y[first]) {
			first++
		}
		check := func() {
			var mean, variance, mean2, variance2 [3]float64
			if err := errors.Join(set.Forecast(mean[:], variance[:]), followed.Forecast(mean2[:], variance2[:])); err != nil {
				t.Fatal(err)
			}
			a, b := &set.cov, &followed.cov
			if mean != mean2 || variance != variance2 || !same(set.state, followed.state) || !same(a.p, b.p) || a.f != b.f || !same(a.gain, b.gain) || a.steady != b.steady || a.steady && a.known != b.known {
				t.Fatalf("%v %+v: set %v %v %+v, followed %v %v %+v", s, p, mean, variance, a, mean2, variance2, b)
			}
		}
		for _, v := range y[first:] {
			_ = followed.Update(v)
		}
		check()
		for _, v := range []float64{1, math.NaN(), -2, 3} {
			_, _ = set.Update(v), followed.Update(v)
		}
		check()
	})
}

// BenchmarkSearchOfTen is a search as replays of Pace do it, with short ways and without.
func BenchmarkSearchOfTen(b *testing.B) {
	for _, general := range []bool{true, false} {
		name := "short ways"
		if general {
			name = "without"
		}
		b.Run(name, func(b *testing.B) {
			var f Fitter
			f.o.general = general
			b.ReportAllocs()
			i, before := 0, processor(b)
			for b.Loop() {
				k := kinds[i%len(kinds)].y
				from := i / len(kinds) * 7 % (len(k) - 10)
				if _, err := f.Search(k[from:from+10], Bounds{P: 1, Q: 1, D: -1, Criterion: AIC, Models: 5}, Options{Evaluations: 60, Tolerance: 1e-4, Starts: 1}); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric((processor(b)-before)/float64(b.N), "cpu-us/op")
		})
	}
}
