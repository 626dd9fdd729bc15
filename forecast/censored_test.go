package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// capped is what a VM that would use load does under a cap, as its host measures it.
func capped(load, cap float64, throttledIsKnown bool) CappedUse {
	u := CappedUse{Used: min(load, cap), Cap: cap, Throttled: math.NaN()}
	if throttledIsKnown {
		u.Throttled = max(0, 1-cap/load)
	}
	return u
}

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
func TestCensoredFindsTripledLoad(t *testing.T) {
	for _, known := range []bool{true, false} {
		for _, load := range []float64{0.05, 0.2, 1, 1.3, 4} {
			c := NewCensored(16)
			cap := load
			for range 100 {
				cap, _ = c.Observe(capped(load, cap, known))
			}
			if u := capped(load, cap, known); u.Censored() || cap > 1.15*load {
				t.Fatalf("a load of %v rests at a cap of %v", load, cap)
			}
			for sample := 1; ; sample++ {
				u := capped(3*load, cap, known)
				need, censored := c.Observe(u)
				if !censored && u.Used == 3*load {
					t.Logf("load %v times 3: found with sample %d, need %.3f", load, sample, need)
					break
				}
				if sample == 3 {
					t.Fatalf("load %v times 3: after 3 samples the need is %v, the cap was %v", load, need, cap)
				}
				cap = need
			}
		}
	}
}

// Whatever the load, once it stays the same: the need is never above the vCPUs, is found within as many samples as doubling
// takes, then never censored again, and comes down to just above the load without rising again.
func TestCensoredConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vcpus := float64(rapid.IntRange(1, 64).Draw(t, "vCPUs"))
		c := NewCensored(vcpus)
		known := rapid.Bool().Draw(t, "throttling is known")
		cap := rapid.Float64Range(0.01, vcpus).Draw(t, "cap")
		for range rapid.IntRange(0, 20).Draw(t, "samples before") {
			cap, _ = c.Observe(capped(rapid.Float64Range(0.001, vcpus).Draw(t, "load before"), cap, known))
		}
		load := rapid.Float64Range(0.001, vcpus).Draw(t, "load")
		found, before := false, math.Inf(1)
		for sample := range 150 {
			need, censored := c.Observe(capped(load, cap, known))
			if !(need > 0 && need <= vcpus) {
				t.Fatalf("sample %d: the need is %v", sample, need)
			}
			switch {
			case censored && found:
				t.Fatalf("sample %d: found, and then taken for hidden again: cap %v, need %v", sample, cap, need)
			case censored && sample > 12:
				t.Fatalf("sample %d: still not found: cap %v, need %v", sample, cap, need)
			case !censored && found && need > before*(1+1e-12):
				t.Fatalf("sample %d: the need rises from %v to %v", sample, before, need)
			case !censored:
				found, before = true, need
			}
			cap = need
		}
		if want := min(load/0.9, vcpus); math.Abs(before-want) > 1e-3*want+1e-6*vcpus {
			t.Fatalf("it rests at %v, want %v", before, want)
		}
	})
}

// A cap that does not follow shows nothing new: the need stays, however long the cap binds.
func TestCensoredOnFullHost(t *testing.T) {
	c := NewCensored(32)
	for range 50 {
		if need, censored := c.Observe(capped(9, 2, true)); need != 4 || !censored {
			t.Fatalf("need %v, censored %v", need, censored)
		}
	}
	// What was seen before the cap came down is not forgotten under it.
	c = NewCensored(32)
	c.Observe(CappedUse{Used: 9, Throttled: math.NaN()})
	for range 50 {
		if need, _ := c.Observe(capped(9, 2, true)); need != 10 {
			t.Fatalf("need %v", need)
		}
	}
	// At all its vCPUs a VM hides nothing.
	c = NewCensored(2)
	if need, censored := c.Observe(capped(2, 2, true)); need != 2 || censored {
		t.Errorf("need %v, censored %v", need, censored)
	}
	// What was not measured changes nothing.
	if need, _ := c.Observe(CappedUse{Used: math.NaN(), Cap: 1, Throttled: math.NaN()}); need != 2 {
		t.Errorf("need %v", need)
	}
	if need, _ := NewCensored(2).Observe(CappedUse{Used: math.NaN()}); !math.IsNaN(need) {
		t.Errorf("need %v of a VM that was never measured", need)
	}
}
