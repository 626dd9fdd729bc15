package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/test/series"
)

// check says what is wrong with predictions, whatever the model.
func check(out []Prediction) error {
	for h, p := range out {
		if math.IsNaN(p.Mean) || math.IsInf(p.Mean, 0) || !(p.Variance >= 0) || math.IsInf(p.Variance, 0) {
			return fmt.Errorf("%d ahead: %+v", h+1, p)
		}
		for i, q := range p.Quantiles {
			switch {
			case math.IsNaN(q) || math.IsInf(q, 0):
				return fmt.Errorf("%d ahead: %+v", h+1, p)
			case i > 0 && q < p.Quantiles[i-1]:
				return fmt.Errorf("%d ahead, quantiles descend: %v", h+1, p.Quantiles)
			}
		}
	}
	return nil
}

// scoreOf is how a model did from value `from` on: mean pinball loss over levels and steps ahead, and the share of
// values within its 95% interval.
func scoreOf(t *testing.T, m Model, ys []float64, from int) (loss, coverage float64) {
	t.Helper()
	stated := make([][Horizon]Prediction, len(ys))
	able := make([]bool, len(ys))
	var n, inside float64
	for i, y := range ys {
		if i >= from && !math.IsNaN(y) {
			for h := 1; h <= Horizon; h++ {
				if !able[i-h] {
					continue
				}
				q := &stated[i-h][h-1].Quantiles
				for l, p := range Levels {
					loss += pinball(q[l], y, p) / float64(levels)
				}
				if q[1] <= y && y <= q[levels-2] {
					inside++
				}
				n++
			}
		}
		m.Observe(y)
		able[i] = m.Predict(stated[i][:])
		if able[i] {
			if err := check(stated[i][:]); err != nil {
				t.Fatalf("value %d: %v", i, err)
			}
		}
	}
	if n == 0 {
		t.Fatal("nothing was scored")
	}
	return loss / n, inside / n
}

// oracle is the mean pinball loss of the true quantiles of y's distribution, by a sample of it.
func oracle(sample func(*rand.Rand) float64) float64 {
	r := rand.New(rand.NewPCG(77, 77))
	ys := make([]float64, 40000)
	for i := range ys {
		ys[i] = sample(r)
	}
	var q quantiles
	sorted := slices.Clone(ys)
	slices.Sort(sorted)
	q.ofSample(sorted)
	var loss float64
	for _, y := range ys {
		for l, p := range Levels {
			loss += pinball(q[l], y, p) / float64(levels)
		}
	}
	return loss / float64(len(ys))
}

func TestMixtureOnKnownDistributions(t *testing.T) {
	for name, sample := range map[string]func(*rand.Rand) float64{
		"normal":      func(r *rand.Rand) float64 { return 50 + 5*r.NormFloat64() },
		"exponential": func(r *rand.Rand) float64 { return r.ExpFloat64() },
		"log-normal":  func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) },
		"whole numbers": func(r *rand.Rand) float64 {
			return math.Round(3 + 2*r.NormFloat64())
		},
		"idle and bursts": func(r *rand.Rand) float64 {
			if r.IntN(10) < 8 {
				return 2
			}
			return 20 + 10*r.Float64()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			ys := make([]float64, 1500)
			for i := range ys {
				ys[i] = sample(r)
			}
			best := oracle(sample)
			loss, coverage := scoreOf(t, NewMixture(1440, nil), ys, 300)
			if loss > 1.06*best {
				t.Errorf("pinball loss %.4g, the best possible is %.4g", loss, best)
			}
			if coverage < 0.93 || coverage > 0.98 {
				t.Errorf("the 95%% interval covers %.1f%%", 100*coverage)
			}
		})
	}
}

// What is known of the process, its coefficient and its variance, is worth no more than a few percent.
func TestMixtureOnAutoregression(t *testing.T) {
	ys := series.Autoregressive(1500, 1)
	var best, n float64
	for i := 300; i+Horizon < len(ys); i++ {
		variance := 0.0
		for h := 1; h <= Horizon; h++ {
			variance = 0.81*variance + 1
			p := Normal(20+(ys[i]-20)*math.Pow(0.9, float64(h)), variance)
			for l, level := range Levels {
				best += pinball(p.Quantiles[l], ys[i+h], level) / float64(levels)
			}
			n++
		}
	}
	loss, coverage := scoreOf(t, NewMixture(1440, nil), ys, 300)
	if loss > 1.08*best/n {
		t.Errorf("pinball loss %.4g, the true model has %.4g", loss, best/n)
	}
	if coverage < 0.92 || coverage > 0.98 {
		t.Errorf("the 95%% interval covers %.1f%%", 100*coverage)
	}
}

