package arima

import (
	"math"
	"syscall"
	"testing"
)

// noise is a small generator of its own (xorshift and Box-Muller), so that a series is the same for ever.
type noise uint64

func (n *noise) next() float64 {
	*n ^= *n << 13
	*n ^= *n >> 7
	*n ^= *n << 17
	return (float64(*n>>11) + 0.5) / (1 << 53)
}

func (n *noise) normal() float64 {
	return math.Sqrt(-2*math.Log(n.next())) * math.Cos(2*math.Pi*n.next())
}

// simulated is a series of n values from a model, after 300 that are thrown away.
func simulated(seed uint64, n int, s Spec, p Params) []float64 {
	g := noise(seed*2654435761 + 88172645463325252)
	for range 8 {
		g.next()
	}
	start := make([]float64, s.lags()+s.coefficients()+8)
	q := p
	if q.Sigma2 == 0 {
		q.Sigma2 = 1
	}
	m, err := At(s, q, start, nil)
	if err != nil {
		panic(err)
	}
	var out []float64
	mean, variance := make([]float64, 1), make([]float64, 1)
	for range n + 300 {
		if err := m.Forecast(mean, variance); err != nil {
			panic(err)
		}
		y := mean[0] + math.Sqrt(q.Sigma2)*g.normal()
		out = append(out, y)
		if err := m.Update(y); err != nil {
			panic(err)
		}
	}
	return out[300:]
}

// kinds are series of 200 values of the sorts that use looks like.
var kinds = []struct {
	name string
	y    []float64
}{
	{"ar1", simulated(1, 200, Spec{P: 1, Mean: true}, Params{AR: []float64{0.8}, Mean: 5})},
	{"arma21", simulated(2, 200, Spec{P: 2, Q: 1, Mean: true}, Params{AR: []float64{1.2, -0.4}, MA: []float64{0.5}, Mean: 20})},
	{"ima", simulated(3, 200, Spec{D: 1, Q: 1}, Params{MA: []float64{-0.6}})},
	{"arima212", simulated(4, 200, Spec{P: 2, D: 1, Q: 2}, Params{AR: []float64{0.5, -0.3}, MA: []float64{0.4, 0.2}})},
	{"white", simulated(5, 200, Spec{Mean: true}, Params{Mean: 1})},
	{"nearunit", simulated(6, 200, Spec{P: 1, Q: 1, Mean: true}, Params{AR: []float64{0.98}, MA: []float64{-0.9}, Mean: 1})},
}

// processor is the processor time that this process has used, in microseconds: unlike the time on the clock it does not
// count what other work on the machine took.
func processor(b *testing.B) float64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Sec+use.Stime.Sec)*1e6 + float64(use.Utime.Usec+use.Stime.Usec)
}

func BenchmarkSearch(b *testing.B) {
	for _, full := range []bool{false, true} {
		for _, k := range kinds {
			name := k.name + "/stepwise"
			if full {
				name = k.name + "/full"
			}
			b.Run(name, func(b *testing.B) {
				var f Fitter
				b.ReportAllocs()
				evals, before := 0, processor(b)
				for b.Loop() {
					found, err := f.Search(k.y, Bounds{P: 3, Q: 3, D: -1, Full: full}, Options{})
					if err != nil {
						b.Fatal(err)
					}
					evals = found.Tried
				}
				b.ReportMetric((processor(b)-before)/float64(b.N), "cpu-us/op")
				b.ReportMetric(float64(evals), "models")
			})
		}
	}
}

func BenchmarkSearchWarm(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			var f Fitter
			bounds := Bounds{P: 3, Q: 3, D: -1}
			found, err := f.Search(k.y[:199], bounds, Options{})
			if err != nil {
				b.Fatal(err)
			}
			bounds.From = found.Model
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				if _, err := f.Search(k.y, bounds, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processor(b)-before)/float64(b.N), "cpu-us/op")
		})
	}
}

func BenchmarkFit(b *testing.B) {
	for _, s := range []Spec{{P: 1, Mean: true}, {P: 1, D: 1, Q: 1}, {P: 3, Q: 3, Mean: true}, {D: 1, Q: 1, SD: 1, SQ: 1, Period: 12}} {
		b.Run(s.String(), func(b *testing.B) {
			var f Fitter
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				if _, err := f.Fit(kinds[1].y, s, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processor(b)-before)/float64(b.N), "cpu-us/op")
		})
	}
}

func BenchmarkRefitWarm(b *testing.B) {
	for _, s := range []Spec{{P: 1, Mean: true}, {P: 1, D: 1, Q: 1}, {P: 2, Q: 1, Mean: true}} {
		b.Run(s.String(), func(b *testing.B) {
			var f Fitter
			y := kinds[1].y
			m, err := f.Fit(y[:199], s, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				if err := f.Refit(m, y[1:], Options{}); err != nil {
					b.Fatal(err)
				}
				if err := f.Refit(m, y, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processor(b)-before)/float64(2*b.N), "cpu-us/refit")
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, s := range []Spec{{P: 1, Mean: true}, {P: 2, D: 1, Q: 2}, {P: 3, Q: 3, Mean: true}} {
		m, err := Fit(kinds[1].y, s, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = m.Update(20)
			}
		})
		b.Run(s.String()+"/gap", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = m.Update(math.NaN())
				_ = m.Update(20)
			}
		})
		b.Run(s.String()+"/forecast10", func(b *testing.B) {
			mean, variance := make([]float64, 10), make([]float64, 10)
			_ = m.Update(20)
			b.ReportAllocs()
			for b.Loop() {
				_ = m.Forecast(mean, variance)
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	for _, s := range []Spec{{P: 1, Mean: true}, {P: 2, D: 1, Q: 2}, {P: 3, Q: 3, Mean: true}} {
		fit, err := Fit(kinds[1].y, s, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.String(), func(b *testing.B) {
			var m Model
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Set(s, fit.Params, kinds[1].y, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
