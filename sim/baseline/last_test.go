package baseline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/forecast"
	"evenkeel/test/series"
)

// kinds are the models of this package that need nothing but values, each with what it claims.
var kinds = []struct {
	name   string
	make   func() forecast.Model
	widens bool // intervals never narrow with the horizon
	enough int  // values without a gap after which it predicts
}{
	{"last", func() forecast.Model { return NewLast() }, true, 9},
	{"peak", func() forecast.Model { return NewPeak(PeakWindow) }, true, 9},
	{"histogram", func() forecast.Model { return NewHistogram(HistogramHalfLife) }, true, 3},
	{"smooth", func() forecast.Model { return NewSmooth() }, true, 20},
}

// check says what is wrong with predictions, whatever the model.
func check(out []forecast.Prediction, widens bool) error {
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
			case widens && h > 0 && i < forecast.Median:
				o := len(forecast.Levels) - 1 - i
				before, now := out[h-1].Quantiles, p.Quantiles
				// Wide intervals far from 0 are known as exactly as floats are.
				if slack := 1e-9 * (math.Abs(now[i]) + math.Abs(now[o])); now[o]-now[i] < before[o]-before[i]-slack {
					return fmt.Errorf("%d ahead, the interval %v to %v narrows: %v after %v", h+1, forecast.Levels[i], forecast.Levels[o], now, before)
				}
			}
		}
	}
	return nil
}

func TestModelsOnShapes(t *testing.T) {
	for _, k := range kinds {
		for name, ys := range series.Shapes() {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				m, twin := k.make(), k.make()
				if m.Name() != k.name {
					t.Errorf("the name is %q", m.Name())
				}
				out, again, seldom := make([]forecast.Prediction, 12), make([]forecast.Prediction, 12), make([]forecast.Prediction, 5)
				could := false
				for i, y := range ys {
					m.Observe(y)
					twin.Observe(y)
					untouched := again[0]
					if ok := m.Predict(out); !ok {
						could = false
						if m.Predict(again) || again[0] != untouched {
							t.Fatalf("after %d values: it could not, and then it could, or it wrote what it could not know", i+1)
						}
						continue
					}
					could = true
					if err := check(out, k.widens); err != nil {
						t.Fatalf("after %d values: %v", i+1, err)
					}
					if !m.Predict(again) || !slices.Equal(out, again) {
						t.Fatalf("after %d values: predicting changed what is predicted:\n%v\n%v", i+1, out, again)
					}
				}
				// The twin was never asked, and is asked for less.
				if twin.Predict(seldom) != could || could && !slices.Equal(seldom, out[:5]) {
					t.Fatalf("a twin that was not asked before, or for fewer steps, predicts otherwise:\n%v\n%v", seldom, out[:5])
				}
				if !could && name != "nothing" && name != "a long gap" {
					t.Fatal("no prediction at the end")
				}
			})
		}
	}
}

func TestModelsNeedValues(t *testing.T) {
	for _, k := range kinds {
		m := k.make()
		out := []forecast.Prediction{{Mean: -1}}
		for i, y := range series.Noise(k.enough, 3) {
			if m.Predict(out) || out[0].Mean != -1 {
				t.Errorf("%s predicts after %d values: %v", k.name, i, out[0])
			}
			m.Observe(y)
		}
		if !m.Predict(out) {
			t.Errorf("%s does not predict after %d values", k.name, k.enough)
		}
	}
}

func TestModelsOnConstant(t *testing.T) {
	for _, k := range kinds {
		m, out := k.make(), make([]forecast.Prediction, 10)
		for range 200 {
			m.Observe(7.3)
		}
		if !m.Predict(out) {
			t.Fatalf("%s does not predict", k.name)
		}
		for h, p := range out {
			if math.Abs(p.Mean-7.3) > 1e-9 || p.Variance > 1e-12 || math.Abs(p.Quantiles[0]-7.3) > 1e-5 || math.Abs(p.Quantiles[len(forecast.Levels)-1]-7.3) > 1e-5 {
				t.Errorf("%s, %d ahead: %+v", k.name, h+1, p)
			}
		}
	}
}

