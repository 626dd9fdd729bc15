package loop_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// failer is what testing.TB and *rapid.T have in common here.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// cluster is a state that is changed by commands alone, as the real one is.
type cluster struct {
	*state.Store
	t     failer
	index uint64
	ids   int
}

func (c *cluster) env() loop.Env {
	return loop.Env{Now: start.Add(time.Duration(c.index) * time.Second), NewID: c.id}
}

func (c *cluster) id() string { c.ids++; return fmt.Sprintf("id-%05d", c.ids) }

func (c *cluster) apply(kind state.Kind, body any) error {
	c.t.Helper()
	c.index++
	entry, err := state.Encode(kind, start.Add(time.Duration(c.index)*time.Second), body)
	if err != nil {
		c.t.Fatalf("encode: %v", err)
	}
	return c.Apply(c.index, entry)
}

func (c *cluster) must(kind state.Kind, body any) {
	c.t.Helper()
	if err := c.apply(kind, body); err != nil {
		c.t.Fatalf("%s: %v", kind, err)
	}
}

// newCluster has the given hosts of 4 cores and 8 GiB, 64 MiB overhead.
func newCluster(t failer, hosts ...string) *cluster {
	c := &cluster{Store: state.New(), t: t}
	c.must(state.KindInit, state.Init{ID: "c"})
	c.must(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	c.must(state.KindImagePut, state.Image{Name: "disk", Kind: state.DiskImage})
	for _, h := range hosts {
		c.host(h, 4, 8*gib, state.Resources{})
	}
	return c
}

func (c *cluster) host(name string, cpu float64, memory int64, foreign state.Resources) {
	c.t.Helper()
	r := state.Resources{CPU: cpu, Memory: memory}
	c.must(state.KindHostReport, state.HostReport{Name: name, Capacity: r, Allowance: r, Foreign: foreign, VMOverhead: 64 * mib})
}

func vc(name string, minYield float64, groups ...state.Group) state.VC {
	for i := range groups {
		g := &groups[i]
		g.Name, g.VCPUs, g.MemoryMin = fmt.Sprintf("g%d", i), int(math.Ceil(g.CPU)), min(g.Memory, gib/4)
		if g.Image == "" {
			g.Image = "kernel"
		}
	}
	return state.VC{ID: "vc-" + name, Name: name, MinYield: minYield, OnFull: state.Queue, Goal: state.GoalRun, Groups: groups}
}

func group(count int, cpu float64, memory int64) state.Group {
	return state.Group{Count: count, CPU: cpu, Memory: memory}
}

// enact a plan, which must be whole: what was planned on a snapshot applies to it.
func (c *cluster) enact(what string, p *state.Plan) {
	c.t.Helper()
	before := c.Snapshot()
	if err := c.apply(state.KindPlan, p); err != nil {
		c.t.Fatalf("%s: a plan made on this very state is refused: %v\n%+v", what, err, *p)
	}
	c.check(what, before)
}

// check what holds after every plan.
func (c *cluster) check(what string, before *state.Snapshot) {
	c.t.Helper()
	after := c.Snapshot()
	for _, old := range before.VMs() {
		if vm, ok := after.VM(old.ID); old.Holds() && (!ok || vm.Host != old.Host) {
			c.t.Fatalf("%s: VM moved: %+v, then %+v", what, old, vm)
		}
	}
	for _, h := range after.Hosts() {
		limit, l, was := h.Usable(), after.LoadOf(h.Name), before.LoadOf(h.Name)
		if l.CPU > max(limit.CPU, was.CPU)*(1+1e-9) || l.Memory+l.Reserve > max(limit.Memory, was.Memory+was.Reserve) {
			c.t.Fatalf("%s: host %s: %+v of %+v, before %+v", what, h.Name, l, limit, was)
		}
	}
	// Where a host lost CPU, the minimum yields of those on it cannot be kept, nor always of those who share another host with them.
	short := slices.ContainsFunc(before.Hosts(), func(h state.Host) bool { return before.LoadOf(h.Name).CPU > h.Usable().CPU*(1+1e-9) })
	for _, x := range after.VCs() {
		if x.Goal == state.GoalRun && !x.Admitted && slices.ContainsFunc(after.VMsOf(x.ID), func(vm state.VM) bool { return vm.Holds() && vm.Goal == state.GoalRun }) {
			c.t.Fatalf("%s: %s waits, and runs", what, x.Name)
		}
		old, known := before.VC(x.ID)
		floor := x.MinYield
		if known {
			floor = min(floor, state.YieldOf(old))
		}
		if n := state.CountPhases(after.VMsOf(x.ID)); x.Admitted && x.Goal == state.GoalRun && n.Running+n.Starting > 0 && !short && state.YieldOf(x) < floor-1e-6 {
			c.t.Fatalf("%s: yield of %s fell to %v, below %v", what, x.Name, state.YieldOf(x), floor)
		}
	}
}

func (c *cluster) create(x state.VC) loop.Answer {
	c.t.Helper()
	a := loop.Create(c.Snapshot(), x, c.env())
	if a.Plan != nil {
		c.enact("create "+x.Name, a.Plan)
	}
	return a
}

// settle lets the hosts do what they were told, and the queue and the shares follow.
func (c *cluster) settle() {
	c.t.Helper()
	for _, vm := range c.Snapshot().VMs() {
		c.follow(vm)
	}
	c.decide()
}

// follow is the word of its host on a VM that has come as far as it is to.
func (c *cluster) follow(vm state.VM) {
	c.t.Helper()
	st := state.VMStatus{VM: vm.ID, Generation: vm.Generation, Phase: state.Running}
	switch {
	case vm.Goal == state.GoalDelete:
		st.Phase, st.Gone = state.Stopped, true
	case vm.Goal == state.GoalStop && vm.Phase == state.Stopping:
		st.Phase = state.Stopped
	case vm.Phase == state.Starting:
	case vm.Phase == state.Running:
		x, _ := c.Snapshot().VC(vm.VC)
		g, _ := x.GroupOf(vm)
		st.Held = g.Memory
	default:
		return
	}
	c.must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{st}})
}

