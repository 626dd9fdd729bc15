package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestQuantilesOfSample(t *testing.T) {
	var q quantiles
	for _, c := range []struct {
		sample            []float64
		low, middle, high float64
	}{
		{[]float64{7}, 7, 7, 7},
		{[]float64{1, 2}, 1, 1.5, 2},
		{[]float64{1, 2, 2, 2, 2, 2, 9}, 1, 2, 9},
	} {
		if q.ofSample(c.sample); q[0] != c.low || q[Median] != c.middle || q[levels-1] != c.high {
			t.Errorf("%v: %v", c.sample, q)
		}
	}
	many := make([]float64, 1000)
	for i := range many {
		many[i] = float64(i) + 0.5
	}
	q.ofSample(many)
	for l, p := range Levels {
		if math.Abs(q[l]-1000*p) > 1e-9 {
			t.Errorf("level %v of 0 to 1000: %v", p, q[l])
		}
	}
}

func TestQuantilesOfNormal(t *testing.T) {
	p := Normal(10, 4)
	q := quantiles(p.Quantiles)
	// Straight between quantiles is outside the curve, without tails beyond the outermost is inside.
	if mean, variance := q.moments(); math.Abs(mean-10) > 1e-9 || variance < 0.95*4 || variance > 1.1*4 {
		t.Errorf("mean %v, variance %v", mean, variance)
	}
	for l, level := range Levels[:levels-1] {
		if got := q.below(q[l]); math.Abs(got-level) > 1e-12 {
			t.Errorf("%v lies below the quantile of %v", got, level)
		}
	}
	if q.below(-100) != 0 || q.below(100) != 1 {
		t.Errorf("below far ends: %v, %v", q.below(-100), q.below(100))
	}
	for _, z := range []float64{-4, -2, -0.3, 0, 1, 2.2, 5} {
		if got := q.at(z); math.Abs(got-(10+2*z)) > 1e-9 {
			t.Errorf("at score %v: %v, want %v", z, got, 10+2*z)
		}
	}
}

// Whatever is stated, in the long run the share that lies beyond a quantile is what its level says: here intervals
// of 0.6 times the width that the values have, off their centre, at every horizon.
func TestConformalCorrectsWhatIsWrong(t *testing.T) {
	const steps = 6000
	c := newConformal()
	r := rand.New(rand.NewPCG(6, 6))
	var above [corrections][levels]float64
	n := 0.0
	for i := range steps {
		y := 50 + 10*r.NormFloat64()
		if i > 1000 {
			n++
			for k := range corrected {
				if stated := c.stated(k, i); stated != nil {
					for l, q := range stated {
						if y > float64(q) {
							above[k][l]++
						}
					}
				}
			}
		}
		c.learn(i, y, false)
		var g grid
		for h := range g {
			g[h] = Normal(52.5, 36).Quantiles
		}
		c.correct(&g, i+1)
		c.keep(i+1, &g)
	}
	for k, h := range corrected {
		for l, p := range Levels {
			if haste[l] < 1 {
				continue
			}
			if got := 1 - above[k][l]/n; math.Abs(got-p) > 0.01 {
				t.Errorf("%d ahead: %.3f lie below the quantile of %v", h, got, p)
			}
		}
	}
}

// Of a censored value it is known only that the true one is no less.
func TestConformalCensored(t *testing.T) {
	c := newConformal()
	var g grid
	for h := range g {
		g[h] = Normal(50, 100).Quantiles
	}
	c.keep(1, &g)
	before := c.shift[0]
	c.learn(1, 55, true)
	for l, q := range Normal(50, 100).Quantiles {
		switch moved := c.shift[0][l] - before[l]; {
		case q > 55 && moved != 0:
			t.Errorf("the quantile %v above was judged: moved by %v", q, moved)
		case q < 55 && haste[l] > 0 && !(moved > 0):
			t.Errorf("the quantile %v below was not: moved by %v", q, moved)
		}
	}
}

func TestCalibrationCounts(t *testing.T) {
	var c calibration
	stated := [levels]float32{}
	for l := range stated {
		stated[l] = float32(l) // -0.5% to 99.5%: 0 to 10, the interval of 95% is 1 to 9
	}
	ys := []float64{5, 9, 9.5, 1, 0.5, 12, 5, 5, 5, 5}
	for _, y := range ys {
		c.add(0, &stated, y)
	}
	got := c.of(0)
	// The newest counts 1, each before it 0.995 of the one after it.
	var weight, inside, above float64
	for i, y := range ys {
		w := math.Pow(calibrationDecay, float64(len(ys)-1-i))
		weight += w
		if y >= 1 && y <= 9 {
			inside += w
		}
		if y > 9 {
			above += w
		}
	}
	if math.Abs(got.Values-weight) > 1e-4 || math.Abs(got.Coverage[2]-inside/weight) > 1e-5 || math.Abs(got.Above-above/weight) > 1e-5 || got.Steps != 1 {
		t.Errorf("%+v, want %v values, %v inside, %v above", got, weight, inside/weight, above/weight)
	}
	if c.of(1).Values != 0 || c.of(1).Pinball != 0 {
		t.Errorf("another horizon: %+v", c.of(1))
	}
}

// The true value of a censored sample may be anything above it: of two experts that forecast more, neither loses weight.
func TestWeightsCensored(t *testing.T) {
	v := newWeights(3)
	able := []bool{true, true, true}
	stated := make([]grid, 3)
	var mix grid
	for h := range Horizon {
		for l := range levels {
			stated[0][h][l], stated[1][h][l], stated[2][h][l], mix[h][l] = 1, 3, 30, 2
		}
	}
	v.keep(1, able, stated, &mix)
	v.learn(1, 2.5, true)
	for l, p := range Levels {
		low, above, far := v.regret[0][0][l], v.regret[1][0][l], v.regret[2][0][l]
		if above != far || !(above > 0) || !(low < 0) {
			t.Errorf("level %v: regret of %v for what said less, %v for what said more, %v for far more", p, low, above, far)
		}
	}
}

// Of two experts the one that is right at a level gets its weight there, and not where the other is right.
func TestWeightsFindTheBestModelOfEachStep(t *testing.T) {
	v := newWeights(2)
	able := []bool{true, true}
	r := rand.New(rand.NewPCG(7, 7))
	truth := quantiles(Normal(0, 1).Quantiles)
	low, high := truth, truth // right below the median, and above it
	for l := range levels {
		if l > Median {
			low[l] += 3
		} else if l < Median {
			high[l] -= 3
		}
	}
	stated := make([]grid, 2)
	var mix grid
	var share shares
	for i := range 600 {
		v.learn(i, r.NormFloat64(), false)
		v.share(able, &share)
		for h := range Horizon {
			stated[0][h], stated[1][h] = low, high
			for l := range levels {
				mix[h][l] = share[0][l][0]*low[l] + share[0][l][1]*high[l]
			}
		}
		v.keep(i+1, able, stated, &mix)
	}
	for s, h := range scored {
		for l, p := range Levels {
			right := share[s][l][0]
			if l > Median {
				right = share[s][l][1]
			}
			if l != Median && right < 0.9 {
				t.Errorf("%d ahead, level %v: who is right has a weight of %.2f", h, p, right)
			}
			if sum := share[s][l][0] + share[s][l][1]; math.Abs(sum-1) > 1e-12 {
				t.Errorf("weights sum to %v", sum)
			}
		}
	}
}
