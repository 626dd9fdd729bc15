package gp

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Of few observations plain loops make of a covariance what the library makes.
func TestFewAreTakenApartAsMany(t *testing.T) {
	var plain, library factor
	library.general = true
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, handful).Draw(t, "n")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		a, k, y := make([]float64, n*n), make([]float64, n*n), make([]float64, n)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		for i := range n {
			y[i] = rng.NormFloat64()
			for j := range i + 1 {
				for l := range n {
					k[i*n+j] += a[i*n+l] * a[j*n+l]
				}
			}
			k[i*n+i] += rapid.Float64Range(1e-3, 10).Draw(t, "noise")
		}
		if rapid.IntRange(0, 9).Draw(t, "negative") == 0 {
			k[n*n-1] = -1e3
		}
		failed, other := plain.set(n, k, y), library.set(n, k, y)
		if failed != other || !plain.few() || library.few() {
			t.Fatalf("%v, by the library %v", failed, other)
		}
		if failed != nil {
			return
		}
		alike(t, "evidence", plain.evidence(y), library.evidence(y))
		plain.invert()
		library.invert()
		for i := range n {
			alike(t, "alpha", plain.alpha[i], library.alpha[i])
			for j := range i + 1 {
				alike(t, "l", plain.l[i*n+j], library.l[i*n+j])
				alike(t, "inverse", plain.inverse[i*n+j], library.inverse[i*n+j])
			}
		}
	})
}

func alike(t *rapid.T, what string, a, b float64) {
	if !(math.Abs(a-b) <= 1e-7*(1+math.Abs(b))) {
		t.Fatalf("%s: %v, by the library %v", what, a, b)
	}
}

// Forecasts from few values are the same either way, of one step and of several.
func TestFewForecastAsMany(t *testing.T) {
	config := Config{Shape: Exponential, History: 3, Patterns: 7, Time: true}
	plain, err := NewForecaster(config)
	if err != nil {
		t.Fatal(err)
	}
	library, err := NewForecaster(config)
	if err != nil {
		t.Fatal(err)
	}
	library.reg.factor.general = true
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		window := make([]float64, 10)
		level := 5 * rng.Float64()
		for i := range window {
			level += 0.3 * rng.NormFloat64()
			window[i] = level
		}
		hyper, _, err := library.Fit(window, nil, Effort{Evaluations: 30, Gradient: 0.2})
		if err != nil {
			t.Fatal(err)
		}
		found, _, err := plain.Fit(window, nil, Effort{Evaluations: 30, Gradient: 0.2})
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range hyper {
			if !(math.Abs(found[i]-h) <= 1e-6) {
				t.Fatalf("window %v: hyper-parameters %v, by the library %v", window, found, hyper)
			}
		}
		for _, ahead := range []int{1, 4} {
			mean, variance, mean2, variance2 := make([]float64, ahead), make([]float64, ahead), make([]float64, ahead), make([]float64, ahead)
			if err := plain.Forecast(window, hyper, mean, variance); err != nil {
				t.Fatal(err)
			}
			if err := library.Forecast(window, hyper, mean2, variance2); err != nil {
				t.Fatal(err)
			}
			for i := range mean {
				if !(math.Abs(mean[i]-mean2[i]) <= 1e-10*(1+math.Abs(mean2[i]))) || !(math.Abs(variance[i]-variance2[i]) <= 1e-9*variance2[i]) {
					t.Fatalf("window %v, step %d: %v ± %v, by the library %v ± %v", window, i, mean[i], variance[i], mean2[i], variance2[i])
				}
			}
		}
	}
}

// BenchmarkFew fits and forecasts as replays of Pace do it, by plain loops and by the library.
func BenchmarkFew(b *testing.B) {
	for _, general := range []bool{true, false} {
		name := "plain"
		if general {
			name = "library"
		}
		f, err := NewForecaster(Config{Shape: Exponential, History: 3, Patterns: 7, Time: true})
		if err != nil {
			b.Fatal(err)
		}
		f.reg.factor.general = general
		rng := rand.New(rand.NewPCG(1, 0))
		series := make([]float64, 1000)
		for i := range series {
			series[i] = 5 + rng.NormFloat64()
		}
		hyper, _, err := f.Fit(series[:10], nil, Cold)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("fit/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i % 990
				if _, _, err := f.Fit(series[at:at+10], hyper, Effort{Evaluations: 8, Gradient: 0.2}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("forecast/"+name, func(b *testing.B) {
			var mean, variance [1]float64
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i % 990
				if err := f.Forecast(series[at:at+10], hyper, mean[:], variance[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
