package drain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// drained begins the drain of a host as control does.
func drained(c *scheduling.Cluster, host string, d state.Drain) {
	c.T.Helper()
	h, _ := c.Snapshot().Host(host)
	d.State, d.Since = state.DrainRunning, c.Env().Now
	if d.MaxBytes == 0 {
		d.MaxBytes = -1
	}
	c.Must(state.KindDrain, state.HostDrain{Host: host, Drain: d, Version: h.Drain.Index})
}

// next is what is to be done about a drain, carried out.
func next(c *scheduling.Cluster, host string, inventory drain.HostInventory) drain.Step {
	c.T.Helper()
	return nextAt(c, host, inventory, c.Env().Now)
}

func nextAt(c *scheduling.Cluster, host string, inventory drain.HostInventory, now time.Time) drain.Step {
	c.T.Helper()
	s := c.Snapshot()
	h, _ := s.Host(host)
	env := c.Env()
	env.Now = now
	if inventory.Unavailable != "" {
		env.Unavailable = map[string]string{host: inventory.Unavailable}
	}
	step, err := drain.Next(s, h, inventory, env, func(supersedes []string, keep map[string]string) *moves.Fleet {
		return moves.NewFleet(s, env, moves.Observation{}, moves.Options{Supersedes: supersedes, Pinned: keep})
	})
	if err != nil {
		c.T.Fatalf("%v", err)
	}
	switch {
	case step.Put != nil:
		c.Must(state.KindDrain, step.Put)
	case step.Stop != nil:
		c.Must(state.KindPlan, step.Stop)
	}
	return step
}

func drainOf(c *scheduling.Cluster, host string) state.Drain {
	h, _ := c.Snapshot().Host(host)
	return h.Drain
}

// carryOut carries a step of a plan out, well or not.
func carryOut(c *scheduling.Cluster, plan string, step int, arrives bool) {
	c.T.Helper()
	p, _ := c.Snapshot().MovePlan(plan)
	m := p.Steps[step]
	vm, _ := c.Snapshot().VM(m.VM)
	open := state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Open: true, ID: c.ID(), Plan: plan, Step: step, Bytes: m.Bytes, MaxBytes: m.Allotment}
	c.Must(state.KindMove, open)
	vm, _ = c.Snapshot().VM(m.VM)
	c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Arrived: arrives, Move: c.MoveOf(vm.ID), Text: "the network was cut", Bytes: m.Bytes})
}

// ends a plan as the executor does.
func ends(c *scheduling.Cluster, plan string, as state.MovePlanState) {
	c.T.Helper()
	p, _ := c.Snapshot().MovePlan(plan)
	version := p.ModifyIndex
	p.State = as
	if as == state.MovesFailed {
		p.Steps = state.Skipped(p.Steps, "the plan failed")
	}
	c.Must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: version})
}

var nothingRuns = drain.HostInventory{Listed: true}

func TestNextDrain(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b", "d")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedStop})
	step := next(c, "a", drain.HostInventory{})
	d := drainOf(c, "a")
	p, ok := c.Snapshot().MovePlan(d.Plan)
	if step.Put == nil || !ok || len(p.Steps) != 2 || p.Kind != state.MovesDrain || p.Host != "a" || d.State != state.DrainRunning {
		t.Fatalf("%+v, plan %+v", step, p)
	}
	if again := next(c, "a", drain.HostInventory{}); again.Put != nil || again.Stop != nil {
		t.Errorf("while moves go on: %+v", again)
	}
	carryOut(c, d.Plan, 0, true)
	carryOut(c, d.Plan, 1, true)
	ends(c, d.Plan, state.MovesDone)
	// Nothing is left by the state: the hypervisor has the last word.
	if next(c, "a", drain.HostInventory{}); drainOf(c, "a").State != state.DrainRunning || drainOf(c, "a").Text == "" {
		t.Errorf("without its word: %+v", drainOf(c, "a"))
	}
	if next(c, "a", drain.HostInventory{Listed: true, Running: []string{"x-g0-0"}}); drainOf(c, "a").State != state.DrainRunning || !strings.Contains(drainOf(c, "a").Text, "x-g0-0") {
		t.Errorf("it lists one still: %+v", drainOf(c, "a"))
	}
	if next(c, "a", nothingRuns); drainOf(c, "a").State != state.DrainDone {
		t.Errorf("%+v", drainOf(c, "a"))
	}
	if step := next(c, "a", drain.HostInventory{}); step.Put != nil {
		t.Errorf("after the end: %+v", step)
	}
}

