package admission_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

func att2Report(c *scheduling.Cluster, vm state.VM, ph state.Phase) {
	c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: ph, Reason: "x"}}})
}

func att2Progress(c *scheduling.Cluster, kind string, vc state.VC) state.Progress {
	return c.Snapshot().ProgressOf(state.Operation{ID: "o", Kind: kind, VC: vc.ID, Name: vc.Name, Index: 1}, func(string) uint64 { return 1 << 40 })
}

// vm stop, then vc start before the VM has stopped.
func TestAtt2StartWhileStopping(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	s := c.Snapshot()
	vc := c.Named("a")
	vm := s.VMsOf(vc.ID)[0]
	c.Must(state.KindPlan, admission.StopVM(s, vc, vm, "ann").Plan)
	s = c.Snapshot()
	vm, _ = s.VM(vm.ID)
	t.Logf("after stop: %+v", vm)
	a := admission.Start(s, c.Named("a"), c.Env())
	t.Logf("start: admitted %v %q", a.Decision.Admitted, a.Decision.Summary)
	c.Must(state.KindPlan, a.Plan)
	vm, _ = c.Snapshot().VM(vm.ID)
	t.Logf("after vc start: %+v", vm)
	att2Report(c, vm, state.Stopped)
	vm, _ = c.Snapshot().VM(vm.ID)
	p := admission.Restart(c.Snapshot(), c.Env())
	t.Logf("after stopped: %+v, restart plan %v, progress %+v, vc %s", vm, p != nil, att2Progress(c, "start", c.Named("a")), c.State("a"))
	if vm.Goal == state.GoalStop && p == nil {
		t.Error("stuck: it does not start, though vc start was asked for")
	}
}

// all VMs stopped alone; another VC takes the CPU; vc start is queued; the queue admits it later.
func TestAtt2StartQueued(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("a", 1, scheduling.Group(2, 2, scheduling.GiB))
	t.Logf("host %+v", c.Snapshot().Hosts()[0].Allowance)
	c.Create(x)
	c.CommitPlan()
	t.Logf("a is %s", c.State("a"))
	for _, vm := range c.Snapshot().VMsOf(c.Named("a").ID) {
		s := c.Snapshot()
		vm, _ := s.VM(vm.ID)
		c.Must(state.KindPlan, admission.StopVM(s, c.Named("a"), vm, "ann").Plan)
		att2Report(c, vm, state.Stopped)
	}
	t.Logf("stopped: a is %s", c.State("a"))
	c.Create(scheduling.VC("b", 1, scheduling.Group(2, 2, scheduling.GiB)))
	c.CommitPlan()
	t.Logf("b is %s", c.State("b"))
	a := admission.Start(c.Snapshot(), c.Named("a"), c.Env())
	t.Logf("start: queued %v %+v", a.Queued, a.Decision.Summary)
	if a.Plan == nil {
		t.Fatal("refused")
	}
	c.Must(state.KindPlan, a.Plan)
	t.Logf("a is %s", c.State("a"))
	p := new(admission.QueueCache).Admit(c.Snapshot(), c.Env())
	t.Logf("admit with b still there: %v", p != nil)
	if p == nil {
		c.Must(state.KindPlan, admission.Delete(c.Snapshot(), c.Named("b"), c.Env()).Plan)
		for _, vm := range c.Snapshot().VMsOf(c.Named("b").ID) {
			c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped, SourceLost: true}}})
		}
		p = new(admission.QueueCache).Admit(c.Snapshot(), c.Env())
		t.Logf("admit later: %v", p != nil)
	}
	if p != nil {
		c.Must(state.KindPlan, p)
	}
	n := 0
	for _, vm := range c.Snapshot().VMsOf(c.Named("a").ID) {
		t.Logf("%s %s %s %+v", vm.Name, vm.Phase, vm.Goal, vm.Order)
		if vm.ConsumesResources() {
			n++
		}
	}
	vc := c.Named("a")
	t.Logf("a: admitted %v, %s; progress of start %+v", vc.Admitted, c.State("a"), att2Progress(c, "start", vc))
	if vc.Admitted && n == 0 {
		t.Error("vc start was admitted from the queue and started nothing")
	}
}

