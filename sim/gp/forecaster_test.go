package gp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestNewForecasterRefuses(t *testing.T) {
	for _, c := range []Config{
		{},
		{History: 0, Patterns: 50},
		{History: 101, Patterns: 50},
		{History: 10, Patterns: 3},
		{History: 10, Patterns: 501},
		{History: 10, Patterns: 50, Shape: SquaredExponential + 1},
	} {
		if _, err := NewForecaster(c); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}

// TestPatterns says for small windows which patterns are learned from.
func TestPatterns(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		patterns int
		window   []float64
		ahead    int
		x        [][]float64 // in the unit of the window
		outcomes [][]float64
		latest   []float64
	}{
		{
			"whole", 10, []float64{1, 2, 4, 8, 16, 32, 64}, 2,
			[][]float64{{1, 2}, {2, 4}, {4, 8}, {8, 16}, {16, 32}},
			[][]float64{{4, 8}, {8, 16}, {16, 32}, {32, 64}, {64}},
			[]float64{32, 64},
		}, {
			"the latest only", 4, []float64{1, 2, 4, 8, 16, 32, 64}, 1,
			[][]float64{{2, 4}, {4, 8}, {8, 16}, {16, 32}},
			[][]float64{{8}, {16}, {32}, {64}},
			[]float64{32, 64},
		}, {
			"a gap", 10, []float64{1, 2, 4, 8, 16, nan, 64, 128, 256, 512, 1024, 2048}, 2,
			[][]float64{{1, 2}, {2, 4}, {64, 128}, {128, 256}, {256, 512}, {512, 1024}},
			[][]float64{{4, 8}, {8, 16}, {256, 512}, {512, 1024}, {1024, 2048}, {2048}},
			[]float64{1024, 2048},
		}, {
			"the last one missing", 10, []float64{1, 2, 4, 8, 16, 32, nan}, 1,
			[][]float64{{1, 2}, {2, 4}, {4, 8}, {8, 16}},
			[][]float64{{4}, {8}, {16}, {32}},
			[]float64{32, 32},
		},
	} {
		f := forecaster(t, Config{History: 2, Patterns: c.patterns, Time: true})
		if err := f.load(c.window, c.ahead); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		raw := func(z []float64) (v []float64) {
			for _, z := range z {
				v = append(v, math.Round(1e6*(f.center+f.spread*z))/1e6)
			}
			return v
		}
		var x, outcomes [][]float64
		for p, i := range f.places {
			x = append(x, raw(f.x[3*p+1:3*p+3]))
			outcomes = append(outcomes, raw(f.z[i:min(i+c.ahead, len(f.z))]))
			if want := float64(i-len(f.z)) / float64(c.patterns); f.x[3*p] != want {
				t.Errorf("%s: pattern %d has time %v, want %v", c.name, p, f.x[3*p], want)
			}
		}
		for what, pair := range map[string][2]any{
			"patterns": {x, c.x}, "outcomes": {outcomes, c.outcomes}, "latest": {raw(f.latest[1:]), c.latest},
		} {
			if got, want := fmt.Sprint(pair[0]), fmt.Sprint(pair[1]); got != want {
				t.Errorf("%s: %s %s, want %s", c.name, what, got, want)
			}
		}
	}
}

// TestStepIsThatOfARegressionOfItsOwn holds what the shared factor says of a step against a Regression of the patterns
// whose outcome at that step is known, with noise and scale chosen the same way.
func TestStepIsThatOfARegressionOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Shape:    Shape(rapid.IntRange(0, int(SquaredExponential)).Draw(t, "shape")),
			History:  rapid.IntRange(1, 4).Draw(t, "history"),
			Patterns: rapid.IntRange(8, 20).Draw(t, "patterns"),
			Time:     rapid.Bool().Draw(t, "time"),
		}
		f, err := NewForecaster(c)
		if err != nil {
			t.Fatal(err)
		}
		window := workload(rapid.Uint64().Draw(t, "seed"), f.Window())
		const ahead = 4
		hyper := Hyper(rapid.SliceOfN(rapid.Float64Range(-1, 1), f.Hypers(), f.Hypers()).Draw(t, "hyper"))
		mean, variance := make([]float64, ahead), make([]float64, ahead)
		if err := f.Forecast(window, hyper, mean, variance); err != nil {
			t.Fatal(err)
		}
		widest := 0.0
		d := f.kernel.columns()
		for k := range ahead {
			var x, y []float64
			for p, i := range f.places {
				if i+k < len(f.z) {
					x, y = append(x, f.x[p*d:(p+1)*d]...), append(y, f.z[i+k])
				}
			}
			if len(y) != c.Patterns-k {
				t.Fatalf("step %d: %d patterns, want %d", k, len(y), c.Patterns-k)
			}
			var r Regression
			if err := r.Load(f.kernel, x, y); err != nil {
				t.Fatal(err)
			}
			best, want := math.Inf(-1), Prediction{}
			n := float64(len(y))
			for _, more := range noises {
				h := slices.Clone(hyper)
				h[len(h)-1] += more
				if err := r.Condition(h); err != nil {
					t.Fatal(err)
				}
				square := 0.0 // yᵀK⁻¹y
				for i, a := range r.factor.alpha {
					square += a * y[i]
				}
				// The evidence of s²K, with y and one more observation of square 1.
				s2 := (square + 1) / (n + 1)
				evidence := r.factor.evidence(y) + square/2 - (n+1)/2*math.Log(s2) - more*more/8
				if evidence > best {
					best = evidence
					want, _ = r.Predict(f.latest)
					want.Observed *= s2
				}
			}
			widest = max(widest, want.Observed)
			gotMean, gotVariance := (mean[k]-f.center)/f.spread, variance[k]/(f.spread*f.spread)
			if math.Abs(gotMean-want.Mean) > 1e-6*(1+math.Abs(want.Mean)) || math.Abs(gotVariance-widest) > 1e-6*widest {
				t.Fatalf("step %d: mean %v, variance %v, want %v, %v", k, gotMean, gotVariance, want.Mean, widest)
			}
		}
	})
}

