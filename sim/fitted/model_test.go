package fitted

import (
	"math"
	"testing"

	"evenkeel/forecast"
)

// A model says nothing before it is fitted, which is after 40 measured values, and a gap neither counts as values nor ends it.
func TestModelsWaitForValues(t *testing.T) {
	w := NewWorkspace()
	for name, m := range map[string]*Model{"arima": NewARIMA(0, w), "gp": NewGP(3, w)} {
		if m.Name() != name {
			t.Errorf("%s is named %s", name, m.Name())
		}
		first, out := 0, make([]forecast.Prediction, 3)
		for i := range 120 {
			y := 5 + math.Sin(float64(i)/3)
			if i < 10 || i == 70 {
				y = math.NaN()
			}
			m.Observe(y)
			if ok := m.Predict(out); ok && first == 0 {
				first = i + 1
			} else if !ok && first > 0 {
				t.Errorf("%s says nothing after %d values, and did after %d", name, i+1, first)
			}
		}
		if first < 50 || first > 65 {
			t.Errorf("%s first predicts after %d values, of which 10 were not measured", name, first)
		}
		if mean := out[0].Mean; math.Abs(mean-5-math.Sin(120./3)) > 0.2 {
			t.Errorf("%s predicts %v of a wave, %v comes", name, mean, 5+math.Sin(120./3))
		}
	}
}
