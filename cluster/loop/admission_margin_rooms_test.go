package loop_test

import (
	"fmt"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// The capacity index heeds estimates no more than a full plan: it takes a VM where all VMs could have what they declared, and
// where the host reports that to be available.
func TestFastPathWithEstimates(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("h%02d", i))
	}
	c := newRightsized(t, state.RightsizingOn, names...) // 4 cores, 8 GiB
	c.run("a", state.NeedsEstimated, "core", 64, r(1, 4*gib), r(0.2, gib))
	c.minutes(14)
	if vm, g := c.vm("a-g0-0"); vm.Target == 0 || g.Estimated == 0 {
		t.Fatalf("%+v, %+v", vm, g)
	}
	open := func(string) bool { return false }
	for _, tc := range []struct {
		name         string
		wants        state.Resources
		availability state.Resources
		fast         bool
		doubted      bool // a plan in full admits it also where estimates count for nothing
	}{
		{"room for all", r(2, gib), r(4, 8*gib), true, true},
		{"room by the estimates", r(2, 5*gib), r(4, 8*gib), false, false},
		{"not by the host's word", r(2, gib), r(4, gib), false, true}, // nothing of what runs is in the word
		{"nor its word on CPU", r(2, gib), r(2, 8*gib), false, true},
	} {
		env := c.withMargin(times(1000), nil)
		var index loop.CapacityIndex
		env.Availability = map[string]loop.HostAvailability{}
		for _, h := range names {
			env.Availability[h] = loop.HostAvailability{At: c.now, Available: tc.availability}
		}
		x := vc("new", 1, group(1, tc.wants.CPU, tc.wants.Memory))
		if a, ok := index.TryFastPath(c.Snapshot(), x, env, open); ok != tc.fast {
			t.Errorf("%s: %v, %+v", tc.name, ok, a.Decision)
		}
		env.Availability = nil
		if a := loop.Create(c.Snapshot(), x, env); a.Decision.Admitted != tc.doubted {
			t.Errorf("%s: in full: %+v", tc.name, a.Decision)
		}
		if a, ok := index.TryFastPath(c.Snapshot(), x, env, open); ok && !tc.doubted {
			t.Errorf("%s: without words: %+v", tc.name, a.Decision)
		}
	}
}
