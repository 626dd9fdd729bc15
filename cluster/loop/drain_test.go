package loop_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// drained begins the drain of a host as control does.
func (c *cluster) drained(host string, d state.Drain) {
	c.t.Helper()
	h, _ := c.Snapshot().Host(host)
	d.State, d.Since = state.DrainRunning, c.env().Now
	if d.MaxBytes == 0 {
		d.MaxBytes = -1
	}
	c.must(state.KindDrain, state.HostDrain{Host: host, Drain: d, Version: h.Drain.Index})
}

// next is what is to be done about a drain, carried out.
func (c *cluster) next(host string, inventory loop.HostInventory) loop.DrainStep {
	c.t.Helper()
	return c.nextAt(host, inventory, c.env().Now)
}

func (c *cluster) nextAt(host string, inventory loop.HostInventory, now time.Time) loop.DrainStep {
	c.t.Helper()
	s := c.Snapshot()
	h, _ := s.Host(host)
	env := c.env()
	env.Now = now
	if inventory.Unavailable != "" {
		env.Unavailable = map[string]string{host: inventory.Unavailable}
	}
	step, err := loop.NextDrain(s, h, inventory, env, func(supersedes []string, keep map[string]string) *loop.Fleet {
		return loop.NewFleet(s, env, loop.FleetObservation{}, loop.FleetOptions{Supersedes: supersedes, Pinned: keep})
	})
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	switch {
	case step.Put != nil:
		c.must(state.KindDrain, step.Put)
	case step.Stop != nil:
		c.must(state.KindPlan, step.Stop)
	}
	return step
}

func (c *cluster) drainOf(host string) state.Drain {
	h, _ := c.Snapshot().Host(host)
	return h.Drain
}

// moves carries a step of a plan out, well or not.
func (c *cluster) moves(plan string, step int, arrives bool) {
	c.t.Helper()
	p, _ := c.Snapshot().MovePlan(plan)
	m := p.Steps[step]
	vm, _ := c.Snapshot().VM(m.VM)
	open := state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Open: true, ID: c.id(), Plan: plan, Step: step, Bytes: m.Bytes, MaxBytes: m.Allotment}
	c.must(state.KindMove, open)
	vm, _ = c.Snapshot().VM(m.VM)
	c.must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Arrived: arrives, Move: vm.Move, Text: "the network was cut", Bytes: m.Bytes})
}

// ends a plan as the executor does.
func (c *cluster) ends(plan string, as state.MovePlanState) {
	c.t.Helper()
	p, _ := c.Snapshot().MovePlan(plan)
	version := p.ModifyIndex
	p.State = as
	if as == state.MovesFailed {
		p.Steps = state.Skipped(p.Steps, "the plan failed")
	}
	c.must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: version})
}

var nothingRuns = loop.HostInventory{Listed: true}

func TestNextDrain(t *testing.T) {
	c := overfull(t, "a", "b", "d")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedStop})
	step := c.next("a", loop.HostInventory{})
	d := c.drainOf("a")
	p, ok := c.Snapshot().MovePlan(d.Plan)
	if step.Put == nil || !ok || len(p.Steps) != 2 || p.Kind != state.MovesDrain || p.Host != "a" || d.State != state.DrainRunning {
		t.Fatalf("%+v, plan %+v", step, p)
	}
	if again := c.next("a", loop.HostInventory{}); again.Put != nil || again.Stop != nil {
		t.Errorf("while moves go on: %+v", again)
	}
	c.moves(d.Plan, 0, true)
	c.moves(d.Plan, 1, true)
	c.ends(d.Plan, state.MovesDone)
	// Nothing is left by the state: the hypervisor has the last word.
	if c.next("a", loop.HostInventory{}); c.drainOf("a").State != state.DrainRunning || c.drainOf("a").Text == "" {
		t.Errorf("without its word: %+v", c.drainOf("a"))
	}
	if c.next("a", loop.HostInventory{Listed: true, Running: []string{"x-g0-0"}}); c.drainOf("a").State != state.DrainRunning || !strings.Contains(c.drainOf("a").Text, "x-g0-0") {
		t.Errorf("it lists one still: %+v", c.drainOf("a"))
	}
	if c.next("a", nothingRuns); c.drainOf("a").State != state.DrainDone {
		t.Errorf("%+v", c.drainOf("a"))
	}
	if step := c.next("a", loop.HostInventory{}); step.Put != nil {
		t.Errorf("after the end: %+v", step)
	}
}

