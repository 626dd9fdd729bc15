package forecast

import (
	"math"
	"testing"
)

func TestCensoredUse(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		used, cap, throttled float64
		want                 bool
	}{
		{0.5, 1, nan, false}, {0.94, 1, nan, false}, {0.95, 1, nan, true}, {1.02, 1, nan, true},
		{0.5, 1, 0.2, true}, {0.5, 1, 0.009, false}, {0.5, 1, 0, false}, {0.96, 1, 0, true},
		{3, 0, 0.5, false}, {3, nan, 0.5, false}, {3, inf, 0.5, false}, {nan, 1, nan, false}, {nan, 1, 0.3, true},
	} {
		if got := (CappedUse{c.used, c.cap, c.throttled}).Censored(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A VM whose load triples while its cap follows what is estimated is found within 3 samples.
