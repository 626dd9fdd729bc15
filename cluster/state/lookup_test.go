package state_test

import (
	"slices"
	"testing"

	"evenkeel/cluster/state"
)

// What is looked up by number is what a look at every row finds.
func TestLookups(t *testing.T) {
	k := small(t, 3)
	hosts := func(since uint64) (names []string) {
		k.Snapshot().EachHostSince(since, func(h *state.Host) bool { names = append(names, h.Name); return true })
		return names
	}
	moving := func() (ids []string) {
		k.Snapshot().EachVMMoving(func(vm *state.VM) bool { ids = append(ids, vm.ID); return true })
		return ids
	}
	check := func(what string, since uint64, changed []string, moves int, waits bool) {
		t.Helper()
		s := k.Snapshot()
		var last uint64
		for _, h := range s.Hosts() {
			last = max(last, h.Version)
		}
		for _, vc := range s.VCs() {
			last = max(last, vc.ModifyIndex)
		}
		if s.PlacementIndex() != last {
			t.Errorf("%s: placement index %d, not %d", what, s.PlacementIndex(), last)
		}
		if got := hosts(since); !slices.Equal(got, changed) {
			t.Errorf("%s: hosts changed since %d: %v, not %v", what, since, got, changed)
		}
		if got := moving(); len(got) != moves {
			t.Errorf("%s: %v on their way, not %d", what, got, moves)
		}
		if s.AnyQueued() != waits {
			t.Errorf("%s: a VC waits: %v", what, s.AnyQueued())
		}
	}
	check("three hosts", 0, []string{"h1", "h2", "h3"}, 0, false)
	check("nothing since", k.Snapshot().Index(), nil, 0, false)
	at := k.Snapshot().Index()
	restartable(t, k, "r", "h1")
	check("a VM came", at, []string{"h1"}, 0, false)
	at = k.Snapshot().Index()
	k.must(t, state.KindMove, k.opens("vm-r-0", "h2"))
	check("it is on its way", at, []string{"h1", "h2"}, 1, false)
	k.must(t, state.KindMove, state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Arrived: true, Move: k.migration("vm-r-0").Open})
	check("it arrived", k.Snapshot().Index(), nil, 0, false)
	vc := state.VC{ID: "w", Name: "w", Goal: state.GoalRun}
	k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "queued", VC: &vc})
	check("one waits", k.Snapshot().Index(), nil, 0, true)
	row, _ := k.Snapshot().VC("w")
	row.Goal = state.GoalStop
	k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "stopped", VC: &row, VCVersion: row.ModifyIndex})
	check("it is stopped", k.Snapshot().Index(), nil, 0, false)
}