// VMs that the cluster does not know keep a host from being reported as empty.
func TestNextDrainWithUnmanagedVMs(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.drained("a", state.Drain{})
	c.next("a", loop.HostInventory{Listed: true, Running: []string{"ek-odd"}, Unmanaged: []string{"ek-odd"}})
	if d := c.drainOf("a"); d.State != state.DrainBlocked || !strings.Contains(d.Text, "ek-odd") {
		t.Errorf("%+v", d)
	}
	// Once it is gone, the host is empty.
	if c.next("a", nothingRuns); c.drainOf("a").State != state.DrainDone {
		t.Errorf("%+v", c.drainOf("a"))
	}
}

// A host that falls silent is reported as silent, and does not keep its drain waiting for ever.
func TestNextDrainOfASilentHost(t *testing.T) {
	c := overfull(t, "a", "b")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedSkip})
	c.next("a", loop.HostInventory{})
	c.next("a", loop.HostInventory{Unavailable: "has not been heard of for 25s", UnavailableFor: time.Second})
	if d := c.drainOf("a"); d.State != state.DrainRunning || !strings.Contains(d.Text, "25s") {
		t.Errorf("%+v", d)
	}
	if c.next("a", loop.HostInventory{}); c.drainOf("a").Text != "" {
		t.Errorf("it answers again: %+v", c.drainOf("a"))
	}
	c.next("a", loop.HostInventory{Unavailable: "has not been heard of for 6m0s", UnavailableFor: 6 * time.Minute})
	d := c.drainOf("a")
	p, _ := c.Snapshot().MovePlan(d.Plan)
	if d.State != state.DrainBlocked || !strings.Contains(d.Text, "2 VMs are left") || p.State != state.MovesStopped {
		t.Errorf("%+v, plan %s", d, p.State)
	}
}

func TestNextDrainAtTheDeadline(t *testing.T) {
	for onBlocked, want := range map[string]state.DrainState{loop.OnBlockedStop: state.DrainStopped, loop.OnBlockedSkip: state.DrainBlocked, loop.OnBlockedShutdown: state.DrainRunning} {
		c := overfull(t, "a", "b")
		deadline := c.env().Now.Add(time.Hour)
		c.drained("a", state.Drain{OnBlocked: onBlocked, Deadline: deadline})
		c.next("a", loop.HostInventory{})
		if step := c.nextAt("a", loop.HostInventory{}, deadline.Add(-time.Minute)); step.Put != nil || step.Stop != nil {
			t.Fatalf("before: %+v", step)
		}
		c.nextAt("a", loop.HostInventory{}, deadline)
		d := c.drainOf("a")
		p, _ := c.Snapshot().MovePlan(d.Plan)
		if d.State != want || p.State != state.MovesStopped || !strings.Contains(d.Text, "deadline") {
			t.Errorf("%s: %+v, plan %s", onBlocked, d, p.State)
		}
		step := c.nextAt("a", loop.HostInventory{}, deadline)
		if stops := step.Stop != nil; stops != (onBlocked == loop.OnBlockedShutdown) {
			t.Errorf("%s: %+v", onBlocked, step)
		}
		for _, vm := range c.Snapshot().VMs() {
			if down := vm.Goal == state.GoalStop && vm.Phase == state.Stopping && strings.Contains(vm.Reason, "deadline"); down != (onBlocked == loop.OnBlockedShutdown) {
				t.Errorf("%s: %+v", onBlocked, vm)
			}
		}
	}
}

