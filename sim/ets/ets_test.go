package ets

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// specs are all kinds of models that are not refused, with that period.
func specs(period int) (all []Spec) {
	components := []Component{None, Additive, Multiplicative}
	for _, e := range components {
		for _, trend := range components {
			for _, season := range components {
				for _, damped := range []bool{false, true} {
					s := Spec{Error: e, Trend: trend, Damped: damped, Season: season}
					if season != None {
						s.Period = period
					}
					if s.Check() == nil {
						all = append(all, s)
					}
				}
			}
		}
	}
	return all
}

// example is a model in a plausible place, with errors whose relative deviation is about sd.
func example(t *testing.T, s Spec, sd float64) *Model {
	t.Helper()
	initial := State{Level: 100, Growth: 1, Season: make([]float64, s.Period)}
	if s.Trend == Multiplicative {
		initial.Growth = 1.01
	}
	for i := range initial.Season {
		wave := math.Sin(2 * math.Pi * float64(i) / float64(s.Period))
		if initial.Season[i] = 20 * wave; s.Season == Multiplicative {
			initial.Season[i] = 1 + 0.2*wave
		}
	}
	m, err := New(s, Params{Alpha: 0.4, Beta: 0.1, Gamma: 0.3, Phi: 0.9}, initial)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 60 {
		e := sd * r.NormFloat64()
		if f := m.stated(1, m.par.Phi); s.Error == Multiplicative {
			m.Update(f * (1 + e))
		} else {
			m.Update(f + 100*e)
		}
	}
	return m
}

