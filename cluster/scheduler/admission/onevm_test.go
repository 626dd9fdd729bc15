package admission_test

import (
	"slices"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// stopAlone orders that VMs stay stopped. They are still stopping.
func stopAlone(c *scheduling.Cluster, vms ...state.VM) {
	for _, vm := range vms {
		s := c.Snapshot()
		vc, _ := s.VC(vm.VC)
		c.Enact("stop of "+vm.Name, admission.StopVM(s, vc, vm, "ann").Plan)
	}
}

// stopped has the hosts of VMs report that they have stopped.
func stopped(c *scheduling.Cluster, vms ...state.VM) {
	for _, vm := range vms {
		c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
	}
}

// resized is a VC whose first group has other memory.
func resized(vc state.VC, memory int64) state.VC {
	vc.Groups = slices.Clone(vc.Groups)
	vc.Groups[0].Memory, vc.Groups[0].MemoryMin = memory, memory
	return vc
}

// A start of a VC whose VMs were all stopped alone, and that has to wait, starts them when its turn comes. Until then their hosts keep no
// memory for them.
func TestQueuedStartOfStoppedVMs(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 1, scheduling.Group(2, 2, scheduling.GiB)))
	c.CommitPlan()
	vms := c.Snapshot().VMsOf(c.Named("a").ID)
	stopAlone(c, vms...)
	stopped(c, vms...)
	c.Create(scheduling.VC("b", 1, scheduling.Group(2, 2, scheduling.GiB)))
	c.CommitPlan()
	a := admission.Start(c.Snapshot(), c.Named("a"), c.Env())
	if !a.Queued {
		t.Fatalf("4 of 4 cores are taken: %+v", a)
	}
	c.Enact("start", a.Plan)
	if kept := c.Snapshot().KeptMemory("h1"); kept != 0 {
		t.Errorf("%d bytes are kept for VMs that wait", kept)
	}
	of := c.Snapshot().VMsOf(c.Named("b").ID)
	c.Enact("stop b", admission.Stop(c.Snapshot(), c.Named("b"), c.Env()).Plan)
	stopped(c, of...)
	p := new(admission.QueueCache).Admit(c.Snapshot(), c.Env())
	if p == nil || len(p.VMs) != 2 {
		t.Fatalf("b has gone: %+v", p)
	}
	c.Enact("admit", p)
	c.Run()
	if got := c.State("a"); got != state.VCRunning {
		t.Errorf("a is %s", got)
	}
}

// A start of a VC leaves a VM that is still stopping alone as it is: it holds its memory, and its order.
func TestStartBesideAStoppingVM(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB)))
	c.CommitPlan()
	c.Must(state.KindPlan, admission.Scale(c.Snapshot(), resized(c.Named("a"), scheduling.GiB), c.Env()).Plan) // its guests have not let go yet
	vm := c.Snapshot().VMsOf(c.Named("a").ID)[0]
	stopAlone(c, vm)
	before := c.Snapshot().LedgerOf("h1")
	if a := admission.Start(c.Snapshot(), c.Named("a"), c.Env()); a.Plan == nil {
		t.Fatalf("%+v", a.Decision)
	} else {
		c.Must(state.KindPlan, a.Plan)
	}
	vm, _ = c.Snapshot().VM(vm.ID)
	if after := c.Snapshot().LedgerOf("h1"); after.Memory != before.Memory || vm.Order.StoppedBy != "ann" {
		t.Errorf("memory %d, before %d: %+v", after.Memory, before.Memory, vm)
	}
}

// The memory that is kept for a VM that was stopped alone is free once its VC is stopped; its next start needs what its group asks for then.
func TestStopAfterStopAlone(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("a", 0.5, scheduling.Group(1, 1, 6*scheduling.GiB))
	x.Groups[0].Disk = state.Disk{Size: 1 << 30}
	c.Create(x)
	c.CommitPlan()
	vms := c.Snapshot().VMsOf(c.Named("a").ID)
	stopAlone(c, vms...)
	stopped(c, vms...)
	c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	c.Enact("scale", admission.Scale(c.Snapshot(), resized(c.Named("a"), scheduling.GiB), c.Env()).Plan)
	c.Create(scheduling.VC("b", 0.5, scheduling.Group(1, 1, 4*scheduling.GiB)))
	c.CommitPlan()
	if a := admission.Start(c.Snapshot(), c.Named("a"), c.Env()); !a.Decision.Admitted {
		t.Errorf("1 GiB beside 4 of 8: %s %+v", a.Decision.Summary, a.Decision.Hosts)
	}
}

// A VM that ends by itself while it is being stopped to restart, as a change of its VC needs, starts again all the same.
func TestRestartOfAVMThatEnds(t *testing.T) {
	for _, ends := range []state.Phase{state.Stopped, state.Failed} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, scheduling.GiB)))
		c.CommitPlan()
		next := c.Named("a")
		next.Groups = slices.Clone(next.Groups)
		next.Groups[0].Network = "other"
		vm := c.Snapshot().VMsOf(next.ID)[0]
		c.Enact("apply", admission.Change(c.Snapshot(), next, "apply", map[string]bool{vm.ID: true}, c.Env()).Plan)
		c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: ends, Reason: "x"}}})
		op := state.Operation{ID: "o", Kind: "apply", VC: next.ID, Name: next.Name}
		if p := c.Snapshot().ProgressOf(op, func(string) uint64 { return 1 }); p.State != state.OpPending {
			t.Errorf("%s: %+v", ends, p)
		}
		p := admission.Restart(c.Snapshot(), c.Env())
		if p == nil || len(p.VMs) != 1 {
			t.Errorf("%s: it does not start again: %+v", ends, p)
		}
	}
}
