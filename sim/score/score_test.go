package score

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/forecast"
)

// around predicts a normal distribution around the value that was measured last, or around a fixed mean. It can predict once it
// has seen after values that were measured.
type around struct {
	fixed *float64
	sd    float64
	after int

	last float64
	seen int
	all  int // values, measured or not
}

func (a *around) Name() string { return "around" }

func (a *around) Observe(y float64) {
	a.all++
	if !math.IsNaN(y) {
		a.last, a.seen = y, a.seen+1
	}
}

func (a *around) Predict(out []forecast.Prediction) bool {
	if a.seen < a.after {
		return false
	}
	m := a.last
	if a.fixed != nil {
		m = *a.fixed
	}
	for i := range out {
		out[i] = forecast.Normal(m, a.sd*a.sd)
	}
	return true
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %v, want %v within %v", what, got, want, within)
	}
}

// The last value with no spread, by hand: a loss of each level's share of the error.
func TestByHand(t *testing.T) {
	nan := math.NaN()
	values := []float64{5, 1, 2, 4, nan, 4, 5}
	r := Run(values, []forecast.Model{&around{}}, Options{Steps: 2, Warmup: 3, Short: 3})
	// Origins: 2 (then 4 and nothing), 4 (nothing, then 4), 4 (5, then the end).
	if r.Values != 7 || r.Measured != 6 || r.Asked != 3 || r.Origins != 3 || r.Short {
		t.Errorf("%+v", r)
	}
	near(t, "scale", r.Scale, (4.0+1+2+1)/4, 1e-12)
	one, two := r.Models[0].Horizons[0], r.Models[0].Horizons[1]
	// Levels sum to 5.5 of 11: the loss is half of the error.
	if want := (Tally{N: 2, AbsError: 3, Pinball: 1.5}); one != want {
		t.Errorf("1 step: %+v, want %+v", one, want)
	}
	if want := (Tally{N: 1, OnBound: [4]int{1, 1, 1, 1}}); two != want {
		t.Errorf("2 steps: %+v, want %+v", two, want)
	}
	near(t, "repeats", r.Repeats, 2.0/6, 1e-12) // 4 and 5 are there twice
	s := Summarize([]Result{r}, 0, 0)
	near(t, "MASE", s.MASE, 3.0/3/2, 1e-12)
	near(t, "pinball", s.Pinball, 1.5/3/2, 1e-12)
	near(t, "coverage", s.Coverage[2], 1.0/3, 1e-12)
	near(t, "coverage without bounds", s.Strict[2], 0, 0)
}

// Quantiles that are the true ones cover what they say and have the known loss: the mean of phi(z) over levels.
func TestTrueQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 20000)
	for i := range values {
		values[i] = 3 + 2*rng.NormFloat64()
	}
	three := 3.0
	r := Run(values, []forecast.Model{&around{fixed: &three, sd: 2}, &around{fixed: &three, sd: 1.5}, &around{fixed: &three, sd: 3}}, Options{Steps: 1, Warmup: 1})
	s := Summarize([]Result{r}, 0, 1)
	for i, want := range Coverages {
		near(t, fmt.Sprintf("coverage of %v", want), s.Coverage[i], want, 0.01)
	}
	want := 0.0
	for _, z := range forecast.Normal(0, 1).Quantiles {
		want += math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) / float64(len(forecast.Levels))
	}
	near(t, "pinball", s.Pinball*r.Scale, 2*want, 0.01)
	near(t, "scale", r.Scale, 2*2/math.Sqrt(math.Pi), 0.05) // E|X-Y| of two normal values
	near(t, "in band", s.InBand, 1, 0)
	for m := 1; m <= 2; m++ {
		if o := Summarize([]Result{r}, m, 1); o.Pinball <= s.Pinball || o.InBand != 0 {
			t.Errorf("model %d: %+v, the true one %+v", m, o, s)
		}
	}
}