// On noise that has one distribution for ever every model should cover about as much as its levels say.
func TestModelsCoverNoise(t *testing.T) {
	ys := series.Noise(6000, 77)
	for _, k := range kinds {
		m, out := k.make(), make([]forecast.Prediction, 3)
		var in, all [3]int
		for i, y := range ys[:len(ys)-3] {
			m.Observe(y)
			if i < 500 || !m.Predict(out) {
				continue
			}
			for h, p := range out {
				all[h]++
				if z := ys[i+1+h]; p.Quantiles[1] <= z && z <= p.Quantiles[len(forecast.Levels)-2] {
					in[h]++
				}
			}
		}
		for h := range in {
			if c := float64(in[h]) / float64(all[h]); !(c > 0.93 && c < 0.97) {
				t.Errorf("%s, %d ahead: the 95%% interval covers %.4f", k.name, h+1, c)
			}
		}
	}
}

func TestModelsDoNotAllocate(t *testing.T) {
	ys := series.Noise(2000, 5)
	for _, k := range kinds {
		m, out, i := k.make(), make([]forecast.Prediction, 10), 0
		for range 500 {
			m.Observe(ys[i])
			i++
		}
		if n := testing.AllocsPerRun(200, func() { m.Observe(ys[i]); i++; m.Predict(out) }); n > 0 {
			t.Errorf("%s allocates %v times for a step", k.name, n)
		}
	}
}

func TestLast(t *testing.T) {
	// Steps of 1 up and 1 down: errors one step ahead are 1 and -1, two steps ahead 0.
	l, out := NewLast(), make([]forecast.Prediction, 2)
	for i := range 40 {
		l.Observe(10 + float64(i%2))
	}
	if !l.Predict(out) {
		t.Fatal("no prediction")
	}
	if p := out[0]; p.Mean != 11 || math.Abs(p.Variance-1) > 1e-9 || p.Quantiles[forecast.Median] != 11 || p.Quantiles[4] != 10 || p.Quantiles[6] != 12 {
		t.Errorf("one step ahead: %+v", p)
	}
	if p := out[1]; p.Mean != 11 || math.Abs(p.Variance-1) > 1e-9 || p.Quantiles[4] != 10 {
		t.Errorf("two steps ahead it should be no surer: %+v", p)
	}
	// A gap of one step: what was two steps ahead is one, and it is worth as much.
	walk := NewLast()
	y, r := 0.0, rand.New(rand.NewPCG(1, 2))
	for range 128 {
		y += r.NormFloat64()
		walk.Observe(y)
	}
	walk.Predict(out)
	two := out[1]
	walk.Observe(math.NaN())
	if !walk.Predict(out) || out[0].Mean != two.Mean || out[0].Variance < 0.9*two.Variance {
		t.Errorf("after a gap: %+v, before it for the same instant: %+v", out[0], two)
	}
	if walk.Observe(y); !walk.Predict(out) || out[0].Variance > 0.8*two.Variance {
		t.Errorf("after the next value it is as unsure as in the gap: %+v", out[0])
	}
	// Steps that no error is known of: the square root of the steps.
	short := NewLast()
	for i := range 10 {
		short.Observe(float64(i))
	}
	far := make([]forecast.Prediction, 8)
	if !short.Predict(far) || math.Abs(far[7].Variance-4*far[1].Variance) > 1e-9 {
		t.Errorf("8 steps ahead of 10 values the variance is %v, 2 steps ahead %v", far[7].Variance, far[1].Variance)
	}
}

func BenchmarkModels(b *testing.B) {
	ys := series.Noise(4096, 5)
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			m, out := k.make(), make([]forecast.Prediction, 10)
			for _, y := range ys[:500] {
				m.Observe(y)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Observe(ys[i%len(ys)])
				m.Predict(out)
			}
		})
	}
}
