package agenda_test

import (
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// The agenda keeps hosts by the estimates. A run starts there in its slot whatever the admission margin is and whatever its host says to be
// available, and by the margin elsewhere if another host has room; any other VC of its size waits.
func TestRunsNeedNoMarginOnTheirWitness(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	k := contract(1, 3400*scheduling.MiB)
	k.Recurrence = "DTSTART;TZID=UTC:20260101T033000\nRRULE:FREQ=DAILY"
	signed(t, c.Cluster, "nightly", k)
	estimated := scheduling.VC("estimated", 1, scheduling.Group(2, 1, 3*scheduling.GiB))
	estimated.Needs = state.NeedsEstimated
	c.Cluster.Create(estimated)
	c.CommitPlan()
	for _, vm := range c.Snapshot().VMsOf(estimated.ID) {
		c.Use[vm.Name] = scheduling.Resources(0.3, scheduling.GiB)
	}
	c.Minutes(14)
	c.Ahead = c.Now.Sub(scheduling.Start)
	if o := plan(t, c.Cluster)["nightly"]; !o.Reserves() {
		t.Fatalf("nothing is kept for it: %+v", o)
	}
	env := c.Env()
	env.Margin = placement.Margin{Conservative: 2, Balanced: 2, Aggressive: 2, Quality: 0.97}
	env.Availability = map[string]placement.HostAvailability{"h1": {At: env.Now.Add(-time.Second), Available: state.Resources{CPU: 0.1, Memory: scheduling.GiB}}}
	memory := int64(3400 * scheduling.MiB)
	start := func(name string) admission.Answer {
		vc := scheduling.VC(name, 0.5, scheduling.Group(1, 1, memory))
		vc.OnFull, vc.Periodic.Name = state.Queue, name
		return admission.Create(c.Snapshot(), vc, env)
	}
	if a := start("other"); a.Decision.Admitted {
		t.Errorf("a VC without a slot goes without the margin: %+v", a.Decision)
	}
	if a := start("nightly"); a.Plan == nil || a.Queued || a.Plan.Occurrence == "" || a.Plan.VMs[0].Host != "h1" {
		t.Errorf("its run waits in its slot: %+v", a.Decision)
	}
	memory += scheduling.MiB
	if a := start("nightly"); a.Decision.Admitted {
		t.Errorf("a run that asks for more than was signed off goes without the margin: %+v", a.Decision)
	}
	c.Host("h2", 4, 8*scheduling.GiB, state.Resources{})
	if a := start("nightly"); a.Plan == nil || a.Queued || a.Plan.VMs[0].Host != "h2" {
		t.Errorf("another host has room with the margin: %+v", a.Decision)
	}
}