// decide does what the control loop does until it has nothing to do.
func (c *cluster) decide() {
	c.t.Helper()
	for range 100 {
		s := c.Snapshot()
		if p := loop.AdmitQueue(s, c.env()); p != nil {
			c.enact("admit", p)
			continue
		}
		p := loop.Reallocate(s)
		if p == nil {
			return
		}
		if err := c.apply(state.KindPlan, p); err != nil {
			c.t.Fatalf("reallocate: refused on its own state: %v", err)
		}
		if again := loop.Reallocate(c.Snapshot()); again != nil {
			c.t.Fatalf("reallocate does not rest: %+v, then %+v", p.Allocations, again.Allocations)
		}
	}
	c.t.Fatalf("the loop does not come to rest")
}

func (c *cluster) named(name string) state.VC {
	c.t.Helper()
	x, ok := c.Snapshot().VCNamed(name)
	if !ok {
		c.t.Fatalf("no virtual cluster %s", name)
	}
	return x
}

func (c *cluster) state(name string) state.VCState {
	c.t.Helper()
	x := c.named(name)
	return state.StateOf(x, c.Snapshot().VMsOf(x.ID))
}

func (c *cluster) yield(name string) float64 { c.t.Helper(); return state.YieldOf(c.named(name)) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

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
	c.settle()
	smaller := c.named("full")
	smaller.Groups = slices.Clone(smaller.Groups)
	smaller.Groups[0].Count = 2
	c.enact("scale down", loop.Scale(c.Snapshot(), smaller, c.env()).Plan)
	if p := loop.AdmitQueue(c.Snapshot(), c.env()); p != nil {
		t.Errorf("admitted to room that is still held: %+v", p)
	}
	c.settle()
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
	c.settle()
	if !near(c.yield("a"), 1) {
		t.Errorf("alone: %v", c.yield("a"))
	}
	c.create(vc("b", 0.25, group(2, 2, gib)))
	c.settle()
	if !near(c.yield("a"), 0.5) || !near(c.yield("b"), 0.5) {
		t.Errorf("together: %v %v", c.yield("a"), c.yield("b"))
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 2, Memory: gib})
	c.settle()
	if !near(c.yield("a"), 0.25) || !near(c.yield("b"), 0.25) {
		t.Errorf("with 2 cores gone to foreign VMs: %v %v", c.yield("a"), c.yield("b"))
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 3.9, Memory: 7 * gib})
	c.settle()
	if c.yield("a") > 0.026 || c.state("a") != state.VCDegraded {
		t.Errorf("with almost nothing left: %v, %s", c.yield("a"), c.state("a"))
	}
	if a := c.create(vc("late", 0, group(1, 0.1, gib/4))); a.Plan == nil || !a.Queued {
		t.Errorf("placed on a host that is beyond its memory: %+v", a)
	}
	c.host("h1", 4, 8*gib, state.Resources{CPU: 4, Memory: 0})
	c.settle()
	if c.yield("a") != 0 {
		t.Errorf("with no CPU left: %v", c.yield("a"))
	}
	c.host("h1", 4, 8*gib, state.Resources{})
	c.settle()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.VMs != 5 {
		t.Errorf("what stops is held: %+v", l)
	}
	c.settle()
	if !near(c.yield("b"), 1-0.05/4) && !near(c.yield("b"), 1) && c.yield("b") < 0.9 {
		t.Errorf("after a stopped: %v", c.yield("b"))
	}
	c.enact("delete", loop.Delete(c.Snapshot(), c.named("b"), c.env()).Plan)
	c.settle()
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
	c.settle()
	c.must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	c.create(vc("b", 0.5, group(3, 1, gib)))
	for _, vm := range c.Snapshot().VMsOf("vc-b") {
		if vm.Host != "h2" {
			t.Errorf("%s was placed on %s", vm.Name, vm.Host)
		}
	}
	c.settle() // and a stays where it is
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
	c.settle()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	c.settle()

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
		c.settle()
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
		c.settle()
		c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
		c.settle()
	}
}