// series draws windows as they come: workloads, constant ones, jumps, spikes, tiny noise, with and without gaps.
func series(t *rapid.T) []float64 {
	n := rapid.IntRange(0, 90).Draw(t, "length")
	values := make([]float64, n)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	level := rapid.SampledFrom([]float64{0, 1, -3, 1e9, 1e-9, 1e90, 1e-90, 5e-324}).Draw(t, "level")
	noise := rapid.SampledFrom([]float64{0, 1e-14, 1e-9, 0.1, 1}).Draw(t, "noise")
	wave := rapid.SampledFrom([]float64{0, 0, 1}).Draw(t, "wave")
	jump := rapid.IntRange(0, 90).Draw(t, "jump")
	spike := rapid.IntRange(0, 90).Draw(t, "spike")
	gaps := rapid.SampledFrom([]float64{0, 0, 0.02, 0.5, 1}).Draw(t, "gaps")
	for i := range values {
		v := 1 + noise*rng.NormFloat64() + wave*math.Sin(float64(i)/3)
		if i >= jump {
			v += 5
		}
		if i == spike {
			v *= 1000
		}
		values[i] = level * v
		if rng.Float64() < gaps {
			values[i] = math.NaN()
		}
	}
	return values
}

func TestForecastsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := NewForecaster(Config{
			Shape:    Shape(rapid.IntRange(0, int(SquaredExponential)).Draw(t, "shape")),
			History:  rapid.IntRange(1, 12).Draw(t, "history"),
			Patterns: rapid.IntRange(4, 40).Draw(t, "patterns"),
			Time:     rapid.Bool().Draw(t, "time"),
		})
		if err != nil {
			t.Fatal(err)
		}
		window := series(t)
		ahead := rapid.IntRange(0, 12).Draw(t, "ahead")
		checkForecast(t, f, window, ahead, 30)
	})
}

// checkForecast fits and forecasts, and checks what must hold of any window.
func checkForecast(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *Forecaster, window []float64, ahead, evaluations int) {
	t.Helper()
	given := slices.Clone(window)
	hyper, evidence, err := f.Fit(window, nil, Effort{Evaluations: evaluations, Gradient: 0.1})
	switch {
	case errors.Is(err, ErrTooFew), errors.Is(err, ErrConstant):
		hyper = f.cold[0] // a forecast of more steps looks further back, where there may be change
	case err != nil:
		for _, v := range window {
			if math.Abs(v) > 1e100 {
				return // refused, as it must be
			}
		}
		t.Fatalf("fit: %v", err)
	case math.IsNaN(evidence) || len(hyper) != f.Hypers():
		t.Fatalf("evidence %v of %v", evidence, hyper)
	}
	untouched := make([]float64, ahead)
	mean, variance := slices.Clone(untouched), slices.Clone(untouched)
	if err := f.Forecast(window, hyper, mean, variance); err != nil {
		if !errors.Is(err, ErrTooFew) {
			t.Fatalf("forecast: %v", err)
		}
		if !slices.Equal(mean, untouched) || !slices.Equal(variance, untouched) {
			t.Fatalf("refused, and yet says %v, %v", mean, variance)
		}
	}
	for k := range mean {
		if math.IsNaN(mean[k]) || math.IsInf(mean[k], 0) || !(variance[k] >= 0) || math.IsInf(variance[k], 0) {
			t.Fatalf("step %d of %v: mean %v, variance %v", k, window, mean[k], variance[k])
		}
		if k > 0 && variance[k] < variance[k-1] {
			t.Fatalf("variance falls at step %d: %v", k, variance)
		}
	}
	for i := range window {
		if window[i] != given[i] && !math.IsNaN(given[i]) {
			t.Fatalf("the window was changed at %d", i)
		}
	}
}

