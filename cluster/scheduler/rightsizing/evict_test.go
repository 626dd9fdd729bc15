package rightsizing_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// filled is a host of 8 GiB on which three VMs run: one grows until the elastic one has no room beside the third, whose needs are declared.
func filled(t *testing.T, hosts ...string) (*scheduling.Rightsized, state.VM) {
	c := crowded(t, hosts...)
	c.Use["fixed-g0-0"] = scheduling.Resources(0.1, scheduling.GiB)
	c.Use["young-g0-0"] = scheduling.Resources(0.1, scheduling.GiB)
	c.Use["old-g0-0"] = scheduling.Resources(0.1, scheduling.GiB)
	return c, c.VMOf("fixed")
}

// press has the VMs use more than the host has beside what is charged to the third.
func press(c *scheduling.Rightsized) {
	c.Use["old-g0-0"], c.Use["young-g0-0"] = scheduling.Resources(0.1, 3900*scheduling.MiB), scheduling.Resources(0.1, 2*scheduling.GiB)
}

// While a VM stops whose memory is enough no other is evicted; once it takes too long one is.
func TestWaitsForWhatStops(t *testing.T) {
	c, third := filled(t, "h1")
	s := c.Snapshot()
	vc, _ := s.VC(third.VC)
	c.Enact("stop", admission.Stop(s, vc, c.Env()).Plan)
	c.Hangs = map[string]bool{third.Name: true}
	press(c)
	for range 2 { // without the VM that stops the other is evicted in the second
		c.Minute()
		if n := len(c.Last.Preempt); n > 0 {
			t.Errorf("evicted beside a VM that stops: %+v", c.Last.Preempt)
		}
	}
	for range 4 {
		c.Minute()
	}
	if vm, _ := c.VM("young-g0-0"); vm.Goal != state.GoalStop {
		t.Errorf("not evicted, though the VM that is to stop did not for minutes: %+v", vm)
	}
}

// No VM is evicted for memory that is kept for one that was stopped alone; one is when that VM starts.
func TestKeptMemoryEvictsNobody(t *testing.T) {
	c, third := filled(t, "h1")
	s := c.Snapshot()
	vc, _ := s.VC(third.VC)
	c.Enact("stop alone", admission.StopVM(s, vc, third, "ann").Plan)
	c.Must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: third.ID, Generation: third.Generation, Phase: state.Stopped}}})
	if kept := c.Snapshot().KeptMemory("h1"); kept < 2*scheduling.GiB {
		t.Fatalf("%d bytes are kept", kept)
	}
	press(c)
	for range 8 {
		c.Minute()
		if n := len(c.Last.Preempt); n > 0 {
			t.Fatalf("evicted for kept memory: %+v", c.Last.Preempt)
		}
	}
}

// A move that is being prepared takes nothing of its target yet: no VM is evicted there for what that VM could take back.
func TestPreparedMoveEvictsNobody(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1", "h2")
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h2", Cordoned: true, Reason: "later"})
	c.AddVC("here", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, 1*scheduling.GiB))
	c.AddVC("too", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, 1*scheduling.GiB))
	c.Minutes(14)
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h2"})
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true, Reason: "later"})
	c.AddVC("comes", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 6*scheduling.GiB), scheduling.Resources(0.1, 1*scheduling.GiB))
	c.Minutes(30)
	vm := c.VMOf("comes")
	c.Must(state.KindMovePlan, state.MovePlanPut{Plan: state.MovePlan{ID: "m", Kind: state.MovesMemory, State: state.MovesRunning, Budget: -1,
		Steps: []state.MoveStep{{VM: vm.ID, VMName: vm.Name, From: "h2", To: "h1", State: state.StepPreparing, Allotment: -1}}}})
	for _, name := range []string{"here", "too"} {
		c.Use[name+"-g0-0"] = scheduling.Resources(0.1, 1500*scheduling.MiB)
	}
	for range 14 {
		c.Minute()
		if n := len(c.Last.Preempt); n > 0 {
			t.Fatalf("evicted for a move that is being prepared: %+v", c.Last.Preempt)
		}
	}
}