// A VM with no disk of its own may start anywhere.
func TestNotPinned(t *testing.T) {
	c := newCluster(t, "h1", "h2")
	c.create(vc("a", 0.9, group(1, 3, 2*gib)))
	at := c.Snapshot().VMsOf("vc-a")[0].Host
	c.settle()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("a"), c.env()).Plan)
	c.settle()
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
	c.settle()
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
	c.settle()
	if !near(c.yield("a"), 4.0/7) || !near(c.yield("b"), 4.0/7) {
		t.Errorf("yields %v %v, want 4/7", c.yield("a"), c.yield("b"))
	}
	c.enact("down", scale(func(g *state.Group) { g.Count = 1 }).Plan)
	if vms := c.Snapshot().VMsOf("vc-a"); vms[0].Goal != state.GoalRun || vms[1].Goal != state.GoalDelete || vms[1].Frozen == 0 {
		t.Errorf("VMs %+v", vms)
	}
	c.settle()
	c.enact("less memory", scale(func(g *state.Group) { g.Memory = gib }).Plan)
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*gib+128*mib {
		t.Errorf("memory counts until the guest has let go: %+v", l)
	}
	c.settle()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 2*gib+128*mib || l.Reserve != gib {
		t.Errorf("and then it is kept in reserve: %+v", l)
	}
	c.enact("memory back", scale(func(g *state.Group) { g.Memory = 2 * gib }).Plan)
	c.settle()
	if l := c.Snapshot().LoadOf("h1"); l.Memory != 3*gib+128*mib || l.Reserve != 0 {
		t.Errorf("and given back: %+v", l)
	}
}

// Memory that grows in place is refused where the host has no room, with the reason.
func TestScaleMemoryWithoutRoom(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.5, group(2, 1, 3*gib)))
	c.settle()
	x := c.named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = gib
	c.enact("less memory", loop.Scale(c.Snapshot(), x, c.env()).Plan)
	c.settle()
	c.create(vc("b", 0.5, group(1, 1, 3*gib))) // fits beside what one of them may take back
	if c.state("b") == state.VCQueued {
		t.Fatal("b is queued")
	}
	c.settle()
	x = c.named("a")
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = 3 * gib
	if a := loop.Scale(c.Snapshot(), x, c.env()); a.Plan != nil || len(a.Decision.Hosts) != 1 {
		t.Errorf("9 GiB on 8: %+v", a)
	}
}

// A VM that ended by itself is not started again until somebody asks for it.
func TestFailedVMs(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 0.5, group(2, 1, gib)))
	c.settle()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.settle()
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Failed || c.state("a") != state.VCDegraded {
		t.Errorf("VM %s, VC %s", got.Phase, c.state("a"))
	}
	c.enact("start", loop.Start(c.Snapshot(), c.named("a"), c.env()).Plan)
	if got, _ := c.Snapshot().VM(vm.ID); got.Phase != state.Starting || got.Generation != 2 {
		t.Errorf("VM %+v", got)
	}
	c.settle()
	if c.state("a") != state.VCRunning {
		t.Errorf("VC %s", c.state("a"))
	}
}

// A VC of which some VMs run does not join the queue: what cannot be started is refused.
func TestStartWithoutRoomWhileSomeRun(t *testing.T) {
	c := newCluster(t, "h1")
	c.create(vc("a", 1, group(2, 1, gib)))
	c.create(vc("b", 1, group(2, 1, gib)))
	c.settle()
	vm := c.Snapshot().VMsOf("vc-a")[0]
	c.must(state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Failed}}})
	c.create(vc("c", 1, group(1, 1, gib)))
	c.settle()
	if a := loop.Start(c.Snapshot(), c.named("a"), c.env()); a.Plan != nil || a.Queued || len(a.Decision.Hosts) != 1 {
		t.Errorf("start: %+v, want a refusal with reasons", a)
	}
	if c.state("a") != state.VCDegraded {
		t.Errorf("a is %s", c.state("a"))
	}
}

