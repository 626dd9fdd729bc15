package baseline

import (
	"math"
	"testing"

	"evenkeel/forecast"
)

func TestPeak(t *testing.T) {
	// 9 of 10 values are 1, every tenth is 5: the peak of the last 20 is always 5, and a value lies 4 below it nine times of ten.
	p, out := NewPeak(20), make([]forecast.Prediction, 3)
	for i := range 200 {
		y := 1.0
		if i%10 == 0 {
			y = 5
		}
		p.Observe(y)
	}
	if !p.Predict(out) {
		t.Fatal("no prediction")
	}
	for h, f := range out {
		if math.Abs(f.Mean-1.4) > 0.05 || f.Quantiles[forecast.Median] != 1 || f.Quantiles[8] != 5 || f.Quantiles[len(forecast.Levels)-2] != 5 {
			t.Errorf("%d ahead: %+v", h+1, f)
		}
	}
	// The peak leaves the window with the value that made it.
	p = NewPeak(3)
	for i, want := range []float64{2, 9, 9, 9, 4, 3} {
		p.Observe([]float64{2, 9, 4, 1, 3, 2}[i])
		if p.peak() != want {
			t.Errorf("after value %d the peak is %v, want %v", i+1, p.peak(), want)
		}
	}
	for range 3 {
		p.Observe(math.NaN())
	}
	if p.Predict(out) {
		t.Error("it predicts from a window that is a gap")
	}
}
