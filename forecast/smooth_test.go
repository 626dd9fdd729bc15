package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Smooth must find what was drawn: a level that wanders and noise upon it.
func TestSmoothFindsTheLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	s, out := NewSmooth(), make([]Prediction, 5)
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