// apply --restart, and the VM ends by itself at that moment.
func TestAtt2RestartFailed(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	s := c.Snapshot()
	vc := c.Named("a")
	vm := s.VMsOf(vc.ID)[0]
	next := vc
	next.Groups = append([]state.Group{}, vc.Groups...)
	next.Groups[0].Network = "other"
	a := admission.Change(s, next, "apply", map[string]bool{vm.ID: true}, c.Env())
	c.Must(state.KindPlan, a.Plan)
	att2Report(c, vm, state.Failed)
	vm, _ = c.Snapshot().VM(vm.ID)
	p := admission.Restart(c.Snapshot(), c.Env())
	t.Logf("%+v, plan %v, %+v, vc %s", vm, p != nil, att2Progress(c, "apply", vc), c.State("a"))
	if p == nil {
		t.Error("it never starts again")
	}
}

// vc start while a VM is stopping drops memory that the guest still has from the ledger.
func TestAtt2Undercharge(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("a", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB))
	c.Create(x)
	c.CommitPlan()
	next := c.Named("a")
	next.Groups = append([]state.Group{}, next.Groups...)
	next.Groups[0].Memory, next.Groups[0].MemoryMin = scheduling.GiB, scheduling.GiB
	sc := admission.Scale(c.Snapshot(), next, c.Env())
	if sc.Plan == nil {
		t.Fatalf("%+v", sc.Decision)
	}
	c.Must(state.KindPlan, sc.Plan)
	vm := c.Snapshot().VMsOf(c.Named("a").ID)[0]
	t.Logf("charged %d", vm.ChargedMemory>>20)
	c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
	before := c.Snapshot().LedgerOf("h1")
	c.Must(state.KindPlan, admission.Start(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	after := c.Snapshot().LedgerOf("h1")
	vm, _ = c.Snapshot().VM(vm.ID)
	t.Logf("charged %d MiB, phase %s; host memory %d -> %d MiB", vm.ChargedMemory>>20, vm.Phase, before.Memory>>20, after.Memory>>20)
	if after.Memory < before.Memory {
		t.Error("the ledger lost memory that the guest still has")
	}
}

// a stopped VM's old memory is charged when its VC starts again.
func TestAtt2StaleCharge(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("a", 0.5, scheduling.Group(1, 1, 6*scheduling.GiB))
	x.Groups[0].Disk = state.Disk{Size: 1 << 30}
	c.Create(x)
	c.CommitPlan()
	vm := c.Snapshot().VMsOf(c.Named("a").ID)[0]
	c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
	att2Report(c, vm, state.Stopped)
	c.Must(state.KindPlan, admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	vm, _ = c.Snapshot().VM(vm.ID)
	t.Logf("after vc stop %+v, ledger %+v", vm, c.Snapshot().LedgerOf("h1"))
	next := c.Named("a")
	next.Groups = append([]state.Group{}, next.Groups...)
	next.Groups[0].Memory, next.Groups[0].MemoryMin = scheduling.GiB, scheduling.GiB
	c.Must(state.KindPlan, admission.Scale(c.Snapshot(), next, c.Env()).Plan)
	c.Create(scheduling.VC("b", 0.5, scheduling.Group(1, 1, 4*scheduling.GiB)))
	c.CommitPlan()
	t.Logf("b %s, %+v", c.State("b"), c.Snapshot().LedgerOf("h1"))
	a := admission.Start(c.Snapshot(), c.Named("a"), c.Env())
	if !a.Decision.Admitted {
		t.Errorf("1 GiB does not fit beside 4 of 8: %s %+v", a.Decision.Summary, a.Decision.Hosts)
	}
}
