package leader

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A VC of which the state refuses a plan keeps neither other lost VMs nor the queue waiting.
func TestNextBesideRefusedPlans(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	for _, name := range []string{"a", "b"} {
		x := scheduling.VC(name, 0.5, scheduling.Group(2, 1, scheduling.GiB))
		x.OnHostLoss = state.RestartOnLoss
		c.Create(x)
	}
	c.CommitPlan()
	c.Must(state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "burnt", Basis: c.Snapshot().Index()})
	q := scheduling.VC("q", 0.5, scheduling.Group(1, 1, scheduling.GiB))
	q.Goal, q.Admitted, q.QueuedAt = state.GoalRun, false, scheduling.Start
	c.Must(state.KindPlan, state.Plan{Basis: c.Snapshot().Index(), Verb: "queued", VC: &q})
	var refused []string
	for _, want := range []string{"a", "b", "q"} {
		plan := next(c.Snapshot(), c.Env(), new(admission.QueueCache), refused)
		if plan == nil || plan.VC == nil || plan.VC.Name != want {
			t.Fatalf("without %v: %+v, want one of %s", refused, plan, want)
		}
		refused = append(refused, plan.VC.ID)
	}
	if plan := next(c.Snapshot(), c.Env(), new(admission.QueueCache), refused); plan != nil && plan.VC != nil {
		t.Errorf("%+v", plan)
	}
}
