package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// medianTrust is after how many values half of the series are trusted.
func medianTrust(t *testing.T, series, values int, next func(i int) float64) int {
	t.Helper()
	var firsts []int
	w := NewWorkspace()
	for range series {
		s, first := New(Options{Positive: true, Workspace: w}), math.MaxInt
		for i := range values {
			if err := s.Observe(int64(i), next(i), false); err != nil {
				t.Fatal(err)
			}
			if ok, _ := s.Trusted(); ok {
				first = i + 1
				break
			}
		}
		firsts = append(firsts, first)
	}
	slices.Sort(firsts)
	return firsts[series/2]
}

// What was stated of the first values, of which little was known, does not keep a series from being trusted: one that rises at first and then moves a little is
// trusted soon after 60 values.
func TestTrustComesSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	level := 0.0
	median := medianTrust(t, 21, 200, func(i int) float64 {
		switch {
		case i == 0:
			level = 1.3
		case i < 15:
			level *= 1.3 // a guest that boots
		}
		return level * (1 + 0.02*r.NormFloat64())
	})
	if median > 75 {
		t.Errorf("half of the series are trusted after %d values", median)
	}
}

// Of use that drifts few values are few independent errors ten steps ahead: intervals are wide enough all the same.
func TestIntervalsFromFewValues(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	w := NewWorkspace()
	inside, all := 0, 0
	ahead := make([]Prediction, Horizon)
	for range 100 {
		s := New(Options{Workspace: w})
		var low, high [80]float64
		level := 0.0
		for i := range low {
			level = 0.8*level + r.NormFloat64()
			y := 50 + level
			if low[i] != 0 {
				all++
				if low[i] <= y && y <= high[i] {
					inside++
				}
			}
			if err := s.Observe(int64(i), y, false); err != nil {
				t.Fatal(err)
			}
			if i >= calibrateFrom && i+Horizon < len(low) && s.Predict(ahead) {
				q := ahead[Horizon-1].Quantiles
				low[i+Horizon], high[i+Horizon] = q[1], q[levels-2]
			}
		}
	}
	if share := float64(inside) / float64(all); share < 0.86 || share > 0.97 { // 83% without fewValues: what few values leave out shows later
		t.Errorf("95%% intervals of %d steps ahead, stated after %d to %d values, hold %.1f%%", Horizon, calibrateFrom, 80-Horizon, 100*share)
	}
}

// The widening is Student's: 2.228 instead of 1.960 with ten degrees of freedom, 2.776 with four. Of errors h steps ahead a value in h counts.
func TestFewValues(t *testing.T) {
	const z = 1.95996
	for freedom, want := range map[int]float64{4: 2.776, 10: 2.228, 30: 2.042} {
		if got := z + fewValues(z, 1, freedom+1); math.Abs(got-want) > 0.06 {
			t.Errorf("with %d degrees of freedom the 97.5%% quantile lies %.3f standard normal scores out, want %.3f", freedom, got, want)
		}
	}
	if a, b := fewValues(z, 10, 100), fewValues(z, 1, 10); a != b {
		t.Errorf("ten steps ahead after 100 values %v, one step after 10 %v", a, b)
	}
	if fewValues(0, 1, 10) != 0 || fewValues(-z, 3, 50) != -fewValues(z, 3, 50) {
		t.Error("the median moves, or the ends of an interval differ")
	}
	if got := fewValues(z, 1, 2000); got > 0.01 {
		t.Errorf("many values widen an interval by %v", got)
	}
	if got := fewValues(z, Horizon, 0); math.IsInf(got, 0) || got > maxShift {
		t.Errorf("no values widen an interval by %v", got)
	}
}
