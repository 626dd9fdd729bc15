package baseline

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/forecast"
)

// Smooth must find what was drawn: a level that wanders and noise upon it.
func TestSmoothFindsTheLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	s, out := NewSmooth(), make([]forecast.Prediction, 5)
	level, y := 100.0, 0.0
	var squares, naive, variance float64
	n := 0
	for i := range 3000 {
		next := level + 3*r.NormFloat64()
		if s.Predict(out) && i > 300 {
			squares += (next - out[0].Mean) * (next - out[0].Mean)
			naive += (next - y) * (next - y)
			variance += out[0].Variance
			n++
		}
		y = next
		s.Observe(y)
		level += 0.2 * 3 * r.NormFloat64()
	}
	// The best alpha for this signal-to-noise is 0.18; its mean squared error 9/(1-0.18).
	if mse := squares / float64(n); mse > 1.15*9/(1-0.18) || mse > 0.7*naive/float64(n) {
		t.Errorf("mean squared error %.2f, of the last value %.2f", mse, naive/float64(n))
	}
	if ratio := variance / squares; math.Abs(ratio-1) > 0.05 {
		t.Errorf("the variance stated is %.3f of the one measured", ratio)
	}
}

// On a trend the growth must be part of what was stated, or errors would seem to grow with the steps; and a gap must count as steps.
func TestSmoothFollowsTrendAndGap(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	s, out := NewSmooth(), make([]forecast.Prediction, 10)
	level, growth := 0.0, 5.0
	for range 400 {
		growth += 0.5 * (r.Float64() - 0.5)
		growth *= 0.98
		level += growth
		s.Observe(level)
	}
	if !s.Predict(out) {
		t.Fatal("no prediction")
	}
	// The level has grown by growth at each step so far, and growth changes by 0.14 at each: ten steps on that adds up
	// to a deviation of 2.8 or so, where a level without growth is off by up to ten times the growth.
	if sd := math.Sqrt(out[9].Variance); sd > 5 {
		t.Errorf("10 ahead the deviation is %.2f", sd)
	}
	for range 4 {
		s.Observe(math.NaN())
	}
	after := make([]forecast.Prediction, 6)
	if !s.Predict(after) {
		t.Fatal("no prediction in a gap")
	}
	for h, p := range after {
		if want := out[h+4]; math.Abs(p.Mean-want.Mean) > 1e-6 || p.Variance < 0.7*want.Variance || p.Variance > 1.4*want.Variance {
			t.Errorf("%d ahead after a gap of 4: %v, %v; before it for the same instant %v, %v", h+1, p.Mean, p.Variance, want.Mean, want.Variance)
		}
	}
	for range trackLength {
		s.Observe(math.NaN())
	}
	if s.Predict(after) {
		t.Error("it predicts from a window that is a gap")
	}
}