// VMs that the cluster does not know keep a host from being reported as empty.
func TestNextDrainWithUnmanagedVMs(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b")
	drained(c, "a", state.Drain{})
	next(c, "a", drain.HostInventory{Listed: true, Running: []string{"ek-odd"}, Unmanaged: []string{"ek-odd"}})
	if d := drainOf(c, "a"); d.State != state.DrainBlocked || !strings.Contains(d.Text, "ek-odd") {
		t.Errorf("%+v", d)
	}
	// Once it is gone, the host is empty.
	if next(c, "a", nothingRuns); drainOf(c, "a").State != state.DrainDone {
		t.Errorf("%+v", drainOf(c, "a"))
	}
}

// A host that falls silent is reported as silent, and does not keep its drain waiting for ever.
func TestNextDrainOfASilentHost(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedSkip})
	next(c, "a", drain.HostInventory{})
	next(c, "a", drain.HostInventory{Unavailable: "has not been heard of for 25s", UnavailableFor: time.Second})
	if d := drainOf(c, "a"); d.State != state.DrainRunning || !strings.Contains(d.Text, "25s") {
		t.Errorf("%+v", d)
	}
	if next(c, "a", drain.HostInventory{}); drainOf(c, "a").Text != "" {
		t.Errorf("it answers again: %+v", drainOf(c, "a"))
	}
	next(c, "a", drain.HostInventory{Unavailable: "has not been heard of for 6m0s", UnavailableFor: 6 * time.Minute})
	d := drainOf(c, "a")
	p, _ := c.Snapshot().MovePlan(d.Plan)
	if d.State != state.DrainBlocked || !strings.Contains(d.Text, "2 VMs are left") || p.State != state.MovesStopped {
		t.Errorf("%+v, plan %s", d, p.State)
	}
}

func TestNextDrainAtTheDeadline(t *testing.T) {
	for onBlocked, want := range map[string]state.DrainState{drain.OnBlockedStop: state.DrainStopped, drain.OnBlockedSkip: state.DrainBlocked, drain.OnBlockedShutdown: state.DrainRunning} {
		c := scheduling.Overfull(t, "a", "b")
		deadline := c.Env().Now.Add(time.Hour)
		drained(c, "a", state.Drain{OnBlocked: onBlocked, Deadline: deadline})
		next(c, "a", drain.HostInventory{})
		if step := nextAt(c, "a", drain.HostInventory{}, deadline.Add(-time.Minute)); step.Put != nil || step.Stop != nil {
			t.Fatalf("before: %+v", step)
		}
		nextAt(c, "a", drain.HostInventory{}, deadline)
		d := drainOf(c, "a")
		p, _ := c.Snapshot().MovePlan(d.Plan)
		if d.State != want || p.State != state.MovesStopped || !strings.Contains(d.Text, "deadline") {
			t.Errorf("%s: %+v, plan %s", onBlocked, d, p.State)
		}
		step := nextAt(c, "a", drain.HostInventory{}, deadline)
		if stops := step.Stop != nil; stops != (onBlocked == drain.OnBlockedShutdown) {
			t.Errorf("%s: %+v", onBlocked, step)
		}
		for _, vm := range c.Snapshot().VMs() {
			if down := vm.Goal == state.GoalStop && vm.Phase == state.Stopping && strings.Contains(vm.Reason, "deadline"); down != (onBlocked == drain.OnBlockedShutdown) {
				t.Errorf("%s: %+v", onBlocked, vm)
			}
		}
	}
}

// A VM whose moves fail twice stays, and is named; the others leave.
func TestNextDrainAfterFailures(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b", "d")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedSkip})
	victim := ""
	later := c.Env().Now
	for range 3 {
		nextAt(c, "a", drain.HostInventory{}, later)
		d := drainOf(c, "a")
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
				carryOut(c, d.Plan, i, true)
			}
			ends(c, d.Plan, state.MovesDone)
			continue
		}
		carryOut(c, d.Plan, at, false)
		ends(c, d.Plan, state.MovesFailed)
		if step := next(c, "a", drain.HostInventory{}); step.Put != nil {
			t.Error("planned again at once")
		}
		later = c.Env().Now.Add(time.Minute)
	}
	step := nextAt(c, "a", drain.HostInventory{}, later)
	d := drainOf(c, "a")
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
	c := scheduling.Overfull(t, "a", "b")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedSkip})
	next(c, "a", drain.HostInventory{})
	ends(c, drainOf(c, "a").Plan, state.MovesStopped)
	if next(c, "a", drain.HostInventory{}); drainOf(c, "a").State != state.DrainStopped {
		t.Errorf("%+v", drainOf(c, "a"))
	}
}

