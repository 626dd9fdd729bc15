package loop_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

func TestQueueOrder(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("full", 1, group(4, 1, gib)))
	waits := func(name string, priority int, cpu float64) {
		x := vc(name, 1, group(1, cpu, gib))
		x.Priority = priority
		if a := c.create(x); !a.Queued {
			t.Fatalf("%s is not queued: %+v", name, a)
		}
	}
	waits("old", 0, 1)
	waits("young", 0, 1)
	waits("urgent", 5, 1)
	waits("large", 9, 4)
	var order []string
	for _, x := range loop.Queue(c.Snapshot()) {
		order = append(order, x.Name)
	}
	if got := strings.Join(order, " "); got != "large urgent old young" {
		t.Errorf("order of the queue: %s", got)
	}
	if p := loop.AdmitQueue(c.Snapshot(), c.env()); p != nil {
		t.Errorf("admitted to a full cluster: %+v", p)
	}
	c.commitPlan()
	smaller := c.named("full")
	smaller.Groups = slices.Clone(smaller.Groups)
	smaller.Groups[0].Count = 2
	c.enact("scale down", loop.Scale(c.Snapshot(), smaller, c.env()).Plan)
	if p := loop.AdmitQueue(c.Snapshot(), c.env()); p != nil {
		t.Errorf("admitted to room that is still held: %+v", p)
	}
	c.commitPlan()
	for name, want := range map[string]state.VCState{"urgent": state.VCStarting, "old": state.VCStarting, "young": state.VCQueued, "large": state.VCQueued} {
		if got := c.state(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// What never fits is refused also by one that would wait; what may not wait is refused at once.
func TestRefusals(t *testing.T) {
	c := newCluster(t, "h1", "h2")
	if a := c.create(vc("huge", 0.5, group(1, 1, 100*gib))); a.Plan != nil || a.Decision.Admitted || len(a.Decision.Hosts) != 2 || a.Decision.Summary == "" {
		t.Errorf("100 GiB on hosts of 8: %+v", a)
	}
	c.create(vc("full", 1, group(8, 1, gib)))
	x := vc("x", 1, group(1, 1, gib))
	x.OnFull = state.Reject
	if a := c.create(x); a.Plan != nil || len(a.Decision.Hosts) != 2 {
		t.Errorf("one that may not wait: %+v", a)
	}
	if d := loop.Consider(c.Snapshot(), x, c.env()); d.Admitted || d.Summary == "" {
		t.Errorf("considered: %+v", d)
	}
}

func TestYieldsFollowWhatRuns(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.25, group(2, 2, gib)))
	c.commitPlan()
	if !near(c.yield("a"), 1) {
		t.Errorf("alone: %v", c.yield("a"))
	}
	c.create(vc("b", 0.25, group(2, 2, gib)))
	c.commitPlan()
	if !near(c.yield("a"), 0.5) || !near(c.yield("b"), 0.5) {
		t.Errorf("together: %v %v", c.yield("a"), c.yield("b"))
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 2, Memory: gib})
	c.commitPlan()
	if !near(c.yield("a"), 0.25) || !near(c.yield("b"), 0.25) {
		t.Errorf("with 2 cores gone to foreign VMs: %v %v", c.yield("a"), c.yield("b"))
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 3.9, Memory: 7 * gib})
	c.commitPlan()
	if c.yield("a") > 0.026 || c.state("a") != state.VCDegraded {
		t.Errorf("with almost nothing left: %v, %s", c.yield("a"), c.state("a"))
	}
	if a := c.create(vc("late", 0, group(1, 0.1, gib/4))); a.Plan == nil || !a.Queued {
		t.Errorf("placed on a host that is beyond its memory: %+v", a)
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 4, Memory: 0})
	c.commitPlan()
	if c.yield("a") != 0 {
		t.Errorf("with no CPU left: %v", c.yield("a"))
	}
	c.host("h1", 4, 8*gib, state.Resources{})
	c.commitPlan()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.VMs != 5 {
		t.Errorf("what stops is held: %+v", l)
	}
	c.commitPlan()
	if !near(c.yield("b"), 1-0.05/4) && !near(c.yield("b"), 1) && c.yield("b") < 0.9 {
		t.Errorf("after a stopped: %v", c.yield("b"))
	}
	c.enact("delete", loop.Delete(c.Snapshot(), c.named("b"), c.env()).Plan)
	c.commitPlan()
	if _, ok := c.Snapshot().VCNamed("b"); ok {
		t.Error("b is still there")
	}
	if l := c.Snapshot().LoadOf("h1"); l.VMs != 1 {
		t.Errorf("load %+v, want what is left: late", l)
	}
}

