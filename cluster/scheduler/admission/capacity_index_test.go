package admission_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A full plan could do no better than one made by the capacity index: the latter applies, no other VC's share changes, and the
// minimum yield is as high as in a full plan, once what is free is shared again. Where Steady says that there is nothing to
// decide, no stage has a plan.
func TestRooms(t *testing.T) {
	const hosts = 64
	planned, still := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range hosts {
			names = append(names, fmt.Sprintf("h%02d", i))
		}
		c := scheduling.NewCluster(t, names...)
		var index admission.CapacityIndex
		for n := range rapid.IntRange(1, 12).Draw(t, "steps") {
			s := c.Snapshot()
			switch rapid.SampledFrom([]string{"create", "create", "large", "leave", "settle", "cordon", "shrink", "lose"}).Draw(t, "step") {
			case "create":
				cpu := float64(rapid.IntRange(1, 40).Draw(t, "tenths")) / 10
				x := scheduling.VC(fmt.Sprintf("x%d", n), 0.3, scheduling.Group(rapid.IntRange(1, 90).Draw(t, "count"), cpu, int64(rapid.IntRange(1, 8).Draw(t, "memory"))*scheduling.GiB/2))
				x.Admitted = false
				closed := rapid.SampledFrom(names).Draw(t, "busy")
				a, ok := index.TryFastPath(s, x, c.Env(), func(h string) bool { return h == closed })
				full := admission.Create(s, x, c.Env())
				if !ok {
					if full.Plan != nil {
						c.Enact("create", full.Plan)
					}
					break
				}
				planned++
				for _, vm := range a.Plan.VMs {
					if vm.Host == closed {
						t.Fatalf("VM %+v on a host that is busy", vm)
					}
				}
				c.Enact("create from rooms", a.Plan)
				if made, _ := c.Snapshot().VC(x.ID); c.Yield(made.Name) != 1 {
					t.Fatalf("it has not all that it needs: %+v", made)
				}
				for _, old := range s.VCs() {
					now, _ := c.Snapshot().VC(old.ID)
					if state.YieldOf(now, c.Snapshot().VMsOf(old.ID)) != state.YieldOf(old, s.VMsOf(old.ID)) {
						t.Fatalf("another one is served otherwise: %+v, then %+v", old, now)
					}
				}
				if p := placement.Reallocate(c.Snapshot()); p != nil { // a plan in full has this in it
					c.Enact("share again", p)
				}
				lowest := 1.0
				for _, vm := range c.Snapshot().VMs() {
					if of, _ := c.Snapshot().VC(vm.VC); vm.ConsumesResources() && vm.Goal == state.GoalRun {
						lowest = min(lowest, c.Yield(of.Name))
					}
				}
				if full.Decision.Admitted && full.Decision.MinYield > lowest+1e-6 {
					t.Fatalf("a plan in full gives %v, the rooms %v, and %v with what is shared again", full.Decision, a.Decision, lowest)
				}
			case "large":
				if a := admission.Create(s, scheduling.VC(fmt.Sprintf("l%d", n), 0.3, scheduling.Group(hosts*2, 1.5, scheduling.GiB)), c.Env()); a.Plan != nil {
					c.Enact("create", a.Plan)
				}
			case "leave":
				if vcs := s.VCs(); len(vcs) > 0 {
					c.Enact("delete", admission.Delete(s, rapid.SampledFrom(vcs).Draw(t, "VC"), c.Env()).Plan)
				}
			case "settle":
				c.CommitPlan()
			case "cordon":
				c.Must(state.KindHostCordon, state.HostCordon{Host: rapid.SampledFrom(names).Draw(t, "host"), Cordoned: rapid.Bool().Draw(t, "cordon")})
			case "shrink":
				c.Host(rapid.SampledFrom(names).Draw(t, "host"), float64(rapid.IntRange(1, 4).Draw(t, "cores")), 8*scheduling.GiB, state.Resources{})
			case "lose":
				c.Must(state.KindHostLost, state.HostLost{Host: rapid.SampledFrom(names).Draw(t, "host"), Proof: state.ProofOperator, Text: "it is dead"})
			}
			if s := c.Snapshot(); index.Steady(s) {
				still++
				if p := admission.Restart(s, c.Env()); p != nil {
					t.Fatalf("still, but %+v", p)
				}
				if f := admission.Fitting(s, c.Env()); len(f) > 0 {
					t.Fatalf("still, but %v", f)
				}
				if p := placement.Reallocate(s); p != nil {
					t.Fatalf("still, but %+v", p)
				}
			}
		}
	})
	if planned == 0 || still == 0 {
		t.Errorf("%d plans from rooms, still %d times: the test shows nothing", planned, still)
	}
}

// Shares that the allocator makes are off by rounding: that must not have everything planned at each look.
func TestStillWithRoundedShares(t *testing.T) {
	for _, tc := range []struct {
		share float64
		still bool
	}{{1.3125, true}, {math.Nextafter(1.3125, 0), true}, {1.3125 * (1 - 2e-6), false}, {math.Nextafter(1.3125, 2), false}} {
		c := scheduling.NewCluster(t, "h1")
		a := admission.Create(c.Snapshot(), scheduling.VC("x", 0.5, scheduling.Group(2, 1.3125, scheduling.GiB)), c.Env())
		a.Plan.Allocations[0].CPU = tc.share
		c.Enact("create", a.Plan)
		var index admission.CapacityIndex
		if index.Steady(c.Snapshot()) != tc.still {
			t.Errorf("share %v of 1.3125: still is not %v", tc.share, tc.still)
		}
		if p := placement.Reallocate(c.Snapshot()); tc.still && p != nil {
			t.Errorf("share %v of 1.3125: still, but %+v", tc.share, p)
		}
	}
}
