package arima

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawSeries draws a model and a series of it.
func drawSeries(t *rapid.T, n int) (Spec, []float64) {
	s, p := drawSpec(t, false)
	s.D, s.Mean = min(s.D, 1), s.Mean && s.D == 0
	if !s.Mean {
		p.Mean = 0
	}
	return s, simulated(rapid.Uint64Range(1, 1<<40).Draw(t, "seed"), n, s, p)
}

func forecastOf(t interface{ Fatal(...any) }, m *Model, h int) (mean, variance []float64) {
	mean, variance = make([]float64, h), make([]float64, h)
	if err := m.Forecast(mean, variance); err != nil {
		t.Fatal(err)
	}
	return mean, variance
}

// Further ahead is never surer, once the filter has seen enough for its gain to have settled.
func TestIntervalsWiden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, y := drawSeries(t, 80)
		m, err := Fit(y, s, Options{Starts: 1, Evaluations: 150})
		if err != nil {
			t.Fatal(err)
		}
		_, variance := forecastOf(t, m, 30)
		for h, v := range variance {
			if !(v >= m.Params.Sigma2*(1-1e-9)) {
				t.Fatalf("%v %+v: variance %v at step %d is less than that of an innovation", s, m.Params, v, h+1)
			}
			if h > 0 && m.cov.steady && v < variance[h-1] {
				t.Fatalf("%v %+v: variances %v shrink at step %d", s, m.Params, variance, h+1)
			}
		}
		// Through gaps, a variance is still one.
		converged := m.cov.steady
		for range 5 {
			if err := m.Update(math.NaN()); err != nil {
				t.Fatal(err)
			}
			_, gone := forecastOf(t, m, 5)
			for _, v := range gone {
				if !(v >= 0) {
					t.Fatalf("variance %v after gaps", gone)
				}
			}
			if s.D == 1 && converged && gone[0] < variance[0] {
				t.Fatalf("a gap made the forecast surer: %v, before %v", gone[0], variance[0])
			}
		}
	})
}

// A change of unit and of origin changes the answer by just that: the likelihood of every model, and the fit of those
// whose likelihood has one optimum (of several, the change may lead to another).
func TestEquivariance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, y := drawSeries(t, 60)
		scale := math.Ldexp(1, rapid.IntRange(-30, 30).Draw(t, "scale"))
		shift := 0.0
		if s.Mean || s.D > 0 {
			shift = scale * float64(rapid.IntRange(-64, 64).Draw(t, "shift"))
		}
		z := mapped(y, func(v float64) float64 { return scale*v + shift })
		a, err := Fit(y, s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := a.Params.clone()
		p.Sigma2 *= scale * scale
		if s.Mean {
			p.Mean = scale*p.Mean + shift
		}
		b, err := At(s, p, z, nil)
		if err != nil {
			t.Fatal(err)
		}
		compare := func(slack float64) {
			if want := a.LogLik - float64(a.Used)*math.Log(scale); math.Abs(b.LogLik-want) > slack*(1+math.Abs(want)) {
				t.Fatalf("%v: log-likelihood %v of %v y + %v, want %v", s, b.LogLik, scale, shift, want)
			}
			am, av := forecastOf(t, a, 5)
			bm, bv := forecastOf(t, b, 5)
			for h := range am {
				if math.Abs(bm[h]-scale*am[h]-shift) > 100*slack*scale*math.Sqrt(av[h]) || math.Abs(bv[h]/(av[h]*scale*scale)-1) > 100*slack {
					t.Fatalf("%v: %v and %v became %v and %v by %v y + %v", s, am, av, bm, bv, scale, shift)
				}
			}
		}
		compare(1e-8)
		if s.P+s.Q > 1 || a.Edge() > 0.98 {
			return
		}
		if b, err = Fit(z, s, Options{}); err != nil {
			t.Fatal(err)
		}
		compare(1e-5)
	})
}

