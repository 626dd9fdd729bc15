package admission_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

func TestQueueOrder(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("full", 1, scheduling.Group(4, 1, scheduling.GiB)))
	waits := func(name string, priority int, cpu float64) {
		x := scheduling.VC(name, 1, scheduling.Group(1, cpu, scheduling.GiB))
		x.Priority = priority
		if a := c.Create(x); !a.Queued {
			t.Fatalf("%s is not queued: %+v", name, a)
		}
	}
	waits("old", 0, 1)
	waits("young", 0, 1)
	waits("urgent", 5, 1)
	waits("large", 9, 4)
	var order []string
	for _, x := range admission.Queue(c.Snapshot()) {
		order = append(order, x.Name)
	}
	if got := strings.Join(order, " "); got != "large urgent old young" {
		t.Errorf("order of the queue: %s", got)
	}
	if p := new(admission.QueueCache).Admit(c.Snapshot(), c.Env()); p != nil {
		t.Errorf("admitted to a full cluster: %+v", p)
	}
	c.CommitPlan()
	smaller := c.Named("full")
	smaller.Groups = slices.Clone(smaller.Groups)
	smaller.Groups[0].Count = 2
	c.Enact("scale down", admission.Scale(c.Snapshot(), smaller, c.Env()).Plan)
	if p := new(admission.QueueCache).Admit(c.Snapshot(), c.Env()); p != nil {
		t.Errorf("admitted to room that is still held: %+v", p)
	}
	c.CommitPlan()
	for name, want := range map[string]state.VCState{"urgent": state.VCStarting, "old": state.VCStarting, "young": state.VCQueued, "large": state.VCQueued} {
		if got := c.State(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// What never fits is refused also by one that would wait; what may not wait is refused at once.
func TestRefusals(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	if a := c.Create(scheduling.VC("huge", 0.5, scheduling.Group(1, 1, 100*scheduling.GiB))); a.Plan != nil || a.Decision.Admitted || len(a.Decision.Hosts) != 2 || a.Decision.Summary == "" {
		t.Errorf("100 GiB on hosts of 8: %+v", a)
	}
	c.Create(scheduling.VC("full", 1, scheduling.Group(8, 1, scheduling.GiB)))
	x := scheduling.VC("x", 1, scheduling.Group(1, 1, scheduling.GiB))
	x.OnFull = state.Reject
	if a := c.Create(x); a.Plan != nil || len(a.Decision.Hosts) != 2 {
		t.Errorf("one that may not wait: %+v", a)
	}
	if d := admission.Consider(c.Snapshot(), x, c.Env()); d.Admitted || d.Summary == "" {
		t.Errorf("considered: %+v", d)
	}
}

func TestYieldsFollowWhatRuns(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.25, scheduling.Group(2, 2, scheduling.GiB)))
	c.CommitPlan()
	if !scheduling.Near(c.Yield("a"), 1) {
		t.Errorf("alone: %v", c.Yield("a"))
	}
	c.Create(scheduling.VC("b", 0.25, scheduling.Group(2, 2, scheduling.GiB)))
	c.CommitPlan()
	if !scheduling.Near(c.Yield("a"), 0.5) || !scheduling.Near(c.Yield("b"), 0.5) {
		t.Errorf("together: %v %v", c.Yield("a"), c.Yield("b"))
	}
	c.Host("h1", 4, 8*scheduling.GiB, state.Resources{CPU: 2, Memory: scheduling.GiB})
	c.CommitPlan()
	if !scheduling.Near(c.Yield("a"), 0.25) || !scheduling.Near(c.Yield("b"), 0.25) {
		t.Errorf("with 2 cores gone to foreign VMs: %v %v", c.Yield("a"), c.Yield("b"))
	}
	c.Host("h1", 4, 8*scheduling.GiB, state.Resources{CPU: 3.9, Memory: 7 * scheduling.GiB})
	c.CommitPlan()
	if c.Yield("a") > 0.026 || c.State("a") != state.VCDegraded {
		t.Errorf("with almost nothing left: %v, %s", c.Yield("a"), c.State("a"))
	}
	if a := c.Create(scheduling.VC("late", 0, scheduling.Group(1, 0.1, scheduling.GiB/4))); a.Plan == nil || !a.Queued {
		t.Errorf("placed on a host that is beyond its memory: %+v", a)
	}
	c.Host("h1", 4, 8*scheduling.GiB, state.Resources{CPU: 4, Memory: 0})
	c.CommitPlan()
	if c.Yield("a") != 0 {
		t.Errorf("with no CPU left: %v", c.Yield("a"))
	}
	c.Host("h1", 4, 8*scheduling.GiB, state.Resources{})
	c.CommitPlan()
	c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.VMs != 5 {
		t.Errorf("what stops is held: %+v", l)
	}
	c.CommitPlan()
	if !scheduling.Near(c.Yield("b"), 1-0.05/4) && !scheduling.Near(c.Yield("b"), 1) && c.Yield("b") < 0.9 {
		t.Errorf("after a stopped: %v", c.Yield("b"))
	}
	c.Enact("delete", admission.Delete(c.Snapshot(), c.Named("b"), c.Env()).Plan)
	c.CommitPlan()
	if _, ok := c.Snapshot().VCNamed("b"); ok {
		t.Error("b is still there")
	}
	if l := c.Snapshot().LoadOf("h1"); l.VMs != 1 {
		t.Errorf("load %+v, want what is left: late", l)
	}
}

