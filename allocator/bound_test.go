package allocator_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

// The bound is, within rounding, the greatest yield at which the hosts take, in sum and by
// counting, the VMs of at least any size.
func TestUpperBoundCounts(t *testing.T) {
	tight := 0
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 80), Groups: drawGroups(t, 80, 300)}
		var needs []float64
		for _, g := range p.Groups {
			for range g.Count {
				needs = append(needs, g.CPU)
			}
		}
		slices.Sort(needs)
		slices.Reverse(needs)
		takes := func(y float64) bool {
			for k, a := range needs {
				room := 0.0
				for _, h := range p.Hosts {
					room += math.Floor(h.CPU / (y * a))
				}
				if a > 0 && room < float64(k+1) {
					return false
				}
			}
			return true
		}
		sum, got := allocator.Bound(p), allocator.CountBound(p)
		if got < sum {
			tight++
		}
		if got > sum || got > 0 && !takes(got*(1-1e-9)) || got < sum && takes(got*(1+1e-9)) {
			t.Fatalf("bound %v, in sum %v: %+v", got, sum, p)
		}
	})
	t.Logf("%d bounds by counting", tight)
}

// No memory: the proof holds by the numbers it gives, and is there where counting shows it.
func TestProveInfeasibleCounts(t *testing.T) {
	proved := 0
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 80), Groups: drawGroups(t, 80, 300)}
		var sizes []float64
		want, have := 0.0, 0.0
		for _, g := range p.Groups {
			for range g.Count {
				sizes = append(sizes, g.Memory)
				want += g.Memory
			}
		}
		for _, h := range p.Hosts {
			have += h.Memory
		}
		slices.Sort(sizes)
		slices.Reverse(sizes)
		short := false
		for k, a := range sizes {
			room := 0.0
			for _, h := range p.Hosts {
				room += math.Floor(h.Memory * (1 + 1e-9) / a)
			}
			short = short || a > 0 && room < float64(k+1)
		}
		why := allocator.ProveInfeasible(p)
		inSum := strings.Contains(why, "in sum")
		if why != "" && !inSum && !short || why == "" && short || inSum && want < have {
			t.Fatalf("%q, by counting short: %v, %v wanted of %v: %+v", why, short, want, have, p)
		}
		if why != "" {
			proved++
		}
	})
	t.Logf("%d proved", proved)
}