// To follow a series value by value is to have filtered it whole, gaps and regressors included.
func TestUpdateIsAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSpec(t, true)
		n := s.lags() + 40
		g := noise(rapid.Uint64Range(1, 1<<60).Draw(t, "seed"))
		y, x := make([]float64, n), make([]float64, n)
		for i := range y {
			y[i], x[i] = 10*g.normal(), g.normal()
			if i > s.lags() && g.next() < 0.1 {
				y[i] = math.NaN()
			}
		}
		p.Beta = []float64{2}
		whole, err := At(s, p, y, [][]float64{x})
		if err != nil {
			t.Fatal(err)
		}
		from := s.lags() + 10
		m, err := At(s, p, y[:from], [][]float64{x[:from]})
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < n; i++ {
			if err := m.Update(y[i], x[i]); err != nil {
				t.Fatal(err)
			}
		}
		future := []float64{1, 2, 3}
		var mean, variance, mean2, variance2 [3]float64
		if err := errors.Join(m.Forecast(mean[:], variance[:], future), whole.Forecast(mean2[:], variance2[:], future)); err != nil {
			t.Fatal(err)
		}
		if mean != mean2 || variance != variance2 {
			t.Fatalf("%v: followed %v %v, whole %v %v", s, mean, variance, mean2, variance2)
		}
	})
}

