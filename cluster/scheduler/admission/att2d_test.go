package admission_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// a VC that waits for room is refused as one that never fits, because of memory kept for a stopped VM, or of a VM that restarts.
func TestAtt2NeverFits(t *testing.T) {
	for _, how := range []string{"running", "stopped", "restarting"} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 2, 3*scheduling.GiB)))
		c.CommitPlan()
		for _, vm := range c.Snapshot().VMsOf(c.Named("a").ID) {
			vm, _ = c.Snapshot().VM(vm.ID)
			switch how {
			case "stopped":
				c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
				vm, _ = c.Snapshot().VM(vm.ID)
				c.Follow(vm)
			case "restarting":
				c.Must(state.KindPlan, admission.RestartVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
			}
		}
		a := admission.Create(c.Snapshot(), scheduling.VC("b", 0.2, scheduling.Group(2, 2, 3*scheduling.GiB)), c.Env())
		t.Logf("%s: queued %v, plan %v, %s", how, a.Queued, a.Plan != nil, a.Decision.Summary)
		if a.Plan == nil {
			t.Errorf("%s: refused, though it would fit once a is gone", how)
		}
	}
}
