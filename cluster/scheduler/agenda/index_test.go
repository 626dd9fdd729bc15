package agenda_test

import (
	"fmt"
	"slices"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// With many hosts a request is answered from the index beside slots, too, and takes nothing that they have; a run that arrives in its slot
// is not.
func TestFastPathLeavesWhatIsReserved(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("h%d", i))
	}
	c := scheduling.NewCluster(t, names...)
	k := contract(60, 4*scheduling.GiB)
	k.Groups[0].Spread = true
	signed(t, c, "nightly", k)
	plan(t, c)
	witness := c.Snapshot().Agenda()[0].Hosts
	if len(witness) != 60 {
		t.Fatalf("%q", witness)
	}
	var index admission.CapacityIndex
	free := func(string) bool { return false }
	for n := range 6 { // each takes more than a host of the witness has left
		vc := scheduling.VC(fmt.Sprint("large", n), 0.5, scheduling.Group(1, 0.5, 5*scheduling.GiB))
		a, ok := index.TryFastPath(c.Snapshot(), vc, c.Env(), free)
		if ok != (n < 4) {
			t.Fatalf("%s: planned from the index: %v", vc.Name, ok)
		}
		if ok {
			if slices.Contains(witness, a.Plan.VMs[0].Host) {
				t.Errorf("%s is on %s, which is reserved", vc.Name, a.Plan.VMs[0].Host)
			}
			c.Must(state.KindPlan, a.Plan)
		}
	}
	job, _ := c.Snapshot().PeriodicJob("nightly")
	c.Must(state.KindPeriodic, state.PeriodicPut{Job: "nightly", Version: job.ModifyIndex, SignOff: state.SignOff{State: state.Rejected}, Verb: "reject"})
	if _, ok := index.TryFastPath(c.Snapshot(), scheduling.VC("late", 0.5, scheduling.Group(1, 0.5, 5*scheduling.GiB)), c.Env(), free); !ok {
		t.Error("nothing is reserved any more, and the index has no room")
	}
}
