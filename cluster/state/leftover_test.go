package state_test

import (
	"errors"
	"testing"

	"evenkeel/cluster/state"
)

// moved is a VM and its running migration.
type moved struct {
	vm state.VM
	m  state.Migration
}

// What a migration left behind is destroyed only where the VM cannot be resumed rightly any more.
func TestLeftoverStays(t *testing.T) {
	vm := func(host string, generation uint64, phase state.Phase, change ...func(*moved)) moved {
		out := moved{vm: state.VM{ID: "a", Host: host, Generation: generation, Phase: phase, Goal: state.GoalRun}}
		for _, f := range change {
			f(&out)
		}
		return out
	}
	moving := func(to string, ready bool) func(*moved) {
		return func(v *moved) { v.vm.MovingTo, v.m.Open, v.m.Ready = to, 7, ready }
	}
	gone := func(v *moved) { v.m.Paused, v.m.SourceLost = true, 9 }
	left := func(v *moved) { v.m.Left = 9 }
	for _, c := range []struct {
		name       string
		vm         moved
		unknown    bool
		deleted    bool
		generation uint64
		stays      bool
	}{
		{name: "it arrived elsewhere", vm: vm("h2", 1, state.Running), generation: 1},
		{name: "it stops elsewhere", vm: vm("h2", 1, state.Stopping), generation: 1},
		{name: "it ended elsewhere", vm: vm("h2", 1, state.Failed), generation: 1},
		{name: "it was lost elsewhere", vm: vm("h2", 1, state.Lost), generation: 1},
		{name: "it is to start here again", vm: vm("h1", 2, state.Starting), generation: 1},
		{name: "a newer one runs elsewhere", vm: vm("h2", 2, state.Running), generation: 1},
		{name: "it was lost here", vm: vm("h1", 1, state.Lost), generation: 1},
		{name: "it moves on from elsewhere", vm: vm("h2", 1, state.Running, moving("h3", true)), generation: 1},
		{name: "it comes back, once there is room", vm: vm("h2", 1, state.Running, moving("h1", false)), generation: 1},
		{name: "its move from here is open", vm: vm("h1", 1, state.Running, moving("h2", true)), generation: 1},

		{name: "it was to come, and its source may have run it since", vm: vm("h2", 1, state.Running, moving("h1", true), gone), generation: 1},
		{name: "it was proved gone from here", vm: vm("h1", 1, state.Running, moving("h2", true), gone), generation: 1},

		{name: "it was deleted", unknown: true, deleted: true, generation: 1},

		{name: "it may be on its way back", vm: vm("h2", 1, state.Running, moving("h1", true)), generation: 1, stays: true},
		{name: "its move from here has no room yet", vm: vm("h1", 1, state.Running, moving("h2", false)), generation: 1, stays: true},
		{name: "it was handed over to here", vm: vm("h2", 1, state.Running, moving("h1", true), gone, left), generation: 1, stays: true},
		{name: "it goes on here", vm: vm("h1", 1, state.Running, moving("h2", true), func(v *moved) { v.m.Paused = true }), generation: 1, stays: true},
		{name: "it runs here by the state", vm: vm("h1", 1, state.Running), generation: 1, stays: true},
		{name: "this one is to start", vm: vm("h1", 1, state.Starting), generation: 1, stays: true},
		{name: "the state is older", vm: vm("h2", 1, state.Running), generation: 2, stays: true},
		{name: "the state does not know it", unknown: true, generation: 1, stays: true},
	} {
		if why := state.LeftoverStays(c.vm.vm, c.vm.m, !c.unknown, "h1", c.generation, c.deleted); (why != "") != c.stays {
			t.Errorf("%s: it stays: %q, want that: %v", c.name, why, c.stays)
		}
	}
}