func TestCordon(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	c.Create(scheduling.VC("b", 0.5, scheduling.Group(3, 1, scheduling.GiB)))
	for _, vm := range c.Snapshot().VMsOf("vc-b") {
		if vm.Host != "h2" {
			t.Errorf("%s was placed on %s", vm.Name, vm.Host)
		}
	}
	c.CommitPlan() // and a stays where it is
	if c.State("a") != state.VCRunning {
		t.Errorf("a is %s", c.State("a"))
	}
}

// A VM with a disk goes back to the host where it lies, or waits.
func TestPinnedDisks(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	g := scheduling.Group(1, 3, 2*scheduling.GiB)
	g.Image, g.Disk = "disk", state.Disk{Size: scheduling.GiB}
	c.Create(scheduling.VC("a", 0.9, g))
	at := c.Snapshot().VMsOf("vc-a")[0].Host
	other := map[string]string{"h1": "h2", "h2": "h1"}[at]
	c.CommitPlan()
	c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	c.CommitPlan()

	c.Must(state.KindHostCordon, state.HostCordon{Host: at, Cordoned: true})
	if a := admission.Start(c.Snapshot(), c.Named("a"), c.Env()); !a.Queued || len(a.Decision.Hosts) != 1 || a.Decision.Hosts[0].Host != at {
		t.Errorf("its host is cordoned: %+v", a)
	}
	c.Must(state.KindHostCordon, state.HostCordon{Host: at})

	for _, full := range []struct {
		what string
		g    state.Group
	}{{"CPU", scheduling.Group(1, 4, scheduling.GiB)}, {"memory", scheduling.Group(1, 0.1, 7*scheduling.GiB)}} {
		c.Must(state.KindHostCordon, state.HostCordon{Host: other, Cordoned: true})
		x := scheduling.VC("b-"+strings.ToLower(full.what), 1, full.g)
		if a := c.Create(x); a.Queued || a.Plan == nil {
			t.Fatalf("%s: %+v", x.Name, a)
		}
		c.Must(state.KindHostCordon, state.HostCordon{Host: other})
		c.CommitPlan()
		a := admission.Start(c.Snapshot(), c.Named("a"), c.Env())
		if !a.Queued {
			t.Errorf("its host has no %s left: %+v", full.what, a.Plan)
		}
		c.Enact("queue", a.Plan)
		if p := new(admission.QueueCache).Admit(c.Snapshot(), c.Env()); p != nil {
			t.Errorf("admitted to a host with no %s left: %+v", full.what, p)
		}
		c.Enact("delete", admission.Delete(c.Snapshot(), c.Named(x.Name), c.Env()).Plan)
		for _, vm := range c.Snapshot().VMsOf(x.ID) {
			c.Follow(vm)
		}
		c.Decide() // and then it is admitted from the queue, on its host
		vm := c.Snapshot().VMsOf("vc-a")[0]
		if vm.Host != at || vm.Phase != state.Starting {
			t.Errorf("VM is %s on %s, want starting on %s", vm.Phase, vm.Host, at)
		}
		c.CommitPlan()
		c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
		c.CommitPlan()
	}
}

