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

// A VM that a change of its VC restarts keeps its place where it can: the report that it stopped, however it ended, is its next start.
// Where its host is none for it any more it starts on another one, also in a VC whose VMs wait for their own hosts.
func TestRestartForAChange(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *state.Group)
		ends   state.Phase
		stays  bool
	}{
		{"network", func(g *state.Group) { g.Network = "other" }, state.Stopped, true},
		{"it fails meanwhile", func(g *state.Group) { g.Network = "other" }, state.Failed, true},
		{"memory that its host has", func(g *state.Group) { g.Memory = 4 * scheduling.GiB }, state.Stopped, true},
		{"memory that its host has not", func(g *state.Group) { g.Memory = 6 * scheduling.GiB }, state.Stopped, false},
		{"a rule", func(g *state.Group) { g.Network, g.Affinity.Avoid = "other", []string{"host:h1"} }, state.Failed, false},
	} {
		k := scheduling.NewCluster(t, "h1")
		k.Create(scheduling.VC("other", 0.5, scheduling.Group(1, 1, 3*scheduling.GiB)))
		k.CommitPlan()
		k.Create(scheduling.VC("a", 0.5, scheduling.Group(1, 1, scheduling.GiB)))
		k.CommitPlan()
		k.Host("h2", 4, 8*scheduling.GiB, state.Resources{})
		next := k.Named("a")
		next.OnHostLoss = "keep"
		next.Groups = slices.Clone(next.Groups)
		c.change(&next.Groups[0])
		vm := k.Snapshot().VMsOf(next.ID)[0]
		answer := admission.Change(k.Snapshot(), next, "apply", map[string]bool{vm.ID: true}, k.Env())
		if answer.Plan == nil {
			t.Errorf("%s: %s", c.name, answer.Decision.Summary)
			continue
		}
		k.Enact("apply", answer.Plan)
		load := k.Snapshot().LoadOf("h1").Memory
		k.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: c.ends, Reason: "x"}}})
		op := state.Operation{ID: "o", Kind: "apply", VC: next.ID, Name: next.Name}
		if p := k.Snapshot().ProgressOf(op, func(string) uint64 { return 1 }); p.State != state.OpPending {
			t.Errorf("%s: %+v", c.name, p)
		}
		if after := k.Snapshot().LoadOf("h1").Memory; c.stays != (after == load) {
			t.Errorf("%s: h1 is charged %d, then %d", c.name, load, after)
		}
		p := admission.Restart(k.Snapshot(), k.Env())
		switch {
		case c.stays == (p != nil):
			t.Errorf("%s: plan %+v", c.name, p)
		case p != nil:
			k.Enact("restart", p)
		}
		want := "h1"
		if !c.stays {
			want = "h2"
		}
		if got, _ := k.Snapshot().VM(vm.ID); got.Host != want || got.Phase != state.Starting || got.Generation != 2 || got.Order != (state.VMOrder{}) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
