package forecast

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBufferSize(t *testing.T) {
	p := Normal(2, 0.25) // deviation 0.5; the quantile at 0.975 lies 0.98 above the mean
	for name, c := range map[string]struct {
		b    Buffer
		want float64
	}{
		"default":         {DefaultBuffer, 0.05*4 + 3*0.5},
		"paper":           {Buffer{K1: 0.05, K2: 3, Spread: Variance}, 0.05*4 + 3*0.25},
		"quantile":        {Buffer{K1: 0.05, K2: 1, Spread: Quantile, Level: 0.975}, 0.05*4 + 1.959964*0.5},
		"between levels":  {Buffer{K2: 1, Spread: Quantile, Level: 0.96}, 1.959964 * 0.5},
		"above all":       {Buffer{K2: 1, Spread: Quantile, Level: 0.9999}, 2.575829 * 0.5},
		"below the mean":  {Buffer{K2: 1, Spread: Quantile, Level: 0.1}, 0},
		"only the share":  {Buffer{K1: 0.05}, 0.2},
		"nothing at all":  {Buffer{}, 0},
		"never below 0":   {Buffer{K1: -1}, 0},
		"a wide variance": {Buffer{K2: 1, Spread: Variance}, 0.25},
	} {
		if got := c.b.Size(4, p); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if b := DefaultBuffer; b.K1 != 0.05 || b.K2 != 3 || b.MinAge != 10*time.Minute || b.AboveRequest {
		t.Errorf("the default is not what Pace measured with: %+v", b)
	}
}

// The same VM in cores and in millicores: the buffer is the same, but for the variance's, which is a thousand times as large.
func TestBufferUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mean, sd := rapid.Float64Range(0, 64).Draw(t, "mean"), rapid.Float64Range(0.001, 8).Draw(t, "deviation")
		request := rapid.Float64Range(0.1, 64).Draw(t, "request")
		cores, milli := Normal(mean, sd*sd), Normal(1000*mean, 1e6*sd*sd)
		for _, s := range []Spread{Deviation, Quantile} {
			b := Buffer{K1: 0.05, K2: 3, Spread: s, Level: 0.95}
			if c, m := b.Size(request, cores), b.Size(1000*request, milli); math.Abs(1000*c-m) > 1e-9*m {
				t.Fatalf("spread %v: %v cores, %v millicores", s, c, m)
			}
		}
		b := Buffer{K2: 3, Spread: Variance}
		if c, m := b.Size(request, cores), b.Size(1000*request, milli); math.Abs(1000*1000*c-m) > 1e-9*m {
			t.Fatalf("variance: %v cores, %v millicores", c, m)
		}
	})
}

func TestBufferNeed(t *testing.T) {
	b := DefaultBuffer
	above := b
	above.AboveRequest = true
	calm, wild, negative := Normal(1, 0), Normal(1, 1), Normal(-5, 0)
	for name, c := range map[string]struct {
		b       Buffer
		request float64
		ahead   []Prediction
		want    float64
	}{
		"calm":                  {b, 4, []Prediction{calm}, 1.2},
		"the worst step counts": {b, 10, []Prediction{calm, wild, calm}, 1 + 0.5 + 3},
		"no more than asked":    {b, 4, []Prediction{wild}, 4},
		"more than asked":       {above, 4, []Prediction{wild}, 1 + 0.2 + 3},
		"less than nothing":     {b, 4, []Prediction{negative}, 0.2},
		"nothing predicted":     {b, 4, nil, 4},
		"no number":             {b, 4, []Prediction{calm, {Mean: math.NaN()}, calm}, 4},
		"infinite":              {above, 4, []Prediction{Normal(1, math.Inf(1))}, 4},
		"a request of 0":        {b, 0, []Prediction{calm}, 0},
		"of 0, and more":        {above, 0, []Prediction{calm}, 1},
	} {
		if got := c.b.Need(c.request, c.ahead); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