func TestRefitIsNoWorse(t *testing.T) {
	var f Fitter
	warm, cold := 0, 0
	for _, k := range kinds {
		s := Spec{P: 1, Q: 1, Mean: true}
		m, err := f.Fit(k.y[:199], s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Refit(m, k.y, Options{}); err != nil {
			t.Fatal(err)
		}
		again, err := Fit(k.y, s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.LogLik < again.LogLik-1e-3 {
			t.Errorf("%s: %v after a warm start, %v after cold ones", k.name, m.LogLik, again.LogLik)
		}
		// What it takes from nowhere, with the same care.
		nowhere := &Model{Spec: s, Params: Params{AR: []float64{0}, MA: []float64{0}, Sigma2: 1}}
		if err := f.Refit(nowhere, k.y, Options{}); err != nil {
			t.Fatal(err)
		}
		warm, cold = warm+m.Evaluations, cold+nowhere.Evaluations
		t.Logf("%s: %d evaluations warm, %d from coefficients of 0, %d from four starts", k.name, m.Evaluations, nowhere.Evaluations, again.Evaluations)
	}
	if 3*warm > 2*cold {
		t.Errorf("%d evaluations warm, %d from coefficients of 0", warm, cold)
	}
}

// What runs for every series every minute leaves nothing for the collector.
func TestNoAllocation(t *testing.T) {
	y := append([]float64(nil), kinds[3].y...)
	y[50], y[190] = math.NaN(), math.NaN()
	for _, s := range []Spec{{P: 2, D: 1, Q: 2}, {P: 1, Q: 1, Mean: true}, {D: 1, Q: 1, SD: 1, SQ: 1, Period: 6}} {
		m, err := Fit(y, s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		mean, variance := make([]float64, 10), make([]float64, 10)
		var again Model
		n := testing.AllocsPerRun(20, func() {
			for _, v := range [...]float64{1, 2, math.NaN(), 3} {
				if err := errors.Join(m.Update(v), m.Forecast(mean, variance), again.Set(s, m.Params, y, nil)); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n > 0 {
			t.Errorf("%v: %v allocations", s, n)
		}
	}
}

// The criteria are those of the definitions (Akaike 1974; Hurvich and Tsai 1989; Schwarz 1978).
func TestCriteria(t *testing.T) {
	m, err := Fit(kinds[0].y, Spec{P: 1, Mean: true}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const k, n = 3, 200 // phi, mean, sigma2
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"aic", m.AIC, 2*k - 2*m.LogLik},
		{"aicc", m.AICc, 2*k - 2*m.LogLik + 2*k*(k+1.)/(n-k-1)},
		{"bic", m.BIC, k*math.Log(n) - 2*m.LogLik},
		{"used", float64(m.Used), n},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestSearch(t *testing.T) {
	for _, k := range kinds {
		full, err := Search(k.y, Bounds{P: 3, Q: 3, D: -1, Full: true}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		walk, err := Search(k.y, Bounds{P: 3, Q: 3, D: -1}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Search(k.y, Bounds{P: 3, Q: 3, D: -1}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		warm, err := Search(k.y, Bounds{P: 3, Q: 3, D: -1, From: walk.Model}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-9s full %v (%.2f, %d tried), walk %v (%.2f, %d tried), warm %d tried", k.name, full.Spec, full.AICc, full.Tried, walk.Spec, walk.AICc, walk.Tried, warm.Tried)
		if walk.AICc > full.AICc+2 {
			t.Errorf("%s: the walk ends %.2f above the best", k.name, walk.AICc-full.AICc)
		}
		if !reflect.DeepEqual(walk.Params, again.Params) {
			t.Errorf("%s: the same search found %+v and %+v", k.name, walk.Params, again.Params)
		}
		if warm.AICc > walk.AICc+0.01 {
			t.Errorf("%s: %v from a warm start, %v before", k.name, warm.AICc, walk.AICc)
		}
	}
}

func TestDifferences(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
	}{{"ar1", 0}, {"white", 0}, {"ima", 1}, {"arima212", 1}} {
		for _, k := range kinds {
			if k.name == c.name {
				if got := Differences(k.y, 0, 0, 2); got != c.want {
					t.Errorf("%s: %d differences, want %d", c.name, got, c.want)
				}
			}
		}
	}
	line := make([]float64, 50)
	for i := range line {
		line[i] = float64(i)
	}
	if got := Differences(line, 0, 0, 2); got != 1 {
		t.Errorf("a straight line wants 1 difference, not %d", got)
	}
	if got := Differences([]float64{math.NaN(), math.Inf(1)}, 0, 0, 2); got != 0 {
		t.Errorf("no values want no differences, not %d", got)
	}
}

// Of series that do come from such a model, 95% of what comes lies within the 95% interval; a little less where
// structure and coefficients had to be found first, for what the fit does not know of its own error.
func TestIntervalsCover(t *testing.T) {
	var f Fitter
	mean, variance := make([]float64, 5), make([]float64, 5)
	// follow counts how many of the values after the first 200 were within, up to five steps ahead.
	follow := func(m *Model, y []float64) (within, all float64) {
		for i := 200; i+len(mean) <= len(y); i++ {
			if err := m.Forecast(mean, variance); err != nil {
				t.Fatal(err)
			}
			for h := range mean {
				if all++; math.Abs(y[i+h]-mean[h]) <= 1.959964*math.Sqrt(variance[h]) {
					within++
				}
			}
			if err := m.Update(y[i]); err != nil {
				t.Fatal(err)
			}
		}
		return within, all
	}
	var known, found, all float64
	for seed := range uint64(120) {
		k := []struct {
			spec   Spec
			params Params
		}{
			{Spec{P: 1, Mean: true}, Params{AR: []float64{0.8}, Mean: 5, Sigma2: 1}},
			{Spec{P: 1, Q: 1, Mean: true}, Params{AR: []float64{0.6}, MA: []float64{0.4}, Sigma2: 1}},
			{Spec{D: 1, Q: 1}, Params{MA: []float64{-0.5}, Sigma2: 1}},
		}[seed%3]
		y := simulated(seed+100, 260, k.spec, k.params)
		at, err := At(k.spec, k.params, y[:200], nil)
		if err != nil {
			t.Fatal(err)
		}
		search, err := f.Search(y[:200], Bounds{P: 2, Q: 2, D: -1}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, n := follow(at, y)
		known, all = known+w, all+n
		w, _ = follow(search.Model, y)
		found += w
	}
	t.Logf("of %.0f values %.2f%% were within the 95%% intervals of the model that made them, %.2f%% within those of one that was found", all, 100*known/all, 100*found/all)
	if s := known / all; s < 0.94 || s > 0.96 {
		t.Errorf("with known coefficients %.2f%% were within", 100*s)
	}
	if s := found / all; s < 0.92 || s > 0.96 {
		t.Errorf("with coefficients that were found %.2f%% were within", 100*s)
	}
}

// A search makes do with few values and with gaps, and refuses when there are too few.
func TestSearchOfLittle(t *testing.T) {
	for n := range 40 {
		for _, every := range []int{0, 2, 3, 7} {
			y := append([]float64(nil), kinds[1].y[:n]...)
			seen := 0
			for i := range y {
				if every > 0 && i%every == 1 {
					y[i] = math.NaN()
				} else {
					seen++
				}
			}
			found, err := Search(y, Bounds{P: 3, Q: 3, D: -1}, Options{})
			if err != nil {
				if seen >= 5 || !errors.Is(err, ErrTooShort) {
					t.Errorf("%d values, %d measured: %v", n, seen, err)
				}
				continue
			}
			mean, variance := forecastOf(t, found.Model, 3)
			for h := range mean {
				if math.IsNaN(mean[h]) || !(variance[h] > 0) {
					t.Errorf("%d values, %d measured: %v forecasts %v and %v", n, seen, found.Spec, mean, variance)
				}
			}
		}
	}
}

// A series without error is continued without error.
func TestDegenerate(t *testing.T) {
	constant, line, steps := make([]float64, 30), make([]float64, 30), make([]float64, 30)
	for i := range constant {
		constant[i], line[i], steps[i] = 7.3, 3+0.5*float64(i), float64(i%4)
	}
	gappy := append([]float64(nil), constant...)
	gappy[0], gappy[4], gappy[5], gappy[29] = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	for _, c := range []struct {
		name string
		spec Spec
		y    []float64
		want []float64
	}{
		{"constant", Spec{P: 1, Q: 1, Mean: true}, constant, []float64{7.3, 7.3}},
		{"constant, differenced", Spec{P: 1, D: 1, Q: 1}, constant, []float64{7.3, 7.3}},
		{"constant with gaps", Spec{P: 1, Q: 1, Mean: true}, gappy, []float64{7.3, 7.3}},
		{"constant with gaps, differenced", Spec{P: 1, D: 1, Q: 1}, gappy, []float64{7.3, 7.3}},
		{"line", Spec{P: 1, D: 1, Mean: true}, line, []float64{18, 18.5}},
		{"line, twice differenced", Spec{P: 1, D: 2}, line, []float64{18, 18.5}},
		{"season", Spec{P: 1, SD: 1, Period: 4}, steps, []float64{2, 3}},
		{"zero", Spec{P: 1}, make([]float64, 20), []float64{0, 0}},
	} {
		for _, method := range []Method{ML, CSS} {
			m, err := Fit(c.y, c.spec, Options{Method: method, StdErr: true})
			if method == CSS && c.y[0] != c.y[0] {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			mean, variance := forecastOf(t, m, 2)
			for h := range mean {
				if math.Abs(mean[h]-c.want[h]) > 1e-9 || variance[h] != 0 {
					t.Errorf("%s: forecasts %v and %v, want %v and 0", c.name, mean, variance, c.want)
					break
				}
			}
			if !math.IsInf(m.LogLik, 1) || !math.IsInf(m.AICc, -1) {
				t.Errorf("%s: log-likelihood %v and AICc %v of a series without error", c.name, m.LogLik, m.AICc)
			}
		}
	}
	found, err := Search(constant, Bounds{P: 3, Q: 3, D: -1}, Options{})
	if err != nil || found.Spec.coefficients() != 0 {
		t.Errorf("a search on a constant series: %+v, %v", found, err)
	}
}

func TestRefusals(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	long := kinds[0].y
	with := func(i int, v float64) []float64 {
		y := append([]float64(nil), long...)
		y[i] = v
		return y
	}
	for _, c := range []struct {
		name string
		y    []float64
		spec Spec
		opts Options
		want error
	}{
		{"nothing", nil, Spec{P: 1}, Options{}, ErrTooShort},
		{"all missing", []float64{nan, nan, nan, nan, nan, nan, nan}, Spec{P: 1}, Options{}, ErrTooShort},
		{"short", []float64{1, 2, 3, 4}, Spec{P: 2, Q: 1, Mean: true}, Options{}, ErrTooShort},
		{"shorter than the season", long[:10], Spec{SD: 1, SQ: 1, Period: 12}, Options{}, ErrTooShort},
		{"short for least squares", long[:30], Spec{SP: 2, Period: 14}, Options{Method: CSS}, ErrTooShort},
		{"infinite", with(3, inf), Spec{P: 1}, Options{}, ErrNotFinite},
		{"huge", with(3, 1e200), Spec{P: 1}, Options{}, ErrNotFinite},
		{"infinite regressor", long, Spec{P: 1}, Options{X: [][]float64{with(5, inf)}}, ErrNotFinite},
		{"missing regressor", long, Spec{P: 1}, Options{X: [][]float64{with(5, nan)}}, ErrNotFinite},
		{"regressor of another length", long, Spec{P: 1}, Options{X: [][]float64{long[:5]}}, nil},
		{"the same regressor twice", long, Spec{P: 1}, Options{X: [][]float64{long, long}}, ErrCollinear},
		{"a constant regressor beside a mean", long, Spec{P: 1, Mean: true}, Options{X: [][]float64{make([]float64, len(long))}}, ErrCollinear},
		{"least squares with gaps", with(3, nan), Spec{P: 1}, Options{Method: CSS}, nil},
		{"negative order", long, Spec{P: -1}, Options{}, nil},
		{"season without a period", long, Spec{SP: 1}, Options{}, nil},
		{"state too large", long, Spec{SP: 12, Period: 100}, Options{}, nil},
	} {
		m, err := Fit(c.y, c.spec, c.opts)
		if err == nil {
			t.Errorf("%s: fitted %+v, want a refusal", c.name, m)
		} else if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.opts.X == nil && c.opts.Method == ML && c.spec.Validate() == nil && c.want == ErrNotFinite {
			if _, err := Search(c.y, Bounds{P: 1, Q: 1}, Options{}); !errors.Is(err, c.want) {
				t.Errorf("%s: a search: %v, want %v", c.name, err, c.want)
			}
		}
	}
	if _, err := At(Spec{P: 1}, Params{AR: []float64{1.1}, Sigma2: 1}, long, nil); err == nil {
		t.Error("coefficients that are not stationary were taken")
	}
	if _, err := At(Spec{P: 2}, Params{AR: []float64{1.1}}, long, nil); err == nil {
		t.Error("too few coefficients were taken")
	}
	m, err := Fit(long, Spec{P: 1, Mean: true}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Update(1, 2); !errors.Is(err, ErrRegressors) {
		t.Errorf("a regressor that the model does not have: %v", err)
	}
	if err := m.Forecast(make([]float64, 2), make([]float64, 1)); !errors.Is(err, ErrRegressors) {
		t.Errorf("places of unequal number: %v", err)
	}
	before, _ := forecastOf(t, m, 1)
	for _, v := range []float64{inf, -inf, nan, 1e300} {
		if err := m.Update(v); err != nil {
			t.Error(err)
		}
	}
	if after, _ := forecastOf(t, m, 1); math.Abs(after[0]-m.Params.Mean) > math.Abs(before[0]-m.Params.Mean) {
		t.Errorf("values that were not measured moved the forecast from %v to %v", before, after)
	}
}

// FuzzFit: no input makes a fit panic, or gives a forecast that is not a number or has a negative variance.
func FuzzFit(f *testing.F) {
	seed := func(head [4]byte, y ...float64) {
		b := head[:]
		for _, v := range y {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		f.Add(b)
	}
	seed([4]byte{1, 0, 1, 0}, kinds[1].y[:30]...)
	seed([4]byte{3, 1, 3, 1}, 1, 2, math.NaN(), 3, 2, 1, 4, 5, 3, 2, 1, 2)
	seed([4]byte{1, 2, 1, 1}, 1e149, -1e149, 1e149, 0, 0, 1, 5e-324, 3, 1, 2, 3)
	seed([4]byte{0, 0, 0x31, 3}, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 || len(b) > 4+8*120 {
			return
		}
		s := Spec{P: int(b[0] & 3), SP: int(b[0] >> 4 & 1), D: int(b[1] & 3), SD: int(b[1] >> 4 & 1), Q: int(b[2] & 3), SQ: int(b[2] >> 4 & 1), Period: int(b[2] >> 5), Mean: b[3]&1 == 1}
		opts := Options{Evaluations: 100, Starts: 1, StdErr: b[3]&4 != 0}
		if b[3]&2 != 0 {
			opts.Method = CSS
		}
		var y []float64
		for at := 4; at+8 <= len(b); at += 8 {
			y = append(y, math.Float64frombits(binary.LittleEndian.Uint64(b[at:])))
		}
		m, err := Fit(y, s, opts)
		if err != nil {
			return
		}
		for range 2 {
			mean, variance := forecastOf(t, m, 5)
			for h := range mean {
				if math.IsNaN(mean[h]) || math.IsInf(mean[h], 0) || !(variance[h] >= 0) {
					t.Fatalf("%v of %v: %+v forecasts %v and %v", s, y, m.Params, mean, variance)
				}
			}
			if err := m.Update(math.NaN()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