// A VM whose moves fail twice stays, and is named; the others leave.
func TestNextDrainAfterFailures(t *testing.T) {
	c := overfull(t, "a", "b", "d")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedSkip})
	victim := ""
	later := c.env().Now
	for range 3 {
		c.nextAt("a", loop.HostInventory{}, later)
		d := c.drainOf("a")
		p, _ := c.Snapshot().MovePlan(d.Plan)
		if d.State != state.DrainRunning || p.State != state.MovesRunning {
			break
		}
		if victim == "" {
			victim = p.Steps[0].VM
		}
		at := slices.IndexFunc(p.Steps, func(s state.MoveStep) bool { return s.VM == victim })
		if at < 0 {
			for i := range p.Steps {
				c.moves(d.Plan, i, true)
			}
			c.ends(d.Plan, state.MovesDone)
			continue
		}
		c.moves(d.Plan, at, false)
		c.ends(d.Plan, state.MovesFailed)
		if step := c.next("a", loop.HostInventory{}); step.Put != nil {
			t.Error("planned again at once")
		}
		later = c.env().Now.Add(time.Minute)
	}
	step := c.nextAt("a", loop.HostInventory{}, later)
	d := c.drainOf("a")
	vm, _ := c.Snapshot().VM(victim)
	if d.State != state.DrainBlocked || !strings.Contains(d.Text, vm.Name) || !strings.Contains(d.Text, "network was cut") || len(step.Blockers) != 1 || d.Moved == 0 {
		t.Errorf("%+v, %+v", d, step.Blockers)
	}
	if n := len(c.Snapshot().VMsOn("a")); n != 1 {
		t.Errorf("%d VMs are left", n)
	}
}

// A plan that an operator stops is not made again.
func TestNextDrainWithAStoppedPlan(t *testing.T) {
	c := overfull(t, "a", "b")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedSkip})
	c.next("a", loop.HostInventory{})
	c.ends(c.drainOf("a").Plan, state.MovesStopped)
	if c.next("a", loop.HostInventory{}); c.drainOf("a").State != state.DrainStopped {
		t.Errorf("%+v", c.drainOf("a"))
	}
}

// A VM that is on its way to the host when the drain begins leaves as soon as it has come.
func TestNextDrainOfLateComers(t *testing.T) {
	c := overfull(t, "a", "b", "d")
	vm := c.Snapshot().VMsOn("a")[0]
	c.must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: "b", Open: true, ID: c.id()})
	c.drained("b", state.Drain{})
	c.next("b", nothingRuns)
	if d := c.drainOf("b"); d.State != state.DrainRunning || !strings.Contains(d.Text, vm.Name) {
		t.Fatalf("%+v", d)
	}
	vm, _ = c.Snapshot().VM(vm.ID)
	c.must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: "b", Arrived: true, Move: vm.Move})
	c.next("b", loop.HostInventory{})
	p, _ := c.Snapshot().MovePlan(c.drainOf("b").Plan)
	if len(p.Steps) != 1 || p.Steps[0].VM != vm.ID || p.Steps[0].From != "b" {
		t.Errorf("%+v", p)
	}
}