// A VM that is paused by a move is resumed at its source until the source has reported that it left, and at its target from
// then on.
func TestResumeRefused(t *testing.T) {
	vm := func(change ...func(*moved)) moved {
		out := moved{state.VM{ID: "a", Host: "h1", Generation: 2, Phase: state.Running, MovingTo: "h2"}, state.Migration{Open: 7, Ready: true, Paused: true}}
		for _, f := range change {
			f(&out)
		}
		return out
	}
	gone := func(v *moved) { v.m.SourceLost = 9 }
	left := func(v *moved) { v.m.SourceLost, v.m.Left = 9, 9 }
	closed := func(v *moved) { v.vm.MovingTo, v.m = "", state.Migration{} }
	for _, c := range []struct {
		name             string
		vm               moved
		unknown          bool
		host             string
		generation, move uint64
		may              bool
	}{
		{name: "the source, before it said anything", vm: vm(), host: "h1", generation: 2, move: 7, may: true},
		{name: "the target, after the source said that it left", vm: vm(left), host: "h2", generation: 2, move: 7, may: true},
		{name: "its host, where the move is closed", vm: vm(closed), host: "h1", generation: 2, may: true},
		{name: "its host, which stops it", vm: vm(closed, func(v *moved) { v.vm.Phase = state.Stopping }), host: "h1", generation: 2, may: true},

		{name: "the target, before that", vm: vm(), host: "h2", generation: 2, move: 7},
		{name: "the target, whose source was lost", vm: vm(gone), host: "h2", generation: 2, move: 7},
		{name: "the source, after that", vm: vm(left), host: "h1", generation: 2, move: 7},
		{name: "the source, after it was proved gone", vm: vm(gone), host: "h1", generation: 2, move: 7},
		{name: "another host", vm: vm(left), host: "h3", generation: 2, move: 7},
		{name: "another move", vm: vm(left), host: "h2", generation: 2, move: 6},
		{name: "no move", vm: vm(left), host: "h2", generation: 2},
		{name: "another generation", vm: vm(left), host: "h2", generation: 1, move: 7},
		{name: "a move whose guest does not arrive paused", vm: vm(func(v *moved) { v.m.Paused = false }), host: "h1", generation: 2, move: 7},
		{name: "the target of a move that is closed", vm: vm(closed), host: "h2", generation: 2},
		{name: "a VM that is to start", vm: vm(closed, func(v *moved) { v.vm.Phase = state.Starting }), host: "h1", generation: 2},
		{name: "a VM that was lost", vm: vm(closed, func(v *moved) { v.vm.Phase = state.Lost }), host: "h1", generation: 2},
		{name: "an unknown VM", unknown: true, host: "h1", generation: 2},
	} {
		if why := state.ResumeRefused(c.vm.vm, c.vm.m, !c.unknown, c.host, c.generation, c.move); (why == "") != c.may {
			t.Errorf("%s: refused: %q, want it permitted: %v", c.name, why, c.may)
		}
	}
}

// The target's report makes a move one whose guest arrives paused, and the source's report that the VM left counts only for its
// own move.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		name          string
		resumes, post bool
		copies        bool
		paused        bool
	}{{"the target resumes", true, false, false, true}, {"the target does not", false, false, false, false}, {"post-copy", true, true, false, false}, {"post-copy, which is not where a disk goes along", true, true, true, true}} {
		k := small(t, 3)
		restartable(t, k, "r", "h1")
		k.must(t, state.KindMove, state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Open: true, ID: "mig-1", Options: state.MoveOptions{PostCopy: c.post, CopyStorage: c.copies}})
		move := k.migration("vm-r-0").Open
		report := func(host string, move uint64, st state.VMStatus) state.Migration {
			t.Helper()
			st.VM, st.Generation, st.Move = "vm-r-0", 1, move
			k.must(t, state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}})
			phase(t, k, "vm-r-0", state.Running)
			return k.migration("vm-r-0")
		}
		arrived := state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Arrived: true, Move: move}
		if m := report("h2", move, state.VMStatus{Room: true, Resumes: c.resumes}); m.Paused != c.paused || !m.Ready {
			t.Fatalf("%s: paused: %v", c.name, m.Paused)
		}
		if c.paused {
			if err := k.apply(t, state.KindMove, arrived); !errors.Is(err, state.ErrConflict) {
				t.Errorf("%s: it arrived, and its source has not said that it left: %v", c.name, err)
			}
		}
		left := state.VMStatus{Phase: state.Lost, Left: true}
		if m := report("h1", move-1, left); m.Left != 0 || m.SourceLost != 0 {
			t.Errorf("%s: left by the word of another move", c.name)
		}
		if m := report("h1", move, left); m.Left != 0 != c.paused || m.SourceLost == 0 {
			t.Errorf("%s: %+v", c.name, m)
		}
		k.must(t, state.KindMove, arrived)
		if vm, m := phase(t, k, "vm-r-0", state.Running), k.migration("vm-r-0"); vm.MovingTo != "" || m != (state.Migration{}) {
			t.Errorf("%s: closed, and %+v, %+v", c.name, vm, m)
		}
	}
	k := small(t, 3)
	restartable(t, k, "r", "h1")
	k.must(t, state.KindMove, k.opens("vm-r-0", "h2"))
	move := k.migration("vm-r-0").Open
	k.must(t, state.KindVMReport, state.VMReport{Host: "h2", VMs: []state.VMStatus{{VM: "vm-r-0", Generation: 1, Move: move, Room: true, Resumes: true}}})
	k.must(t, state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: "vm-r-0", Generation: 1, Move: move, Phase: state.Lost}}})
	if m := k.migration("vm-r-0"); m.Left != 0 || m.SourceLost == 0 {
		t.Errorf("lost by its source, which does not say that it left: %+v", m)
	}
}
