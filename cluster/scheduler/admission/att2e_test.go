package admission_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// a group whose VMs are all stopped alone and whose need was raised lowers the promise to the other groups of its VC.
func TestAtt2Promise(t *testing.T) {
	for _, raise := range []bool{false, true} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.5, scheduling.Group(1, 1, scheduling.GiB/2), scheduling.Group(1, 2, scheduling.GiB/2)))
		c.CommitPlan()
		vm := c.Snapshot().VMsOf(c.Named("a").ID)[0]
		t.Logf("%s %s", vm.Name, vm.Group)
		c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
		vm, _ = c.Snapshot().VM(vm.ID)
		c.Follow(vm)
		if raise {
			next := c.Named("a")
			next.Groups = append([]state.Group{}, next.Groups...)
			next.Groups[0].CPU, next.Groups[0].VCPUs = 4, 4
			a := admission.Scale(c.Snapshot(), next, c.Env())
			if a.Plan == nil {
				t.Fatalf("%+v", a.Decision)
			}
			c.Must(state.KindPlan, a.Plan)
		}
		a := admission.Create(c.Snapshot(), scheduling.VC("c", 1, scheduling.Group(1, 3.4, scheduling.GiB/2)), c.Env())
		t.Logf("raised %v: c admitted %v: %s", raise, a.Decision.Admitted, a.Decision.Summary)
		if a.Plan != nil {
			c.Must(state.KindPlan, a.Plan)
		}
		for _, g := range c.Named("a").Groups {
			t.Logf("group %s: allocation %v of %v, yield %v", g.Name, g.Allocation, g.CPU, g.Yield())
		}
		if y := c.Named("a").Groups[1].Yield(); y < 0.5 {
			t.Errorf("raised %v: the running group of a VC that was promised 0.5 has %v", raise, y)
		}
	}
}