func FuzzForecast(f *testing.F) {
	f.Add([]byte("a series of bytes that go up and down, as words do, over and over again"), uint8(10), uint8(4))
	f.Add(make([]byte, 80), uint8(3), uint8(10))
	f.Fuzz(func(t *testing.T, text []byte, ahead, history uint8) {
		if len(text) > 80 {
			return
		}
		window := make([]float64, len(text))
		for i, b := range text {
			switch b {
			case 255:
				window[i] = math.NaN()
			case 254:
				window[i] = math.Inf(1)
			case 253:
				window[i] = -1e300
			case 252:
				window[i] = math.SmallestNonzeroFloat64
			default:
				window[i] = float64(b)
			}
		}
		c := Config{Shape: Shape(history % 4), History: 1 + int(history%12), Patterns: 20, Time: history%2 == 0}
		checkForecast(t, forecaster(t, c), window, int(ahead%15), 6)
	})
}

func TestForecastOfAConstant(t *testing.T) {
	f := forecaster(t, Default)
	for _, v := range []float64{0, 0.1, -7, 1e99, 1e-300} {
		window := slices.Repeat([]float64{v}, 60)
		if v != 1e-300 {
			window = slices.Repeat([]float64{v, math.Nextafter(v, 2*v)}, 30) // as sums in another order leave it
		}
		if _, _, err := f.Fit(window, nil, Cold); !errors.Is(err, ErrConstant) {
			t.Errorf("fit of %v: %v", v, err)
		}
		mean, variance := make([]float64, 3), make([]float64, 3)
		must(t, f.Forecast(window, nil, mean, variance))
		for k := range mean {
			if math.Abs(mean[k]-v) > 1e-12*math.Abs(v) || variance[k] != 0 {
				t.Errorf("%v: step %d is %v ± %v", v, k, mean[k], variance[k])
			}
		}
	}
}

