package admission_test

import (
	"fmt"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// The capacity index heeds estimates no more than a full plan: it takes a VM where all VMs could have what they declared, and
// where the host reports that to be available.
func TestFastPathWithEstimates(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("h%02d", i))
	}
	c := scheduling.NewRightsized(t, state.RightsizingOn, names...) // 4 cores, 8 GiB
	c.AddVC("a", state.NeedsEstimated, "core", 64, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.2, scheduling.GiB))
	c.Minutes(14)
	if vm, g := c.VM("a-g0-0"); vm.Target == 0 || g.Estimated == 0 {
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
		{"room for all", scheduling.Resources(2, scheduling.GiB), scheduling.Resources(4, 8*scheduling.GiB), true, true},
		{"room by the estimates", scheduling.Resources(2, 5*scheduling.GiB), scheduling.Resources(4, 8*scheduling.GiB), false, false},
		{"not by the host's word", scheduling.Resources(2, scheduling.GiB), scheduling.Resources(4, scheduling.GiB), false, true}, // nothing of what runs is in the word
		{"nor its word on CPU", scheduling.Resources(2, scheduling.GiB), scheduling.Resources(2, 8*scheduling.GiB), false, true},
	} {
		env := withMargin(c, times(1000), nil)
		var index admission.CapacityIndex
		env.Availability = map[string]placement.HostAvailability{}
		for _, h := range names {
			env.Availability[h] = placement.HostAvailability{At: c.Now, Available: tc.availability}
		}
		x := scheduling.VC("new", 1, scheduling.Group(1, tc.wants.CPU, tc.wants.Memory))
		if a, ok := index.TryFastPath(c.Snapshot(), x, env, open); ok != tc.fast {
			t.Errorf("%s: %v, %+v", tc.name, ok, a.Decision)
		}
		env.Availability = nil
		if a := admission.Create(c.Snapshot(), x, env); a.Decision.Admitted != tc.doubted {
			t.Errorf("%s: in full: %+v", tc.name, a.Decision)
		}
		if a, ok := index.TryFastPath(c.Snapshot(), x, env, open); ok && !tc.doubted {
			t.Errorf("%s: without words: %+v", tc.name, a.Decision)
		}
	}
}