// A VM with no disk of its own may start anywhere.
func TestNotPinned(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	c.Create(scheduling.VC("a", 0.9, scheduling.Group(1, 3, 2*scheduling.GiB)))
	at := c.Snapshot().VMsOf("vc-a")[0].Host
	c.CommitPlan()
	c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	c.CommitPlan()
	c.Must(state.KindHostCordon, state.HostCordon{Host: at, Cordoned: true})
	a := admission.Start(c.Snapshot(), c.Named("a"), c.Env())
	c.Enact("start", a.Plan)
	vm := c.Snapshot().VMsOf("vc-a")[0]
	if vm.Host == at || vm.Generation != 2 || vm.Phase != state.Starting {
		t.Errorf("VM is %+v", vm)
	}
}

func TestScale(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB)))
	c.Create(scheduling.VC("b", 0.5, scheduling.Group(1, 1, scheduling.GiB)))
	c.CommitPlan()
	scale := func(change func(g *state.Group)) admission.Answer {
		x := c.Named("a")
		x.Groups = slices.Clone(x.Groups)
		change(&x.Groups[0])
		return admission.Scale(c.Snapshot(), x, c.Env())
	}
	if a := scale(func(g *state.Group) { g.CPU = 8 }); a.Plan != nil || a.Queued || a.Decision.Admitted {
		t.Errorf("16 cores at yield 0.5 on 4: %+v", a)
	}
	if a := scale(func(g *state.Group) { g.Count = 4 }); a.Plan != nil || len(a.Decision.Hosts) == 0 {
		t.Errorf("8 GiB and more on 8: %+v", a)
	}
	c.Enact("needs", scale(func(g *state.Group) { g.CPU = 3 }).Plan)
	c.CommitPlan()
	if !scheduling.Near(c.Yield("a"), 4.0/7) || !scheduling.Near(c.Yield("b"), 4.0/7) {
		t.Errorf("yields %v %v, want 4/7", c.Yield("a"), c.Yield("b"))
	}
	c.Enact("down", scale(func(g *state.Group) { g.Count = 1 }).Plan)
	if vms := c.Snapshot().VMsOf("vc-a"); vms[0].Goal != state.GoalRun || vms[1].Goal != state.GoalDelete || vms[1].Frozen == 0 {
		t.Errorf("VMs %+v", vms)
	}
	c.CommitPlan()
	c.Enact("less memory", scale(func(g *state.Group) { g.Memory = scheduling.GiB }).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*scheduling.GiB+128*scheduling.MiB {
		t.Errorf("memory counts until the guest has let go: %+v", l)
	}
	c.CommitPlan()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 2*scheduling.GiB+128*scheduling.MiB || l.Reserve.Bytes() != scheduling.GiB {
		t.Errorf("and then it is kept in reserve: %+v", l)
	}
	c.Enact("memory back", scale(func(g *state.Group) { g.Memory = 2 * scheduling.GiB }).Plan)
	c.CommitPlan()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*scheduling.GiB+128*scheduling.MiB || l.Reserve.Bytes() != 0 {
		t.Errorf("and given back: %+v", l)
	}
}

// Memory that grows in place is refused where the host has no room, with the reason.
func TestScaleMemoryWithoutRoom(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, 3*scheduling.GiB)))
	c.CommitPlan()
	x := c.Named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = scheduling.GiB
	c.Enact("less memory", admission.Scale(c.Snapshot(), x, c.Env()).Plan)
	c.CommitPlan()
	c.Create(scheduling.VC("b", 0.5, scheduling.Group(1, 1, 3*scheduling.GiB))) // fits beside what one of them may take back
	if c.State("b") == state.VCQueued {
		t.Fatal("b is queued")
	}
	c.CommitPlan()
	x = c.Named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = 3 * scheduling.GiB
	if a := admission.Scale(c.Snapshot(), x, c.Env()); a.Plan != nil || len(a.Decision.Hosts) != 1 {
		t.Errorf("9 GiB on 8: %+v", a)
	}
}

// A VM that ended by itself is not started again until a user asks for it.
func TestFailedVMs(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.Must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.CommitPlan()
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Failed || c.State("a") != state.VCDegraded {
		t.Errorf("VM %s, VC %s", got.Phase, c.State("a"))
	}
	c.Enact("start", admission.Start(c.Snapshot(), c.Named("a"), c.Env()).Plan)
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Starting || got.Generation != 2 {
		t.Errorf("VM %+v", got)
	}
	c.CommitPlan()
	if c.State("a") != state.VCRunning {
		t.Errorf("VC %s", c.State("a"))
	}
}