func TestCordon(t *testing.T) {
	c := newCluster(t, "h1", "h2")
	c.create(vc("a", 0.5, group(2, 1, gib)))
	c.commitPlan()
	c.must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	c.create(vc("b", 0.5, group(3, 1, gib)))
	for _, vm := range c.Snapshot().VMsOf("vc-b") {
		if vm.Host != "h2" {
			t.Errorf("%s was placed on %s", vm.Name, vm.Host)
		}
	}
	c.commitPlan() // and a stays where it is
	if c.state("a") != state.VCRunning {
		t.Errorf("a is %s", c.state("a"))
	}
}

// A VM with a disk goes back to the host where it lies, or waits.
func TestPinnedDisks(t *testing.T) {
	c := newCluster(t, "h1", "h2")
	g := group(1, 3, 2*gib)
	g.Image, g.Disk = "disk", state.Disk{Size: gib}
	c.create(vc("a", 0.9, g))
	at := c.Snapshot().VMsOf("vc-a")[0].Host
	other := map[string]string{"h1": "h2", "h2": "h1"}[at]
	c.commitPlan()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	c.commitPlan()

	c.must(state.KindHostCordon, state.HostCordon{Host: at, Cordoned: true})
	if a := loop.Start(c.Snapshot(), c.named("a"), c.env()); !a.Queued || len(a.Decision.Hosts) != 1 || a.Decision.Hosts[0].Host != at {
		t.Errorf("its host is cordoned: %+v", a)
	}
	c.must(state.KindHostCordon, state.HostCordon{Host: at})

	for _, full := range []struct {
		what string
		g    state.Group
	}{{"CPU", group(1, 4, gib)}, {"memory", group(1, 0.1, 7*gib)}} {
		c.must(state.KindHostCordon, state.HostCordon{Host: other, Cordoned: true})
		x := vc("b-"+strings.ToLower(full.what), 1, full.g)
		if a := c.create(x); a.Queued || a.Plan == nil {
			t.Fatalf("%s: %+v", x.Name, a)
		}
		c.must(state.KindHostCordon, state.HostCordon{Host: other})
		c.commitPlan()
		a := loop.Start(c.Snapshot(), c.named("a"), c.env())
		if !a.Queued {
			t.Errorf("its host has no %s left: %+v", full.what, a.Plan)
		}
		c.enact("queue", a.Plan)
		if p := loop.AdmitQueue(c.Snapshot(), c.env()); p != nil {
			t.Errorf("admitted to a host with no %s left: %+v", full.what, p)
		}
		c.enact("delete", loop.Delete(c.Snapshot(), c.named(x.Name), c.env()).Plan)
		for _, vm := range c.Snapshot().VMsOf(x.ID) {
			c.follow(vm)
		}
		c.decide() // and then it is admitted from the queue, on its host
		vm := c.Snapshot().VMsOf("vc-a")[0]
		if vm.Host != at || vm.Phase != state.Starting {
			t.Errorf("VM is %s on %s, want starting on %s", vm.Phase, vm.Host, at)
		}
		c.commitPlan()
		c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
		c.commitPlan()
	}
}

// A VM with no disk of its own may start anywhere.
func TestNotPinned(t *testing.T) {
	c := newCluster(t, "h1", "h2")
	c.create(vc("a", 0.9, group(1, 3, 2*gib)))
	at := c.Snapshot().VMsOf("vc-a")[0].Host
	c.commitPlan()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	c.commitPlan()
	c.must(state.KindHostCordon, state.HostCordon{Host: at, Cordoned: true})
	a := loop.Start(c.Snapshot(), c.named("a"), c.env())
	c.enact("start", a.Plan)
	vm := c.Snapshot().VMsOf("vc-a")[0]
	if vm.Host == at || vm.Generation != 2 || vm.Phase != state.Starting {
		t.Errorf("VM is %+v", vm)
	}
}