func TestForecastRefuses(t *testing.T) {
	f := forecaster(t, Default)
	good := workload(3, 60)
	hyper, _, err := f.Fit(good, nil, Cold)
	must(t, err)
	with := func(i int, v float64) []float64 {
		w := slices.Clone(good)
		w[i] = v
		return w
	}
	silent := slices.Clone(good)
	for i := 54; i < 60; i++ {
		silent[i] = math.NaN()
	}
	for name, c := range map[string]struct {
		window []float64
		hyper  Hyper
		means  int
		few    bool
	}{
		"infinite":               {with(30, math.Inf(1)), hyper, 5, false},
		"too large":              {with(59, -1e101), hyper, 5, false},
		"no window":              {nil, hyper, 5, true},
		"a short window":         {good[:17], hyper, 5, true},
		"most of it not known":   {silent, hyper, 5, true},
		"no hyper-parameters":    {good, nil, 5, false},
		"hyper-parameters amiss": {good, Hyper{0, 0, 0, math.NaN()}, 5, false},
		"too many steps":         {good, hyper, 48, true},
		"lengths differ":         {good, hyper, 4, false},
	} {
		variances := 5
		if c.means > 5 {
			variances = c.means
		}
		err := f.Forecast(c.window, c.hyper, make([]float64, c.means), make([]float64, variances))
		if err == nil || errors.Is(err, ErrTooFew) != c.few {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, f.Forecast(good[:18], hyper, make([]float64, 5), make([]float64, 5)))
	must(t, f.Forecast(good, hyper, make([]float64, 47), make([]float64, 47)))
	must(t, f.Forecast(good, hyper, nil, nil))
}

// TestForecastFollowsAWave: what comes back in the window is found again, and known to be certain.
func TestForecastFollowsAWave(t *testing.T) {
	for shape := Exponential; shape <= SquaredExponential; shape++ {
		f := forecaster(t, Config{Shape: shape, History: 10, Patterns: 50})
		wave := make([]float64, 70)
		for i := range wave {
			wave[i] = 3 + math.Sin(2*math.Pi*float64(i)/12)
		}
		hyper, _, err := f.Fit(wave[:60], nil, Cold)
		must(t, err)
		mean, variance := make([]float64, 10), make([]float64, 10)
		must(t, f.Forecast(wave[:60], hyper, mean, variance))
		for k := range mean {
			if math.Abs(mean[k]-wave[60+k]) > 0.02 || variance[k] > 0.1*0.1 {
				t.Errorf("%v: step %d is %v ± %v, came %v", shape, k, mean[k], math.Sqrt(variance[k]), wave[60+k])
			}
		}
	}
}

// TestForecastCoversNoise: of independent values nothing but mean and deviation can be known, and both are found.
func TestForecastCoversNoise(t *testing.T) {
	f := forecaster(t, Default)
	rng := rand.New(rand.NewPCG(5, 5))
	const steps, runs = 5, 60
	covered := 0
	mean, variance := make([]float64, steps), make([]float64, steps)
	for range runs {
		values := make([]float64, f.Window()+steps)
		for i := range values {
			values[i] = 10 + rng.NormFloat64()
		}
		hyper, _, err := f.Fit(values[:f.Window()], nil, Cold)
		must(t, err)
		must(t, f.Forecast(values[:f.Window()], hyper, mean, variance))
		for k, v := range values[f.Window():] {
			if math.Abs(v-mean[k]) < 1.96*math.Sqrt(variance[k]) {
				covered++
			}
		}
	}
	if share := float64(covered) / (steps * runs); share < 0.88 || share > 0.99 {
		t.Errorf("intervals of 95%% cover %.1f%%", 100*share)
	}
}

// TestForecastScales: the unit of the values changes nothing but the unit of what is predicted.
func TestForecastScales(t *testing.T) {
	f := forecaster(t, Default)
	window := workload(7, 60)
	predict := func(factor, offset float64) (mean, variance []float64) {
		values := slices.Clone(window)
		for i := range values {
			values[i] = factor*values[i] + offset
		}
		hyper, _, err := f.Fit(values, nil, Cold)
		must(t, err)
		mean, variance = make([]float64, 10), make([]float64, 10)
		must(t, f.Forecast(values, hyper, mean, variance))
		return mean, variance
	}
	mean, variance := predict(1, 0)
	other, wider := predict(1<<40, 1<<40)
	for k := range mean {
		near(t, "mean", other[k]/(1<<40)-1, mean[k], 1e-4)
		near(t, "variance", wider[k]/(1<<40)/(1<<40), variance[k], 1e-4)
	}
}

// TestForecasterKeepsNothing: what one series said does not show in what is said of the next.
func TestForecasterKeepsNothing(t *testing.T) {
	used := forecaster(t, Default)
	a, b := workload(1, 60), workload(2, 41)
	for _, w := range [][]float64{a, b, a} {
		fresh := forecaster(t, Default)
		h, e, err := used.Fit(w, nil, Cold)
		must(t, err)
		g, d, err := fresh.Fit(w, nil, Cold)
		must(t, err)
		m, v, n, u := make([]float64, 8), make([]float64, 8), make([]float64, 8), make([]float64, 8)
		must(t, used.Forecast(w, h, m, v))
		must(t, fresh.Forecast(w, g, n, u))
		if e != d || !slices.Equal(h, g) || !slices.Equal(m, n) || !slices.Equal(v, u) {
			t.Errorf("a used one says %v %v, a fresh one %v %v", m, v, n, u)
		}
	}
}

func TestForecastDoesNotAllocate(t *testing.T) {
	f := forecaster(t, Default)
	values := workload(4, 200)
	hyper, _, err := f.Fit(values[:60], nil, Cold)
	must(t, err)
	mean, variance := make([]float64, 10), make([]float64, 10)
	i := 0
	if n := testing.AllocsPerRun(50, func() {
		i++
		must(t, f.Forecast(values[i:i+60], hyper, mean, variance))
	}); n != 0 {
		t.Errorf("%v allocations for a window moved on by one", n)
	}
}

// TestWarmSearch: from the optimum of a window the search finds that of the next with little effort.
func TestWarmSearch(t *testing.T) {
	f := forecaster(t, Default)
	for seed := range uint64(20) {
		values := workload(seed, f.Window()+1)
		start, _, err := f.Fit(values[:f.Window()], nil, Cold)
		must(t, err)
		warm, reached, err := f.Fit(values[1:], start, Warm)
		must(t, err)
		at, err := f.reg.Evidence(start, nil)
		must(t, err)
		if f.believed(warm, reached) < f.believed(start, at)-1e-9 {
			t.Errorf("series %d: evidence and prior fell from %v to %v", seed, f.believed(start, at), f.believed(warm, reached))
		}
		_, best, err := f.Fit(values[1:], nil, Effort{Evaluations: 300, Gradient: 1e-3})
		must(t, err)
		if reached < best-2 {
			t.Errorf("series %d: warm search reached %v, a long cold one %v", seed, reached, best)
		}
	}
}

// believed is the evidence with the log prior, up to a constant.
func (f *Forecaster) believed(h Hyper, evidence float64) float64 {
	for i, p := range f.priors {
		cost, _, _ := p.penalty(h[i])
		evidence -= cost
	}
	return evidence
}