// A VC of which some VMs run does not join the queue: what cannot be started is refused.
func TestStartWithoutRoomWhileSomeRun(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 1, scheduling.Group(2, 1, scheduling.GiB)))
	c.Create(scheduling.VC("b", 1, scheduling.Group(2, 1, scheduling.GiB)))
	c.CommitPlan()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.Must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.Create(scheduling.VC("c", 1, scheduling.Group(1, 1, scheduling.GiB)))
	c.CommitPlan()
	if a := admission.Start(c.Snapshot(), c.Named("a"), c.Env()); a.Plan != nil || a.Queued || len(a.Decision.Hosts) != 1 {
		t.Errorf("start: %+v, want a refusal with reasons", a)
	}
	if c.State("a") != state.VCDegraded {
		t.Errorf("a is %s", c.State("a"))
	}
}

// A VC that waits keeps its turn when it is asked for again.
func TestQueuedKeepsItsTurn(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("full", 1, scheduling.Group(4, 1, scheduling.GiB)))
	c.Create(scheduling.VC("first", 1, scheduling.Group(1, 1, scheduling.GiB)))
	c.Create(scheduling.VC("second", 1, scheduling.Group(1, 1, scheduling.GiB)))
	c.Enact("start", admission.Start(c.Snapshot(), c.Named("first"), c.Env()).Plan)
	if q := admission.Queue(c.Snapshot()); len(q) != 2 || q[0].Name != "first" {
		t.Errorf("queue %+v", q)
	}
}

// A VC waits in the queue where it would fit once what is there is gone, whatever state that is in; one that fits on no empty host is
// refused.
func TestQueueBesideVMsThatDoNotRun(t *testing.T) {
	for _, is := range []string{"running", "stopped", "restarting", "stopping"} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 2, 3*scheduling.GiB)))
		c.CommitPlan()
		for _, vm := range c.Snapshot().VMsOf(c.Named("a").ID) {
			a := c.Named("a")
			switch is {
			case "stopped":
				c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), a, vm, "ann").Plan)
				vm, _ = c.Snapshot().VM(vm.ID)
				c.Follow(vm)
			case "restarting":
				c.Must(state.KindPlan, admission.RestartVM(c.Snapshot(), a, vm, "ann").Plan)
			}
		}
		if is == "stopping" {
			c.Must(state.KindPlan, admission.Stop(c.Snapshot(), c.Named("a"), c.Env()).Plan)
		}
		for gib, queued := range map[int64]bool{3: true, 5: false} {
			b := admission.Create(c.Snapshot(), scheduling.VC("b", 0.2, scheduling.Group(2, 2, gib*scheduling.GiB)), c.Env())
			if b.Queued != queued || (b.Plan != nil) != queued {
				t.Errorf("%s, %d GiB: queued %v: %s", is, gib, b.Queued, b.Decision.Summary)
			}
		}
	}
}

// A group all VMs of which were stopped alone does not count in the yield of its VC: the others keep what they were promised, even where
// the group that stands still has a share that is little of its need.
func TestMinimumYieldBesideAStoppedGroup(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	c.Create(scheduling.VC("a", 0.5, scheduling.Group(1, 1, scheduling.GiB/2), scheduling.Group(1, 2, scheduling.GiB/2)))
	c.CommitPlan()
	vm := c.VMOf("a")
	c.Must(state.KindPlan, admission.StopVM(c.Snapshot(), c.Named("a"), vm, "ann").Plan)
	vm, _ = c.Snapshot().VM(vm.ID)
	c.Follow(vm)
	next := c.Named("a")
	next.Groups = slices.Clone(next.Groups)
	next.Groups[0].CPU, next.Groups[0].VCPUs = 4, 4
	c.Enact("scale", admission.Scale(c.Snapshot(), next, c.Env()).Plan)
	if y := c.Yield("a"); vm.Group != "g0" || y != 1 {
		t.Fatalf("the VM of %s does not run; yield %v, want 1", vm.Group, y)
	}
	for cpu, fits := range map[float64]bool{3.4: false, 3: true} {
		if a := admission.Create(c.Snapshot(), scheduling.VC("c", 1, scheduling.Group(1, cpu, scheduling.GiB/2)), c.Env()); a.Decision.Admitted != fits {
			t.Errorf("%v cores beside 2 of which at least 1 was promised: %s", cpu, a.Decision.Summary)
		}
	}
	c.Create(scheduling.VC("c", 1, scheduling.Group(1, 3, scheduling.GiB/2)))
	if y := c.Named("a").Groups[1].Yield(); y < 0.5 {
		t.Errorf("the group that runs has yield %v, and was promised 0.5", y)
	}
}