// What stands still is known as such; an interval of no width covers it, by its bounds alone.
func TestStill(t *testing.T) {
	constant := make([]float64, 100)
	jumps := make([]float64, 1000) // 97% of a value that comes back each time
	for i := range jumps {
		if i%33 == 5 {
			jumps[i] = float64(i)
		}
	}
	var levels []float64 // 96% equal the one before, no value is common
	for i := range 1000 {
		levels = append(levels, float64(i/25))
	}
	moving := make([]float64, 100)
	for i := range moving {
		moving[i] = float64(i % 3)
	}
	for _, c := range []struct {
		name   string
		values []float64
		still  bool
		scale  bool
	}{{"constant", constant, true, false}, {"jumps", jumps, true, true}, {"levels", levels, true, true}, {"moving", moving, false, true}} {
		r := Run(c.values, []forecast.Model{&around{}}, Options{Steps: 3, Warmup: 5})
		if r.Still() != c.still || (r.Scale > 0) != c.scale {
			t.Errorf("%s: still %v, scale %v", c.name, r.Still(), r.Scale)
		}
	}
	r := Run(constant, []forecast.Model{&around{}}, Options{Steps: 3, Warmup: 5})
	s := Summarize([]Result{r}, 0, 0)
	if s.Series != 1 || s.Constant != 1 || !math.IsNaN(s.MASE) || !math.IsNaN(s.Pinball) || s.Coverage[2] != 1 || s.Strict[2] != 0 || s.InBand != 0 || s.InBandTie != 1 {
		t.Errorf("%+v", s)
	}
}

// A bound to rounding is a bound: values in large units do not fall out by their last digit.
func TestBounds(t *testing.T) {
	p := forecast.Normal(1e9, 0)
	for _, c := range []struct {
		y      float64
		inside bool
		bound  bool
	}{{1e9, false, true}, {1e9 + 0.5, false, true}, {1e9 + 10, false, false}, {1e9 - 10, false, false}} {
		var tally Tally
		tally.value(c.y, &p)
		if (tally.Inside[0] == 1) != c.inside || (tally.OnBound[0] == 1) != c.bound {
			t.Errorf("%v: %+v", c.y, tally)
		}
	}
	var tally Tally
	p = forecast.Normal(0, 1)
	tally.value(1, &p) // between the bounds of 50% and 80%
	if tally.Inside != [4]int{0, 1, 1, 1} || tally.OnBound != [4]int{} {
		t.Errorf("%+v", tally)
	}
}

// broken predicts what is no prediction at its third origin, each time in another way.
type broken struct {
	around
	how   int
	calls int
}

func (b *broken) Predict(out []forecast.Prediction) bool {
	ok := b.around.Predict(out)
	if b.calls++; b.calls != 3 {
		return ok
	}
	last := &out[len(out)-1]
	switch b.how {
	case 0:
		last.Mean = math.NaN()
	case 1:
		last.Variance = -1
	case 2:
		last.Quantiles[4] = last.Quantiles[5] + 1
	case 3:
		last.Quantiles[0] = math.Inf(-1)
	case 4:
		return false
	}
	return ok
}

// An origin counts for all models or for none, and the model that fails is counted.
func TestSameOriginsForAll(t *testing.T) {
	values := make([]float64, 30)
	for i := range values {
		values[i] = float64(i * i % 7)
	}
	for how := range 5 {
		r := Run(values, []forecast.Model{&around{sd: 1}, &broken{around: around{sd: 1}, how: how}, &around{sd: 1, after: 12}}, Options{Steps: 2, Warmup: 10})
		// Origins 10..29; the last value has nothing after it. 10, 11 and the third, 12, are dropped.
		if r.Asked != 20 || r.Origins != 17 {
			t.Errorf("way %d: %d asked, %d counted", how, r.Asked, r.Origins)
		}
		for m, want := range [][2]int{{0, 0}, {0, 1}, {2, 0}} {
			if how == 4 && m == 1 {
				want = [2]int{1, 0}
			}
			if got := [2]int{r.Models[m].Unable, r.Models[m].Broken}; got != want {
				t.Errorf("way %d, model %d: unable and broken %v, want %v", how, m, got, want)
			}
			if r.Models[m].Horizons[0] != r.Models[0].Horizons[0] || r.Models[m].Horizons[0].N != 17 || r.Models[m].Horizons[1].N != 16 {
				t.Errorf("way %d, model %d: %+v", how, m, r.Models[m].Horizons)
			}
		}
	}
}