// Whoever waits keeps the turn when asked again.
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

// On random clusters, whatever was done before: plans apply to the state they were made on, nothing that runs
// moves, limits and yields hold (enact), the loop comes to rest (decide), and equal states give equal plans.
func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"h1", "h2", "h3"}[:rapid.IntRange(1, 3).Draw(t, "hosts")]
		c := newCluster(t, hosts...)
		n := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		names := []string{"a", "b", "c", "d", "e"}
		for range rapid.IntRange(1, 40).Draw(t, "length") {
			name := rapid.SampledFrom(names).Draw(t, "VC")
			s := c.Snapshot()
			x, exists := s.VCNamed(name)
			x.Groups = slices.Clone(x.Groups)
			var a loop.Answer
			var again func() loop.Answer
			ids := c.ids
			switch what := rapid.SampledFrom([]string{"create", "create", "scale", "scale", "start", "stop", "delete", "host", "cordon", "fail", "follow", "follow", "decide"}).Draw(t, "what"); what {
			case "create":
				if exists {
					continue
				}
				var groups []state.Group
				for range 1 + n("groups", 1) {
					g := group(1+n("count", 4), float64(1+n("tenths", 20))/10, int64(1+n("quarters", 8))*gib/4)
					if n("disk", 2) == 0 {
						g.Image = "disk"
					}
					groups = append(groups, g)
				}
				y := vc(name, float64(n("min yield", 4))/4, groups...)
				y.ID = fmt.Sprintf("vc-%s-%d", name, c.index)
				again = func() loop.Answer { return loop.Create(s, y, c.env()) }
			case "scale":
				if !exists || x.Goal == state.GoalDelete || x.Goal == state.GoalStop && state.CountPhases(s.VMsOf(x.ID)).Stopping > 0 {
					continue
				}
				g := &x.Groups[n("group", len(x.Groups)-1)]
				switch n("which", 2) {
				case 0:
					g.Count = 1 + n("count", 4)
				case 1:
					g.CPU = float64(1+n("tenths", 20)) / 10
				case 2:
					g.Memory = int64(1+n("quarters", 8)) * gib / 4
					for _, vm := range s.VMsOf(x.ID) {
						if vm.Group == g.Name && vm.Holds() {
							g.Memory = min(g.Memory, vm.BootMemory)
						}
					}
				}
				again = func() loop.Answer { return loop.Scale(s, x, c.env()) }
			case "start":
				if !exists || x.Goal == state.GoalDelete || x.Goal == state.GoalStop && state.CountPhases(s.VMsOf(x.ID)).Stopping > 0 {
					continue
				}
				again = func() loop.Answer { return loop.Start(s, x, c.env()) }
			case "stop", "delete":
				if !exists || x.Goal == state.GoalDelete {
					continue
				}
				again = func() loop.Answer { return loop.Stop(s, x, c.env()) }
				if what == "delete" {
					again = func() loop.Answer { return loop.Delete(s, x, c.env()) }
				}
			case "host":
				c.host(rapid.SampledFrom(hosts).Draw(t, "host"), float64(n("cores", 8)), int64(n("memory", 8))*gib, state.Resources{CPU: float64(n("foreign", 2)), Memory: int64(n("foreign", 2)) * gib})
				continue
			case "cordon":
				c.must(state.KindHostCordon, state.HostCordon{Host: rapid.SampledFrom(hosts).Draw(t, "host"), Cordoned: n("cordon", 1) == 0})
				continue
			case "fail":
				if vms := s.VMs(); len(vms) > 0 {
					vm := rapid.SampledFrom(vms).Draw(t, "VM")
					c.must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Failed}}})
				}
				continue
			case "follow":
				for _, vm := range s.VMs() {
					if n("follow", 2) > 0 {
						c.follow(vm)
					}
				}
				continue
			case "decide":
				c.decide()
				continue
			}
			a = again()
			c.ids = ids
			if x, y := text(a), text(again()); x != y {
				t.Fatalf("two answers to one question:\n%s\n%s", x, y)
			}
			if a.Plan == nil {
				if a.Decision.Admitted || a.Decision.Summary == "" {
					t.Fatalf("refused without a reason: %+v", a)
				}
				continue
			}
			c.enact("request", a.Plan)
		}
		c.decide()
	})
}

// text is all that an answer says.
func text(a loop.Answer) string {
	b, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
