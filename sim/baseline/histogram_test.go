package baseline

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/forecast"
)

// With a half-life that is long for the series, quantiles are those of the values but for the width of a bucket.
func TestHistogramQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ys := rapid.SliceOfN(rapid.Float64Range(0.01, 100), 3, 300).Draw(t, "values")
		h, out := NewHistogram(1e9), make([]forecast.Prediction, 1)
		for _, y := range ys {
			h.Observe(y)
		}
		if !h.Predict(out) {
			t.Fatal("no prediction")
		}
		for i, p := range forecast.Levels {
			q, below, upTo := out[0].Quantiles[i], 0.0, 0.0
			for _, y := range ys {
				if y < q/1.0501 {
					below += 1 / float64(len(ys))
				}
				if y <= q*1.0501 {
					upTo += 1 / float64(len(ys))
				}
			}
			if below > p+1e-6 || upTo < p-1e-6 {
				t.Fatalf("quantile %v is %v: %v of the values are a bucket below it, %v at most a bucket above", p, q, below, upTo)
			}
		}
	})
}

func TestHistogramForgets(t *testing.T) {
	h, out := NewHistogram(10), make([]forecast.Prediction, 1)
	for range 5000 { // the weights are brought back to 1 several times on the way
		h.Observe(100)
	}
	for range 10 {
		h.Observe(1)
	}
	// One half-life of ones weighs as much as all the hundreds before them.
	if h.Predict(out); math.Abs(out[0].Mean-50.5) > 0.1 || math.Abs(out[0].Variance/49.5/49.5-1) > 0.01 || math.Abs(out[0].Quantiles[4]-1) > 0.06 || math.Abs(out[0].Quantiles[6]-100) > 5 {
		t.Errorf("after one half-life: %+v", out[0])
	}
	for range 190 {
		h.Observe(1)
	}
	if h.Predict(out); math.Abs(out[0].Mean-1) > 0.01 || out[0].Variance > 0.02 || out[0].Quantiles[len(forecast.Levels)-1] > 1.06 {
		t.Errorf("after 20 half-lives: %+v", out[0])
	}
	// A gap changes nothing but that what comes after it weighs more.
	before := out[0]
	for range 10 {
		h.Observe(math.NaN())
	}
	if h.Predict(out); math.Abs(out[0].Mean-before.Mean) > 1e-9 {
		t.Errorf("a gap moved the mean from %v to %v", before.Mean, out[0].Mean)
	}
}

// Values that repeat are met exactly, whatever their bucket.
func TestHistogramMeetsWholeNumbers(t *testing.T) {
	h, out := NewHistogram(1e6), make([]forecast.Prediction, 1)
	for i := range 1000 {
		h.Observe([]float64{3, 4, 4, 4, 7}[i%5])
	}
	h.Predict(out)
	if q := out[0].Quantiles; q != [len(forecast.Levels)]float64{3, 3, 3, 3, 4, 4, 4, 7, 7, 7, 7} {
		t.Errorf("%v", q)
	}
}

// A past that has faded to nothing says nothing; what comes after it does.
func TestHistogramAfterAges(t *testing.T) {
	h, out := NewHistogram(1), make([]forecast.Prediction, 1)
	for range 5 {
		h.Observe(3)
	}
	for range 5000 {
		h.Observe(math.NaN())
	}
	if h.Predict(out) {
		t.Errorf("%+v", out[0])
	}
	if h.Observe(8); !h.Predict(out) || math.Abs(out[0].Mean-8) > 1e-9 || out[0].Quantiles[forecast.Median] != 8 {
		t.Errorf("%+v", out[0])
	}
}

func TestHistogramFollowsTheScale(t *testing.T) {
	h, out := NewHistogram(1e6), make([]forecast.Prediction, 1)
	for i := range 300 {
		h.Observe([]float64{0, 1e-3, 2e9}[i%3]) // the least two share the bucket at the bottom
	}
	h.Predict(out)
	if q := out[0].Quantiles; q[2] > 2e9/11000 || q[4] > 2e9/11000 || math.Abs(q[7]-2e9) > 0.05*2e9 {
		t.Errorf("%v", q)
	}
}