func TestSummaryCountsSeriesAlike(t *testing.T) {
	long, short := Result{Scale: 2, Models: []Model{{Horizons: []Tally{{N: 1000, AbsError: 4000, Pinball: 500, Inside: [4]int{0, 0, 950, 0}}}}}},
		Result{Scale: 1, Models: []Model{{Horizons: []Tally{{N: 10, AbsError: 10, Pinball: 5, Inside: [4]int{0, 0, 5, 0}, OnBound: [4]int{0, 0, 5, 0}}}}}}
	s := Summarize([]Result{long, short, {Scale: 1, Models: []Model{{Horizons: []Tally{{}}}}}}, 0, 0)
	near(t, "MASE", s.MASE, 1.5, 1e-12)
	near(t, "pinball", s.Pinball, 0.375, 1e-12)
	near(t, "coverage", s.Coverage[2], 0.975, 1e-12)
	near(t, "in band", s.InBand, 0.5, 0)
	near(t, "in band with ties", s.InBandTie, 1, 0)
	if s.Series != 2 {
		t.Errorf("%d series", s.Series)
	}
	if s := Summarize(nil, 0, 0); s.Series != 0 || !math.IsNaN(s.MASE) || !math.IsNaN(s.InBand) {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestStop(t *testing.T) {
	n := 0
	r := Run(make([]float64, 100), []forecast.Model{&around{}}, Options{Steps: 1, Warmup: 1, Stop: func() bool { n++; return n > 10 }})
	if r.Asked != 10 {
		t.Errorf("%d origins after a stop at the eleventh value", r.Asked)
	}
}

// waiting scores as production does: predictions lie there until the value comes.
func waiting(values []float64, m forecast.Model, o Options) []Tally {
	tallies := make([]Tally, o.Steps)
	type pending struct {
		due int
		h   int
		p   forecast.Prediction
	}
	var wait []pending
	seen := 0
	for t, y := range values {
		var rest []pending
		for _, w := range wait {
			if w.due != t {
				rest = append(rest, w)
			} else if !math.IsNaN(y) {
				tallies[w.h].value(y, &w.p)
			}
		}
		wait = rest
		m.Observe(y)
		if math.IsNaN(y) {
			continue
		}
		if seen++; seen < o.Warmup || (seen-o.Warmup)%o.Every != 0 {
			continue
		}
		out := make([]forecast.Prediction, o.Steps)
		if m.Predict(out) {
			for h, p := range out {
				wait = append(wait, pending{t + h + 1, h, p})
			}
		}
	}
	return tallies
}

func TestAsInProduction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Just(math.NaN()), rapid.Float64Range(-100, 100), rapid.Just(7.0)), 0, 60).Draw(t, "values")
		o := Options{Steps: rapid.IntRange(1, 5).Draw(t, "steps"), Warmup: rapid.IntRange(1, 6).Draw(t, "warmup"), Every: rapid.IntRange(1, 4).Draw(t, "every")}
		after := rapid.IntRange(0, 8).Draw(t, "after")
		want := waiting(values, &around{sd: 5, after: after}, o)
		r := Run(values, []forecast.Model{&around{sd: 5, after: after}}, o)
		for h, got := range r.Models[0].Horizons {
			if got != want[h] {
				t.Fatalf("%d steps: %+v, want %+v", h+1, got, want[h])
			}
		}
	})
}

func BenchmarkRun(b *testing.B) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = math.Sin(float64(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		Run(values, []forecast.Model{&around{sd: 1}}, Options{Steps: 10, Warmup: 10})
	}
}

// truth predicts the values of a random walk (keep 1) or of noise around a level (keep 0), whose steps have a standard deviation
// of 1, by their true distributions.
type truth struct {
	around
	keep float64
}

func (w *truth) Predict(out []forecast.Prediction) bool {
	mean, variance := w.last, 0.0
	for i := range out {
		mean *= w.keep
		variance = 1 + w.keep*w.keep*variance
		out[i] = forecast.Normal(mean, variance)
	}
	return true
}

// How often even the true distribution is out of the band, because a series is short. docs/reproduction/forecasts.md has these figures.
func TestBandOfShortSeries(t *testing.T) {
	for _, c := range []struct {
		keep     float64
		n        int
		low, top float64 // share of series in the band
	}{{0, 288, 0.94, 0.99}, {0.7, 288, 0.91, 0.97}, {1, 288, 0.88, 0.95}, {1, 2880, 1, 1}} {
		rng := rand.New(rand.NewPCG(7, uint64(c.n)))
		var results []Result
		for range 200 {
			values := make([]float64, c.n)
			for i := 1; i < c.n; i++ {
				values[i] = c.keep*values[i-1] + rng.NormFloat64()
			}
			results = append(results, Run(values, []forecast.Model{&truth{keep: c.keep}}, Options{Steps: 10, Warmup: 60}))
		}
		s := Summarize(results, 0, 0)
		t.Logf("keep %v, %d values: coverage %.3f, in band %.2f", c.keep, c.n, s.Coverage[2], s.InBand)
		near(t, "coverage", s.Coverage[2], 0.95, 0.005)
		if s.InBand < c.low || s.InBand > c.top {
			t.Errorf("keep %v, %d values: %.2f of series in the band, expected %v to %v", c.keep, c.n, s.InBand, c.low, c.top)
		}
	}
}
