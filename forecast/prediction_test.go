package forecast

import (
	"math"
	"testing"
)

func TestLevelsAreSymmetric(t *testing.T) {
	for i, p := range Levels {
		if q := Levels[len(Levels)-1-i]; math.Abs(p+q-1) > 1e-12 {
			t.Errorf("level %v has no counterpart: %v", p, q)
		}
	}
	if Levels[Median] != 0.5 {
		t.Errorf("Levels[Median] = %v", Levels[Median])
	}
}

func TestNormal(t *testing.T) {
	p := Normal(10, 4)
	for i, want := range map[int]float64{1: 10 - 2*1.959964, Median: 10, 9: 10 + 2*1.959964, 10: 10 + 2*2.575829} {
		if math.Abs(p.Quantiles[i]-want) > 1e-5 {
			t.Errorf("quantile %v is %v, want %v", Levels[i], p.Quantiles[i], want)
		}
	}
	for _, v := range []float64{-1, math.NaN(), 0} {
		if p := Normal(3, v); p.Variance != 0 || p.Quantiles[0] != 3 || p.Quantiles[10] != 3 {
			t.Errorf("variance %v: %+v", v, p)
		}
	}
}
