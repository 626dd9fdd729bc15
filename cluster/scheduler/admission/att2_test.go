package admission_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// vm stop, then vc start before the VM has stopped.
// all VMs stopped alone; another VC takes the CPU; vc start is queued; the queue admits it later.
// apply --restart, and the VM ends by itself at that moment.
// a VM is being restarted alone; scale lowers the CPU of its group, or another VC comes.
func TestAtt2RestartAndScale(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.25, scheduling.Group(2, 4, scheduling.GiB)))
	c.CommitPlan()
	s := c.Snapshot()
	vc := c.Named("a")
	vm := s.VMsOf(vc.ID)[0]
	c.Must(state.KindPlan, admission.RestartVM(s, vc, vm, "ann").Plan)
	vm, _ = c.Snapshot().VM(vm.ID)
	t.Logf("%+v alloc %v host %+v", vm, c.Named("a").Groups[0].Allocation, c.Snapshot().LedgerOf("h1"))
	next := c.Named("a")
	next.Groups = append([]state.Group{}, next.Groups...)
	next.Groups[0].Count = 3
	a := admission.Scale(c.Snapshot(), next, c.Env())
	if a.Plan == nil {
		t.Fatalf("refused %+v", a.Decision)
	}
	if err := c.Put(state.KindPlan, a.Plan); err != nil {
		t.Errorf("scale up: %v", err)
	}
}

// vc start while a VM is stopping drops memory that the guest still has from the ledger.
// failover of a lost VM beside one that is being restarted alone: refused as often as it is tried, and VCs behind it wait too.
func TestAtt2RestartAndFailover(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	x := scheduling.VC("a", 0.25, scheduling.Group(2, 4, scheduling.GiB))
	x.OnHostLoss = "restart"
	c.Create(x)
	y := scheduling.VC("z", 0.1, scheduling.Group(2, 0.5, scheduling.GiB))
	y.OnHostLoss = "restart"
	c.Create(y)
	c.CommitPlan()
	for _, vm := range c.Snapshot().VMs() {
		t.Logf("%s on %s", vm.Name, vm.Host)
	}
	vms := c.Snapshot().VMsOf(c.Named("a").ID)
	c.Must(state.KindPlan, admission.RestartVM(c.Snapshot(), c.Named("a"), vms[0], "ann").Plan)
	lost := vms[1].Host
	if lost == vms[0].Host {
		t.Skip("same host")
	}
	c.Must(state.KindHostLost, state.HostLost{Host: lost, Proof: state.ProofOperator, Text: "burnt", Basis: c.Snapshot().Index()})
	for range 5 {
		p := admission.Restart(c.Snapshot(), c.Env())
		if p == nil {
			t.Log("nothing")
			break
		}
		if err := c.Put(state.KindPlan, p); err != nil {
			t.Errorf("restart of %s: %v", p.VC.Name, err)
		} else {
			t.Logf("restarted %s: %s", p.VC.Name, p.Text)
		}
	}
	for _, vm := range c.Snapshot().VMs() {
		t.Logf("%s on %s %s", vm.Name, vm.Host, vm.Phase)
	}
}

// a stopped VM's old memory is charged when its VC starts again.