// Disks that lie only on their host keep VMs there, and the answer says what would help.
func TestDrainOfLocalDisks(t *testing.T) {
	c := newCluster(t, "a", "b")
	g := group(1, 1, gib)
	g.Image = "disk"
	c.enact("x", loop.Create(c.Snapshot(), vc("x", 0, g), c.env()).Plan)
	c.run()
	host := c.Snapshot().VMs()[0].Host
	plan := func(o loop.FleetOptions) loop.DrainAnswer {
		a, err := loop.Drain(loop.NewFleet(c.Snapshot(), c.env(), loop.FleetObservation{}, o), host, loop.DrainOptions{Budget: -1})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := plan(loop.FleetOptions{}); len(a.Blockers) != 1 || !strings.Contains(a.Blockers[0].Why, "not shared") || !strings.Contains(a.Blockers[0].Advice[0], "moves.copyStorage") {
		t.Errorf("%+v", a.Blockers)
	}
	if a := plan(loop.FleetOptions{CopyStorage: true}); len(a.Blockers) != 0 || len(a.Plan.Steps) != 1 || !a.Plan.Steps[0].CopyStorage {
		t.Errorf("%+v", a)
	}
}

// As long as a source has not reported what it sent, all that its move was allowed counts against the bytes of a drain.
func TestNextDrainCountsWhatWasNotReported(t *testing.T) {
	c := overfull(t, "a", "b", "d")
	const limit = 20 * gib
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedSkip, MaxBytes: limit})
	c.next("a", loop.HostInventory{})
	first := c.drainOf("a").Plan
	p, _ := c.Snapshot().MovePlan(first)
	c.moves(first, 0, false)
	c.moves(first, 1, true) // by the target's word
	c.ends(first, state.MovesFailed)
	now := c.env().Now
	if step := c.nextAt("a", loop.HostInventory{}, now.Add(2*time.Second)); step.Put != nil {
		t.Errorf("the source may report at any moment: %+v", step.Put)
	}
	c.nextAt("a", loop.HostInventory{}, now.Add(time.Minute))
	again, _ := c.Snapshot().MovePlan(c.drainOf("a").Plan)
	if sent := p.Steps[0].Bytes + p.Steps[1].Allotment; again.ID == first || again.Budget != limit-sent {
		t.Errorf("budget %d of %d after at most %d", again.Budget, int64(limit), sent)
	}
}

// For a target that is silent for a moment no VM is shut down, and no drain is given up.
func TestNextDrainWithSilentTargets(t *testing.T) {
	c := overfull(t, "a", "b")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedShutdown})
	at := func(later time.Duration) loop.DrainStep {
		s := c.Snapshot()
		h, _ := s.Host("a")
		env := c.env()
		env.Now, env.Unavailable = h.Drain.Since.Add(later), map[string]string{"b": "has not been heard of for 3s"}
		step, err := loop.NextDrain(s, h, loop.HostInventory{}, env, func(supersedes []string, keep map[string]string) *loop.Fleet {
			return loop.NewFleet(s, env, loop.FleetObservation{}, loop.FleetOptions{Supersedes: supersedes, Pinned: keep})
		})
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	if step := at(time.Second); step.Stop != nil || step.Put == nil || step.Put.Drain.State != state.DrainRunning ||
		step.Put.Drain.Text != "waits for host b, which may take VMs: it has not been heard of for 3s" {
		t.Errorf("after a second: %+v", step)
	}
	if step := at(6 * time.Minute); step.Stop == nil {
		t.Errorf("after 6 minutes: %+v", step)
	}
}

// A drain that waits for a move to a silent host reports that, and what ends the wait.
func TestNextDrainWithAStuckMove(t *testing.T) {
	c := overfull(t, "a", "b")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedStop})
	c.next("a", loop.HostInventory{})
	p, _ := c.Snapshot().MovePlan(c.drainOf("a").Plan)
	m := p.Steps[0]
	vm, _ := c.Snapshot().VM(m.VM)
	c.must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Open: true, ID: c.id(), Plan: p.ID, Bytes: m.Bytes, MaxBytes: m.Allotment})
	at := func(out map[string]string) string {
		s := c.Snapshot()
		h, _ := s.Host("a")
		env := c.env()
		env.Unavailable = out
		step, err := loop.NextDrain(s, h, loop.HostInventory{}, env, nil)
		if err != nil {
			t.Fatal(err)
		}
		if step.Put != nil {
			c.must(state.KindDrain, step.Put)
		}
		return c.drainOf("a").Text
	}
	if got := at(nil); got != "" {
		t.Errorf("while it moves: %q", got)
	}
	want := "waits for the move of VM " + vm.Name + " to host b, which has not been heard of for 3s: it ends once the host answers, is fenced, or is confirmed dead"
	if got := at(map[string]string{"b": "has not been heard of for 3s"}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := at(nil); got != "" {
		t.Errorf("once it answers: %q", got)
	}
}