func TestSpecs(t *testing.T) {
	if n := len(specs(4)); n != 19 {
		t.Errorf("%d kinds of models, R has 19", n)
	}
	for s, want := range map[Spec]string{
		{Error: Additive, Trend: Additive, Damped: true, Season: None}:                            "ETS(A,Ad,N)",
		{Error: Multiplicative, Trend: Multiplicative, Season: Multiplicative, Period: 12}:        "ETS(M,M,M)[12]",
		{Error: Multiplicative, Trend: None, Season: Additive, Period: 4}:                         "ETS(M,N,A)[4]",
		{Error: Multiplicative, Trend: Multiplicative, Damped: true, Season: None}:                "ETS(M,Md,N)",
		{Error: Multiplicative, Trend: Additive, Damped: true, Season: Multiplicative, Period: 7}: "ETS(M,Ad,M)[7]",
	} {
		if s.String() != want || s.Check() != nil {
			t.Errorf("%v, want %s: %v", s, want, s.Check())
		}
	}
	for _, s := range []Spec{
		{}, {Error: None, Trend: None, Season: None}, {Error: Additive, Trend: 'x', Season: None},
		{Error: Additive, Trend: None, Season: None, Damped: true}, {Error: Additive, Trend: None, Season: None, Period: 4},
		{Error: Additive, Trend: None, Season: Additive}, {Error: Additive, Trend: None, Season: Additive, Period: 1},
		{Error: Additive, Trend: None, Season: Additive, Period: 367}, {Error: Additive, Trend: Multiplicative, Season: None},
		{Error: Additive, Trend: None, Season: Multiplicative, Period: 4},
		{Error: Multiplicative, Trend: Multiplicative, Season: Additive, Period: 4},
	} {
		if s.Check() == nil {
			t.Errorf("%v is not refused", s)
		}
		if _, err := Fit([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, s); err == nil {
			t.Errorf("%v is fitted", s)
		}
		if _, err := New(s, Params{Alpha: 0.5}, State{Season: make([]float64, s.Period)}); err == nil {
			t.Errorf("%v is made", s)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	nan := math.NaN()
	plain := Spec{Error: Additive, Trend: Additive, Season: Additive, Period: 2}
	good := State{1, 1, []float64{1, 2}}
	for name, c := range map[string]struct {
		spec Spec
		par  Params
		init State
	}{
		"no alpha":       {plain, Params{0, 0.1, 0.1, 1}, good},
		"a NaN":          {plain, Params{0.5, nan, 0.1, 1}, good},
		"a NaN state":    {plain, Params{0.5, 0.1, 0.1, 1}, State{nan, 1, []float64{1, 2}}},
		"an infinite":    {plain, Params{0.5, 0.1, 0.1, 1}, State{1, 1, []float64{math.Inf(1), 2}}},
		"one season":     {plain, Params{0.5, 0.1, 0.1, 1}, State{1, 1, []float64{1}}},
		"negative trend": {Spec{Error: Multiplicative, Trend: Multiplicative, Season: None}, Params{0.5, 0.1, 0, 1}, State{1, -1, nil}},
	} {
		if _, err := New(c.spec, c.par, c.init); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

// What the formulas say of the variance must be what paths show that are drawn from the model.
func TestVarianceAgainstPaths(t *testing.T) {
	const drawn, steps = 20000, 9
	for _, s := range specs(4) {
		m := example(t, s, 0.03)
		mean, variance := make([]float64, steps), make([]float64, steps)
		m.Forecast(mean, variance)
		path := make([]float64, steps)
		sums, squares := make([]float64, steps), make([]float64, steps)
		for seed := range drawn {
			m.Simulate(path, uint64(seed))
			for h, y := range path {
				sums[h] += y - mean[h]
				squares[h] += (y - mean[h]) * (y - mean[h])
			}
		}
		tolerance := 0.04
		if s.Trend == Multiplicative {
			tolerance = 0.2 // 500 paths against 20,000
		}
		for h := range steps {
			bias := sums[h] / drawn
			v := squares[h]/drawn - bias*bias
			if math.Abs(variance[h]/v-1) > tolerance {
				t.Errorf("%v, %d ahead: the variance is %.3f, paths have %.3f", s, h+1, variance[h], v)
			}
			if math.Abs(bias) > 0.05*math.Sqrt(v) {
				t.Errorf("%v, %d ahead: the mean is off by %.3f, of a deviation of %.3f", s, h+1, bias, math.Sqrt(v))
			}
		}
	}
}

// A gap of g values moves the forecast g steps on, and the state is as if what was stated had come.
func TestGaps(t *testing.T) {
	for _, s := range specs(3) {
		const gap, steps = 5, 4
		m, whole := example(t, s, 0.02), example(t, s, 0.02)
		long, longV := make([]float64, gap+steps), make([]float64, gap+steps)
		whole.Forecast(long, longV)
		for i := range gap {
			fitted, e := m.Update(math.NaN())
			if math.Abs(fitted-long[i]) > 1e-9 || !math.IsNaN(e) {
				t.Errorf("%v: %v and %v for a value that is missing, want %v", s, fitted, e, long[i])
			}
		}
		mean, variance := make([]float64, steps), make([]float64, steps)
		m.Forecast(mean, variance)
		for h := range mean {
			if math.Abs(mean[h]-long[gap+h]) > 1e-9 || math.Abs(variance[h]/longV[gap+h]-1) > 1e-9 {
				t.Errorf("%v: %v, %v %d after a gap of %d, want %v, %v", s, mean[h], variance[h], h+1, gap, long[gap+h], longV[gap+h])
			}
		}
		n := m.N()
		for _, y := range long[:gap] {
			whole.Update(y)
		}
		a, _ := m.Update(long[gap] * 1.1)
		b, _ := whole.Update(long[gap] * 1.1)
		x, y := m.State(), whole.State()
		if math.Abs(a-b) > 1e-9 || math.Abs(x.Level-y.Level) > 1e-9 || math.Abs(x.Growth-y.Growth) > 1e-9 || m.N() != n+1 {
			t.Errorf("%v: after the gap %v %+v, want %v %+v", s, a, x, b, y)
		}
	}
	// Work does not grow with the gap.
	long := example(t, Spec{Error: Additive, Trend: Additive, Damped: true, Season: None}, 0.02)
	level, growth := long.Level()
	for range 500_000 {
		long.Update(math.NaN())
	}
	mean, variance := make([]float64, 2), make([]float64, 2)
	long.Forecast(mean, variance)
	if want := level + 9*growth; math.Abs(mean[0]-want) > 1e-9 || math.IsInf(variance[0], 0) { // 0.9/(1-0.9) of the growth
		t.Errorf("after ages %v, %v, want %v", mean, variance, want)
	}
	// Models of values above 0 take others for gaps.
	m := example(t, Spec{Error: Multiplicative, Trend: None, Season: None}, 0.02)
	before := m.State()
	if _, e := m.Update(0); !math.IsNaN(e) || m.State().Level != before.Level {
		t.Errorf("0 was taken: %v, %+v", e, m.State())
	}
}

func TestFitRefuses(t *testing.T) {
	plain := Spec{Error: Additive, Trend: None, Season: None}
	relative := Spec{Error: Multiplicative, Trend: None, Season: None}
	seasonal := Spec{Error: Additive, Trend: None, Season: Additive, Period: 6}
	nan := math.NaN()
	for name, c := range map[string]struct {
		ys   []float64
		spec Spec
	}{
		"nothing":           {nil, plain},
		"three values":      {[]float64{1, 2, 3}, plain},
		"three of five":     {[]float64{1, nan, 2, nan, 3}, plain},
		"infinite":          {[]float64{1, 2, 3, math.Inf(-1), 4, 5}, plain},
		"zero":              {[]float64{1, 2, 3, 0, 4, 5}, relative},
		"less than periods": {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, seasonal},
	} {
		if m, err := Fit(c.ys, c.spec); err == nil {
			t.Errorf("%s: fitted, %+v", name, m.Params())
		}
	}
	f, _ := NewFitter(plain)
	if f.Fit(example(t, seasonal, 0.1), []float64{1, 2, 3, 4, 5, 6}) == nil {
		t.Error("a fitter of one kind fits another")
	}
}

// No parameters and initial states that are drawn at random may be likelier than those of the fit; the fit keeps to its bounds.
func TestFitIsBest(t *testing.T) {
	kinds := specs(3)
	rapid.Check(t, func(t *rapid.T) {
		s := kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		ys := make([]float64, 40)
		level := 100.0
		for i := range ys {
			level *= math.Exp(0.03 * r.NormFloat64())
			if ys[i] = level * math.Exp(0.05*r.NormFloat64()+0.1*float64(i%3)); r.IntN(10) == 0 {
				ys[i] = math.NaN()
			}
		}
		m, err := Fit(ys, s)
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		p := m.Params()
		if p.Alpha < low || p.Alpha > high || s.Trend != None && (p.Beta < low || p.Beta > p.Alpha) ||
			s.Season != None && (p.Gamma < low || p.Gamma > 1-p.Alpha+1e-12) || s.Damped && (p.Phi < phiLow || p.Phi > phiHigh) {
			t.Fatalf("%v: out of bounds: %+v", s, p)
		}
		best := m.LogLikelihood()
		for range 30 {
			q := Params{Alpha: low + r.Float64()*(high-low), Phi: phiLow + r.Float64()*(phiHigh-phiLow)}
			q.Beta, q.Gamma = q.Alpha*r.Float64(), (1-q.Alpha)*r.Float64()
			initial := m.Initial()
			initial.Level *= 1 + 0.1*r.NormFloat64()
			other, err := New(s, q, initial)
			if err != nil {
				t.Fatal(err)
			}
			for _, y := range ys {
				other.Update(y)
			}
			if other.LogLikelihood() > best+1e-6 {
				t.Fatalf("%v: %+v has %v, the fit %+v only %v", s, q, other.LogLikelihood(), p, best)
			}
		}
	})
}

// A fit finds the parameters that a long series was drawn with.
func TestFitFindsParameters(t *testing.T) {
	for _, s := range []Spec{
		{Error: Additive, Trend: None, Season: None},
		{Error: Additive, Trend: Additive, Damped: true, Season: None},
		{Error: Additive, Trend: None, Season: Additive, Period: 4},
		{Error: Additive, Trend: None, Season: Additive, Period: 30}, // initial seasons held
		{Error: Multiplicative, Trend: None, Season: Multiplicative, Period: 4},
	} {
		drawn := example(t, s, 0.01)
		ys := make([]float64, 1500)
		drawn.Simulate(ys, 7)
		m, err := Fit(ys, s)
		if err != nil {
			t.Fatal(err)
		}
		got, want := m.Params(), drawn.Params()
		t.Logf("%v: %+v, drawn with %+v", s, got, want)
		if math.Abs(got.Alpha-want.Alpha) > 0.08 || math.Abs(got.Beta-want.Beta) > 0.08 || s.Season != None && math.Abs(got.Gamma-want.Gamma) > 0.12 ||
			math.Abs(m.Sigma2()/drawn.Sigma2()-1) > 0.15 {
			t.Errorf("%v: %+v, %v, drawn with %+v, %v", s, got, m.Sigma2(), want, drawn.Sigma2())
		}
	}
}

// What was drawn with parameters out of bounds is fitted within them.
func TestFitKeepsToBounds(t *testing.T) {
	s := Spec{Error: Additive, Trend: Additive, Damped: true, Season: Additive, Period: 4}
	drawn, err := New(s, Params{Alpha: 0.6, Beta: 0.9, Gamma: 0.95, Phi: 0.6}, State{100, 1, []float64{5, -5, 10, -10}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		drawn.Update(100 + 10*math.Sin(float64(i*i)))
	}
	ys := make([]float64, 300)
	drawn.Simulate(ys, 5)
	m, err := Fit(ys, s)
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Params(); p.Gamma > 1-p.Alpha+1e-12 || p.Beta > p.Alpha || p.Phi < phiLow || p.Gamma < 0.2 {
		t.Errorf("%+v", p)
	}
}

func TestOddSeries(t *testing.T) {
	for name, ys := range map[string][]float64{
		"constant": slices.Repeat([]float64{5}, 60), "zero": make([]float64, 60),
		"tiny": slices.Repeat([]float64{1e-90, 2e-90, 4e-90}, 20), "huge": slices.Repeat([]float64{1e90, 3e90, 2e90}, 20),
		"one jump":       append(slices.Repeat([]float64{1}, 30), slices.Repeat([]float64{1e9}, 30)...),
		"gaps":           append(slices.Repeat([]float64{math.NaN(), 3}, 30), 4, 5, 6, 4),
		"begins in gaps": append(slices.Repeat([]float64{math.NaN()}, 30), 4, 5, 6, 4, 5, 7, 4, 6, 5, 4, 5, 6, 7, 5, 4, 6),
	} {
		for _, s := range specs(4) {
			if s.multiplicative() && name == "zero" {
				continue
			}
			m, err := Fit(ys, s)
			if err != nil {
				// Seasons in absolute terms swing by more than the level before the jump is.
				if name != "one jump" || s.Error != Multiplicative || s.Season != Additive {
					t.Errorf("%s, %v: %v", name, s, err)
				}
				continue
			}
			mean, variance := make([]float64, 10), make([]float64, 10)
			m.Forecast(mean, variance)
			for h := range mean {
				if math.IsNaN(mean[h]) || math.IsInf(mean[h], 0) || !(variance[h] >= 0) {
					t.Errorf("%s, %v, %d ahead: %v, %v", name, s, h+1, mean[h], variance[h])
				}
				if s.Error == Additive && h > 0 && variance[h] < variance[h-1] {
					t.Errorf("%s, %v, %d ahead: the variance falls to %v from %v", name, s, h+1, variance[h], variance[h-1])
				}
			}
			if name == "constant" && math.Abs(mean[9]-5) > 1e-6 {
				t.Errorf("constant, %v: %v", s, mean)
			}
		}
	}
}

func TestRefitDoesNotAllocate(t *testing.T) {
	for _, s := range specs(4) {
		if s.Error != Additive {
			continue
		}
		ys := make([]float64, 120)
		example(t, s, 0.05).Simulate(ys, 1)
		f, err := NewFitter(s)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Fit(ys, s)
		if err != nil {
			t.Fatal(err)
		}
		best := m.LogLikelihood()
		mean, variance := make([]float64, 10), make([]float64, 10)
		if n := testing.AllocsPerRun(5, func() {
			if f.Refit(m, ys) != nil {
				t.Error("no fit")
			}
			m.Update(1)
			m.Forecast(mean, variance)
		}); n > 0 {
			t.Errorf("%v: %v allocations", s, n)
		}
		if f.Refit(m, ys); m.LogLikelihood() < best-0.01 {
			t.Errorf("%v: %v after a refit, %v before", s, m.LogLikelihood(), best)
		}
	}
}

// TestAgainstHoltWinters holds additive Holt-Winters smoothing in its usual form, as R's HoltWinters has it, against its
// equivalent here. R prints the parameters that it found for CO2 at Mauna Loa, and level, growth and seasons at the end, to five digits.
func TestAgainstHoltWinters(t *testing.T) {
	ys := series(t, filepath.Join(full, "series", "co2.csv"))
	const alpha, beta, gamma, m = 0.51265, 0.0094977, 0.47289, 12
	want := State{364.76162, 0.12474, []float64{0.22153, 0.95528, 1.59847, 2.8758, 3.28201, 2.4407, 0.89694, -1.37964, -3.41124, -3.25702, -1.91349, -0.58442}}
	// R begins with the second year, from a decomposition of the first two and a line through its trend.
	around := func(t int) float64 {
		sum := (ys[t-m/2] + ys[t+m/2]) / 2
		for i := t - m/2 + 1; i < t+m/2; i++ {
			sum += ys[i]
		}
		return sum / m
	}
	var sx, sy, sxx, sxy, n, mean float64
	figure := make([]float64, m)
	for t := m / 2; t < 2*m-m/2; t++ {
		x, y := float64(t-m/2+1), around(t)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		figure[t%m] = ys[t] - y
		mean += figure[t%m] / m
	}
	slope := (n*sxy - sx*sy) / (n*sxx - sx*sx)
	initial := State{Level: (sy - slope*sx) / n, Growth: slope}
	for k := range m {
		initial.Season = append(initial.Season, figure[m-1-k]-mean)
	}
	model, err := New(Spec{Error: Additive, Trend: Additive, Season: Additive, Period: m},
		Params{Alpha: alpha, Beta: alpha * beta, Gamma: gamma * (1 - alpha)}, initial)
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range ys[m:] {
		model.Update(y)
	}
	got := model.State()
	if !near(got.Level, want.Level, 1e-5) || math.Abs(got.Growth-want.Growth) > 1e-5 {
		t.Errorf("level %.5f and growth %.5f, R has %v and %v", got.Level, got.Growth, want.Level, want.Growth)
	}
	for i, s := range want.Season {
		if g := got.Season[m-1-i]; math.Abs(g-s) > 5e-4 {
			t.Errorf("season %d is %.5f, R has %v", i, g, s)
		}
	}
	own, err := Fit(ys[m:], model.Spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("log-likelihood %.3f at R's parameters, %.3f of the own fit: %+v", model.LogLikelihood(), own.LogLikelihood(), own.Params())
	if own.LogLikelihood() < model.LogLikelihood() {
		t.Error("R's parameters are likelier than those of the own fit")
	}
}

func BenchmarkFit(b *testing.B) {
	for _, s := range []Spec{
		{Error: Additive, Trend: None, Season: None},
		{Error: Additive, Trend: Additive, Damped: true, Season: None},
		{Error: Additive, Trend: Additive, Damped: true, Season: Additive, Period: 24},
		{Error: Multiplicative, Trend: Additive, Damped: true, Season: Multiplicative, Period: 4},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		ys := make([]float64, 120)
		for i := range ys {
			ys[i] = 100 + 10*r.NormFloat64()
		}
		f, _ := NewFitter(s)
		m, err := Fit(ys, s)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.String()+"/cold", func(b *testing.B) {
			for b.Loop() {
				f.Fit(m, ys)
			}
		})
		b.Run(s.String()+"/again", func(b *testing.B) {
			for b.Loop() {
				f.Refit(m, ys)
			}
		})
	}
}
