package gp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// workload is a made-up CPU series of n values: a daily wave, noise that remembers, and jumps.
func workload(seed uint64, n int) []float64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	values := make([]float64, n)
	level, memory := 2.0, 0.0
	for i := range values {
		if rng.Float64() < 0.03 {
			level = 4 * rng.Float64()
		}
		memory = 0.7*memory + 0.2*rng.NormFloat64()
		values[i] = level + 0.5*math.Sin(2*math.Pi*float64(i)/24) + memory
	}
	return values
}

func forecaster(t testing.TB, c Config) *Forecaster {
	t.Helper()
	f, err := NewForecaster(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What production does for a series at 50 patterns of 10 values: search for hyper-parameters, then 10 steps ahead.
func BenchmarkFitAndForecast(b *testing.B) {
	for _, c := range []Config{
		{Shape: Exponential, History: 10, Patterns: 50},
		{Shape: Exponential, History: 10, Patterns: 50, Time: true},
		{Shape: Matern52, History: 10, Patterns: 50},
	} {
		f := forecaster(b, c)
		mean, variance := make([]float64, 10), make([]float64, 10)
		series := make([][]float64, 20)
		fitted := make([]Hyper, len(series))
		for i := range series {
			series[i] = workload(uint64(i), f.Window()+1)
			h, _, err := f.Fit(series[i][:f.Window()], nil, Cold)
			must(b, err)
			fitted[i] = h
		}
		for _, start := range []string{"cold", "warm", "slide"} {
			b.Run(fmt.Sprintf("%v time=%v/%s", c.Shape, c.Time, start), func(b *testing.B) {
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					i := n % len(series)
					window, h := series[i][1:], fitted[i]
					var err error
					switch start {
					case "cold":
						h, _, err = f.Fit(window, nil, Cold)
					case "warm":
						h, _, err = f.Fit(window, h, Warm)
					}
					must(b, err)
					must(b, f.Forecast(window, h, mean, variance))
				}
			})
		}
	}
}

func BenchmarkEvidence(b *testing.B) {
	for _, n := range []int{25, 50, 100} {
		f := forecaster(b, Config{Shape: Exponential, History: 10, Patterns: n})
		must(b, f.load(workload(1, f.Window()), 1))
		must(b, f.reg.Load(f.kernel, f.x, f.y))
		h := f.cold[0]
		gradient := make([]float64, len(h))
		for _, with := range []struct {
			name     string
			gradient []float64
		}{{"alone", nil}, {"gradient", gradient}} {
			b.Run(fmt.Sprintf("n=%d/%s", n, with.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, err := f.reg.Evidence(h, with.gradient)
					must(b, err)
				}
			})
		}
	}
}
