package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// kinds are the models of this package that need nothing but values, each with what it claims.
var kinds = []struct {
	name   string
	make   func() Model
	widens bool // intervals never narrow with the horizon
	enough int  // values without a gap after which it predicts
}{
	{"last", func() Model { return NewLast() }, true, 9},
	{"peak", func() Model { return NewPeak(PeakWindow) }, true, 9},
	{"histogram", func() Model { return NewHistogram(HistogramHalfLife) }, true, 3},
	{"smooth", func() Model { return NewSmooth() }, true, 20},
}

// noise is a series of n values around 50.
func noise(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	ys := make([]float64, n)
	for i := range ys {
		ys[i] = 50 + 5*r.NormFloat64()
	}
	return ys
}

// shapes are series that trouble models.
func shapes() map[string][]float64 {
	s := map[string][]float64{
		"constant": make([]float64, 300), "zero": make([]float64, 300), "noise": noise(400, 1), "tiny": noise(300, 2),
		"huge": noise(300, 3), "gaps": noise(400, 4), "every second": noise(400, 5), "jumps": noise(400, 6),
		"negative": noise(300, 7), "a long gap": noise(500, 8), "absurd": noise(300, 9), "nothing": make([]float64, 50),
		"one in between": make([]float64, 300), "period": noise(600, 10), "trend": noise(300, 11),
	}
	r := rand.New(rand.NewPCG(9, 9))
	for i := range s["constant"] {
		s["constant"][i] = 7.3
		s["tiny"][i] *= 1e-80
		s["huge"][i] *= 1e80
		s["negative"][i] -= 50
		s["trend"][i] += float64(i)
	}
	for i := range s["gaps"] {
		if r.IntN(3) == 0 {
			s["gaps"][i] = math.NaN()
		}
		if i%2 == 1 {
			s["every second"][i] = math.NaN()
		}
		if i/60%2 == 1 {
			s["jumps"][i] *= 100
		}
		if i >= 150 {
			s["a long gap"][i] = math.NaN()
		}
	}
	for i := range s["nothing"] {
		s["nothing"][i] = math.NaN()
	}
	for i := range s["period"] {
		s["period"][i] += 30 * math.Sin(2*math.Pi*float64(i)/24)
	}
	s["absurd"][200], s["absurd"][201], s["absurd"][202] = math.Inf(1), -1e300, math.MaxFloat64
	s["one in between"][150] = 1e9
	return s
}

// check says what is wrong with predictions, whatever the model.
func check(out []Prediction, widens bool) error {
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
			case widens && h > 0 && i < Median:
				o := len(Levels) - 1 - i
				before, now := out[h-1].Quantiles, p.Quantiles
				// Wide intervals far from 0 are known as exactly as floats are.
				if slack := 1e-9 * (math.Abs(now[i]) + math.Abs(now[o])); now[o]-now[i] < before[o]-before[i]-slack {
					return fmt.Errorf("%d ahead, the interval %v to %v narrows: %v after %v", h+1, Levels[i], Levels[o], now, before)
				}
			}
		}
	}
	return nil
}

func TestModelsOnShapes(t *testing.T) {
	for _, k := range kinds {
		for name, ys := range shapes() {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				m, twin := k.make(), k.make()
				if m.Name() != k.name {
					t.Errorf("the name is %q", m.Name())
				}
				out, again, seldom := make([]Prediction, 12), make([]Prediction, 12), make([]Prediction, 5)
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
		out := []Prediction{{Mean: -1}}
		for i, y := range noise(k.enough, 3) {
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
		m, out := k.make(), make([]Prediction, 10)
		for range 200 {
			m.Observe(7.3)
		}
		if !m.Predict(out) {
			t.Fatalf("%s does not predict", k.name)
		}
		for h, p := range out {
			if math.Abs(p.Mean-7.3) > 1e-9 || p.Variance > 1e-12 || math.Abs(p.Quantiles[0]-7.3) > 1e-5 || math.Abs(p.Quantiles[len(Levels)-1]-7.3) > 1e-5 {
				t.Errorf("%s, %d ahead: %+v", k.name, h+1, p)
			}
		}
	}
}

// On noise that has one distribution for ever every model should cover about as much as its levels say.
func TestModelsCoverNoise(t *testing.T) {
	ys := noise(6000, 77)
	for _, k := range kinds {
		m, out := k.make(), make([]Prediction, 3)
		var in, all [3]int
		for i, y := range ys[:len(ys)-3] {
			m.Observe(y)
			if i < 500 || !m.Predict(out) {
				continue
			}
			for h, p := range out {
				all[h]++
				if z := ys[i+1+h]; p.Quantiles[1] <= z && z <= p.Quantiles[len(Levels)-2] {
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
	ys := noise(2000, 5)
	for _, k := range kinds {
		m, out, i := k.make(), make([]Prediction, 10), 0
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
	l, out := NewLast(), make([]Prediction, 2)
	for i := range 40 {
		l.Observe(10 + float64(i%2))
	}
	if !l.Predict(out) {
		t.Fatal("no prediction")
	}
	if p := out[0]; p.Mean != 11 || math.Abs(p.Variance-1) > 1e-9 || p.Quantiles[Median] != 11 || p.Quantiles[4] != 10 || p.Quantiles[6] != 12 {
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
	far := make([]Prediction, 8)
	if !short.Predict(far) || math.Abs(far[7].Variance-4*far[1].Variance) > 1e-9 {
		t.Errorf("8 steps ahead of 10 values the variance is %v, 2 steps ahead %v", far[7].Variance, far[1].Variance)
	}
}

func BenchmarkModels(b *testing.B) {
	ys := noise(4096, 5)
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			m, out := k.make(), make([]Prediction, 10)
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