// A VM that is on its way to the host when the drain begins leaves as soon as it has come.
func TestNextDrainOfLateComers(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b", "d")
	vm := c.Snapshot().VMsOn("a")[0]
	c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: "b", Open: true, ID: c.ID()})
	drained(c, "b", state.Drain{})
	next(c, "b", nothingRuns)
	if d := drainOf(c, "b"); d.State != state.DrainRunning || !strings.Contains(d.Text, vm.Name) {
		t.Fatalf("%+v", d)
	}
	vm, _ = c.Snapshot().VM(vm.ID)
	c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: "b", Arrived: true, Move: c.MoveOf(vm.ID)})
	next(c, "b", drain.HostInventory{})
	p, _ := c.Snapshot().MovePlan(drainOf(c, "b").Plan)
	if len(p.Steps) != 1 || p.Steps[0].VM != vm.ID || p.Steps[0].From != "b" {
		t.Errorf("%+v", p)
	}
}

// Disks that lie only on their host keep VMs there, and the answer says what would help.
func TestDrainOfLocalDisks(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b")
	g := scheduling.Group(1, 1, scheduling.GiB)
	g.Image = "disk"
	c.Enact("x", admission.Create(c.Snapshot(), scheduling.VC("x", 0, g), c.Env()).Plan)
	c.Run()
	host := c.Snapshot().VMs()[0].Host
	plan := func(o moves.Options) drain.Answer {
		a, err := drain.Plan(moves.NewFleet(c.Snapshot(), c.Env(), moves.Observation{}, o), host, drain.Options{Budget: -1})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := plan(moves.Options{}); len(a.Blockers) != 1 || !strings.Contains(a.Blockers[0].Why, "not shared") || !strings.Contains(a.Blockers[0].Advice[0], "moves.copyStorage") {
		t.Errorf("%+v", a.Blockers)
	}
	if a := plan(moves.Options{CopyStorage: true}); len(a.Blockers) != 0 || len(a.Plan.Steps) != 1 || !a.Plan.Steps[0].CopyStorage {
		t.Errorf("%+v", a)
	}
}

// As long as a source has not reported what it sent, all that its move was allowed counts against the bytes of a drain.
func TestNextDrainCountsWhatWasNotReported(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b", "d")
	const limit = 20 * scheduling.GiB
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedSkip, MaxBytes: limit})
	next(c, "a", drain.HostInventory{})
	first := drainOf(c, "a").Plan
	p, _ := c.Snapshot().MovePlan(first)
	carryOut(c, first, 0, false)
	carryOut(c, first, 1, true) // by the target's word
	ends(c, first, state.MovesFailed)
	now := c.Env().Now
	if step := nextAt(c, "a", drain.HostInventory{}, now.Add(2*time.Second)); step.Put != nil {
		t.Errorf("the source may report at any moment: %+v", step.Put)
	}
	nextAt(c, "a", drain.HostInventory{}, now.Add(time.Minute))
	again, _ := c.Snapshot().MovePlan(drainOf(c, "a").Plan)
	if sent := p.Steps[0].Bytes + p.Steps[1].Allotment; again.ID == first || again.Budget != limit-sent {
		t.Errorf("budget %d of %d after at most %d", again.Budget, int64(limit), sent)
	}
}

// For a target that is silent for a moment no VM is shut down, and no drain is given up.
func TestNextDrainWithSilentTargets(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedShutdown})
	at := func(later time.Duration) drain.Step {
		s := c.Snapshot()
		h, _ := s.Host("a")
		env := c.Env()
		env.Now, env.Unavailable = h.Drain.Since.Add(later), map[string]string{"b": "has not been heard of for 3s"}
		step, err := drain.Next(s, h, drain.HostInventory{}, env, func(supersedes []string, keep map[string]string) *moves.Fleet {
			return moves.NewFleet(s, env, moves.Observation{}, moves.Options{Supersedes: supersedes, Pinned: keep})
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
	c := scheduling.Overfull(t, "a", "b")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedStop})
	next(c, "a", drain.HostInventory{})
	p, _ := c.Snapshot().MovePlan(drainOf(c, "a").Plan)
	m := p.Steps[0]
	vm, _ := c.Snapshot().VM(m.VM)
	c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: m.To, Open: true, ID: c.ID(), Plan: p.ID, Bytes: m.Bytes, MaxBytes: m.Allotment})
	at := func(out map[string]string) string {
		s := c.Snapshot()
		h, _ := s.Host("a")
		env := c.Env()
		env.Unavailable = out
		step, err := drain.Next(s, h, drain.HostInventory{}, env, nil)
		if err != nil {
			t.Fatal(err)
		}
		if step.Put != nil {
			c.Must(state.KindDrain, step.Put)
		}
		return drainOf(c, "a").Text
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