func TestScale(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.5, group(2, 1, 2*gib)))
	c.create(vc("b", 0.5, group(1, 1, gib)))
	c.commitPlan()
	scale := func(change func(g *state.Group)) loop.Answer {
		x := c.named("a")
		x.Groups = slices.Clone(x.Groups)
		change(&x.Groups[0])
		return loop.Scale(c.Snapshot(), x, c.env())
	}
	if a := scale(func(g *state.Group) { g.CPU = 8 }); a.Plan != nil || a.Queued || a.Decision.Admitted {
		t.Errorf("16 cores at yield 0.5 on 4: %+v", a)
	}
	if a := scale(func(g *state.Group) { g.Count = 4 }); a.Plan != nil || len(a.Decision.Hosts) == 0 {
		t.Errorf("8 GiB and more on 8: %+v", a)
	}
	c.enact("needs", scale(func(g *state.Group) { g.CPU = 3 }).Plan)
	c.commitPlan()
	if !near(c.yield("a"), 4.0/7) || !near(c.yield("b"), 4.0/7) {
		t.Errorf("yields %v %v, want 4/7", c.yield("a"), c.yield("b"))
	}
	c.enact("down", scale(func(g *state.Group) { g.Count = 1 }).Plan)
	if vms := c.Snapshot().VMsOf("vc-a"); vms[0].Goal != state.GoalRun || vms[1].Goal != state.GoalDelete || vms[1].Frozen == 0 {
		t.Errorf("VMs %+v", vms)
	}
	c.commitPlan()
	c.enact("less memory", scale(func(g *state.Group) { g.Memory = gib }).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*gib+128*mib {
		t.Errorf("memory counts until the guest has let go: %+v", l)
	}
	c.commitPlan()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 2*gib+128*mib || l.Reserve.Bytes() != gib {
		t.Errorf("and then it is kept in reserve: %+v", l)
	}
	c.enact("memory back", scale(func(g *state.Group) { g.Memory = 2 * gib }).Plan)
	c.commitPlan()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*gib+128*mib || l.Reserve.Bytes() != 0 {
		t.Errorf("and given back: %+v", l)
	}
}

// Memory that grows in place is refused where the host has no room, with the reason.
func TestScaleMemoryWithoutRoom(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.5, group(2, 1, 3*gib)))
	c.commitPlan()
	x := c.named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = gib
	c.enact("less memory", loop.Scale(c.Snapshot(), x, c.env()).Plan)
	c.commitPlan()
	c.create(vc("b", 0.5, group(1, 1, 3*gib))) // fits beside what one of them may take back
	if c.state("b") == state.VCQueued {
		t.Fatal("b is queued")
	}
	c.commitPlan()
	x = c.named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = 3 * gib
	if a := loop.Scale(c.Snapshot(), x, c.env()); a.Plan != nil || len(a.Decision.Hosts) != 1 {
		t.Errorf("9 GiB on 8: %+v", a)
	}
}

// A VM that ended by itself is not started again until a user asks for it.
func TestFailedVMs(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.5, group(2, 1, gib)))
	c.commitPlan()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.commitPlan()
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Failed || c.state("a") != state.VCDegraded {
		t.Errorf("VM %s, VC %s", got.Phase, c.state("a"))
	}
	c.enact("start", loop.Start(c.Snapshot(), c.named("a"), c.env()).Plan)
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Starting || got.Generation != 2 {
		t.Errorf("VM %+v", got)
	}
	c.commitPlan()
	if c.state("a") != state.VCRunning {
		t.Errorf("VC %s", c.state("a"))
	}
}

// A VC of which some VMs run does not join the queue: what cannot be started is refused.
func TestStartWithoutRoomWhileSomeRun(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 1, group(2, 1, gib)))
	c.create(vc("b", 1, group(2, 1, gib)))
	c.commitPlan()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.create(vc("c", 1, group(1, 1, gib)))
	c.commitPlan()
	if a := loop.Start(c.Snapshot(), c.named("a"), c.env()); a.Plan != nil || a.Queued || len(a.Decision.Hosts) != 1 {
		t.Errorf("start: %+v, want a refusal with reasons", a)
	}
	if c.state("a") != state.VCDegraded {
		t.Errorf("a is %s", c.state("a"))
	}
}

// A VC that waits keeps its turn when it is asked for again.
func TestQueuedKeepsItsTurn(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("full", 1, group(4, 1, gib)))
	c.create(vc("first", 1, group(1, 1, gib)))
	c.create(vc("second", 1, group(1, 1, gib)))
	c.enact("start", loop.Start(c.Snapshot(), c.named("first"), c.env()).Plan)
	if q := loop.Queue(c.Snapshot()); len(q) != 2 || q[0].Name != "first" {
		t.Errorf("queue %+v", q)
	}
}
