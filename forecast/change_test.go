package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// What few values say of a change, against intervals that reach from 10 to 20, and from 9 to 21 (99%).
func TestChangeTest(t *testing.T) {
	stated := &[levels]float32{9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21}
	inside := func(n int) []float64 { return slices.Repeat([]float64{15}, n) }
	for name, c := range map[string]struct {
		values []float64
		want   bool
	}{
		"nothing":                         {nil, false},
		"all inside":                      {inside(50), false},
		"on the ends":                     {[]float64{10, 20, 10, 20, 10}, false},
		"one outside":                     {[]float64{20.5}, false},
		"two in a row":                    {[]float64{20.5, 9.5}, true},
		"two with one between":            {[]float64{20.5, 15, 20.5}, false},
		"three of five":                   {[]float64{20.5, 15, 20.5, 15, 20.5}, true},
		"one in twenty":                   {append(append(inside(19), 20.5), append(inside(19), 20.5)...), false},
		"one outside the 99% interval":    {[]float64{22}, false},
		"one far outside":                 {[]float64{28}, true},
		"one far below":                   {[]float64{2}, true},
		"one far outside, then one held":  {[]float64{28, 15}, false},
		"twenty far outside, then six in": {append(slices.Repeat([]float64{28}, 20), inside(6)...), true},
		"twenty far outside, then seven":  {append(slices.Repeat([]float64{28}, 20), inside(7)...), false},
	} {
		var x changeTest
		for _, y := range c.values {
			x.add(stated, y)
		}
		if got := x.changed(); got != c.want {
			t.Errorf("%s: changed is %v, the sum %v", name, got, x)
		}
	}
}

// A series that jumps to another level is not trusted right then, and is again once its forecasts have held for a while. One that does not change is
// trusted all the time but for a few steps.
func TestChangeWithdrawsTrust(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	w := NewWorkspace()
	still, back := 0, 0
	const series, before, after = 20, 150, 40
	for range series {
		s := New(Options{Positive: true, Workspace: w})
		for i := range before + after {
			level := 10.0
			if i >= before {
				level = 40
			}
			if err := s.Observe(int64(i), level+r.NormFloat64(), false); err != nil {
				t.Fatal(err)
			}
			ok, why := s.Trusted()
			switch {
			case i >= before-50 && i < before && ok:
				still++
			case i == before && (ok || !strings.Contains(why, "changed")):
				t.Errorf("trusted in the step of a jump by thirty deviations: %v %q", ok, why)
			case i >= before+after-10 && !strings.Contains(why, "changed"):
				back++
			}
		}
	}
	if share := float64(still) / (50 * series); share < 0.95 {
		t.Errorf("without a change trusted for %.0f%% of the time", 100*share)
	}
	if share := float64(back) / (10 * series); share < 0.95 {
		t.Errorf("thirty steps after a change it counts as one for %.0f%% of the time", 100*(1-share))
	}
}

// What comes soon after a gap is held against what followed from values that were filled in: it says nothing of a change.
func TestGapIsNoChange(t *testing.T) {
	w := NewWorkspace()
	s := New(Options{Positive: true, Workspace: w})
	wave := func(i int) float64 { return 0.5 + 0.3*math.Sin(float64(i)*math.Pi/10) }
	const n = 290
	for i := range n {
		if err := s.Observe(int64(i), wave(i), false); err != nil {
			t.Fatal(err)
		}
	}
	if ok, why := s.Trusted(); !ok {
		t.Fatal(why)
	}
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for gap := range 12 {
		again, err := Restore(b, w)
		if err != nil {
			t.Fatal(err)
		}
		for at := n + gap; at < n+gap+5; at++ {
			if err := again.Observe(int64(at), wave(at), false); err != nil {
				t.Fatal(err)
			}
			if _, why := again.Trusted(); strings.Contains(why, "changed") {
				t.Errorf("%d steps after a gap of %d: %s", at-n-gap, gap, why)
			}
		}
	}
}