func TestMixtureSitsOnMassPoints(t *testing.T) {
	m := NewMixture(1440, nil)
	var out [Horizon]Prediction
	for range 400 {
		m.Observe(0.137)
	}
	if !m.Predict(out[:]) {
		t.Fatal("it cannot predict a constant")
	}
	for h, p := range out {
		if p.Quantiles[0] != 0.137 || p.Quantiles[levels-1] != 0.137 || p.Variance != 0 {
			t.Errorf("%d ahead of a constant: %+v", h+1, p)
		}
	}
	// Four of five values are 2, the others spread over 20 to 30.
	r := rand.New(rand.NewPCG(5, 5))
	m = NewMixture(1440, nil)
	for range 800 {
		y := 2.0
		if r.IntN(5) == 0 {
			y = 20 + 10*r.Float64()
		}
		m.Observe(y)
	}
	m.Predict(out[:])
	for h, p := range out {
		if math.Abs(p.Quantiles[Median]-2) > 0.25 || p.Quantiles[levels-2] < 20 {
			t.Errorf("%d ahead of bursts: %v", h+1, p.Quantiles)
		}
	}
}

// After a jump to a level that the mixture has not observed, intervals must soon hold again, and in the end the old level has no weight.
func TestMixtureAfterAJump(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	ys := make([]float64, 1600)
	for i := range ys {
		ys[i] = 10 + r.NormFloat64()
		if i >= 600 {
			ys[i] = 100 + 10*r.NormFloat64()
		}
	}
	loss, coverage := scoreOf(t, NewMixture(1440, nil), ys, 700)
	best := 10 * oracle(func(r *rand.Rand) float64 { return r.NormFloat64() })
	if loss > 1.12*best || coverage < 0.92 || coverage > 0.985 {
		t.Errorf("100 steps after the jump and on: loss %.4g (best %.4g), the 95%% interval covers %.1f%%", loss, best, 100*coverage)
	}
}

func TestMixtureWithGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	ys := series.Autoregressive(1500, 4)
	for i := range ys {
		if r.IntN(4) == 0 || i%300 > 280 {
			ys[i] = math.NaN()
		}
	}
	if _, coverage := scoreOf(t, NewMixture(1440, nil), ys, 300); coverage < 0.92 || coverage > 0.985 {
		t.Errorf("the 95%% interval covers %.1f%%", 100*coverage)
	}
}

func TestMixtureOnShapes(t *testing.T) {
	for name, ys := range series.Shapes() {
		t.Run(name, func(t *testing.T) {
			m := NewMixture(48, nil)
			var out [Horizon + 10]Prediction
			for i, y := range ys {
				m.Observe(y)
				if m.Predict(out[:]) {
					if err := check(out[:]); err != nil {
						t.Fatalf("value %d: %v", i, err)
					}
				}
			}
		})
	}
}

// Values below its cap teach as always; at its cap, forecasts grow until it no longer binds.
func TestMixtureCensored(t *testing.T) {
	m := NewMixture(1440, nil)
	r := rand.New(rand.NewPCG(3, 3))
	var out [1]Prediction
	for range 200 {
		m.Observe(1 + 0.05*r.NormFloat64())
	}
	limit := 1.3 // the load becomes 4, the cap follows the 97.5% quantile
	steps := 0
	for ; limit < 4 && steps < 15; steps++ {
		m.ObserveCensored(limit)
		if !m.Predict(out[:]) {
			t.Fatal("it cannot predict any more")
		}
		limit = max(limit, out[0].Quantiles[levels-2])
	}
	t.Logf("after %d values the cap is %.2f", steps, limit)
	if limit < 4 {
		t.Errorf("after %d values at the cap it is %.2f, 4 are needed", steps, limit)
	}
}
