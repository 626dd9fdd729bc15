package state_test

import (
	"testing"

	"evenkeel/cluster/state"
)

// What a migration left behind is destroyed only where the VM cannot be resumed rightly any more.
func TestLeftoverStays(t *testing.T) {
	vm := func(host string, generation uint64, phase state.Phase, change ...func(*state.VM)) state.VM {
		out := state.VM{ID: "a", Host: host, Generation: generation, Phase: phase, Goal: state.GoalRun}
		for _, f := range change {
			f(&out)
		}
		return out
	}
	moving := func(to string, ready bool) func(*state.VM) {
		return func(v *state.VM) { v.MovingTo, v.Move, v.Ready = to, 7, ready }
	}
	for _, c := range []struct {
		name       string
		vm         state.VM
		unknown    bool
		deleted    bool
		generation uint64
		stays      bool
	}{
		{name: "it arrived elsewhere", vm: vm("h2", 1, state.Running), generation: 1},
		{name: "it stops elsewhere", vm: vm("h2", 1, state.Stopping), generation: 1},
		{name: "it ended elsewhere", vm: vm("h2", 1, state.Failed), generation: 1},
		{name: "it was lost elsewhere", vm: vm("h2", 1, state.Lost), generation: 1},
		{name: "it is to start here anew", vm: vm("h1", 2, state.Starting), generation: 1},
		{name: "a newer one runs elsewhere", vm: vm("h2", 2, state.Running), generation: 1},
		{name: "it was lost here", vm: vm("h1", 1, state.Lost), generation: 1},
		{name: "it moves on from elsewhere", vm: vm("h2", 1, state.Running, moving("h3", true)), generation: 1},
		{name: "it comes back, once there is room", vm: vm("h2", 1, state.Running, moving("h1", false)), generation: 1},
		{name: "its move from here is open", vm: vm("h1", 1, state.Running, moving("h2", true)), generation: 1},

		{name: "it was deleted", unknown: true, deleted: true, generation: 1},

		{name: "it may be on its way back", vm: vm("h2", 1, state.Running, moving("h1", true)), generation: 1, stays: true},
		{name: "it runs here by the state", vm: vm("h1", 1, state.Running), generation: 1, stays: true},
		{name: "this one is to start", vm: vm("h1", 1, state.Starting), generation: 1, stays: true},
		{name: "the state is older", vm: vm("h2", 1, state.Running), generation: 2, stays: true},
		{name: "the state does not know it", unknown: true, generation: 1, stays: true},
	} {
		if why := state.LeftoverStays(c.vm, !c.unknown, "h1", c.generation, c.deleted); (why != "") != c.stays {
			t.Errorf("%s: it stays: %q, want that: %v", c.name, why, c.stays)
		}
	}
}
