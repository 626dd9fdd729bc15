package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// calm is settings under which nothing moves by itself, but for drains.
func calm(c *testCluster, change ...func(*state.MoveSettings)) {
	c.t.Helper()
	if _, err := c.Settings(c.t.Context(), func(s *state.Settings) error {
		s.Moves.Mode = state.MovesOff
		for _, f := range change {
			f(&s.Moves)
		}
		return nil
	}, leader.Call{}); err != nil {
		c.t.Fatal(err)
	}
}

// drainIs waits until a drain has come to a state.
func (c *testCluster) drainIs(host string, want state.DrainState) *leader.View {
	c.t.Helper()
	return c.eventually(fmt.Sprintf("the drain of %s is %s", host, want), func(v *leader.View) bool {
		h, _ := v.Host(host)
		return h.Drain.State == want
	})
}

func on(v *leader.View, host string) []state.VM {
	return slices.DeleteFunc(v.VMsOn(host), func(vm state.VM) bool { return !vm.ConsumesResources() })
}

// The main job: a host is drained while it works, VMs of other hosts run on, and only the hypervisor's list proves that the
// host is empty.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 3)
		c := startCluster(t, scratch.Dir(t), world, 3)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 6, 0.5, 512*mib), leader.Call{}))
		before, err := c.Empty(ctx, "h1")
		if err != nil || before.Empty || len(before.VMs) == 0 {
			t.Fatalf("before: %+v, %v", before, err)
		}
		index := c.state.Snapshot().Index()
		dry, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{DryRun: true})
		if err != nil || dry.Plan.ID != "" || len(dry.Plan.Steps) != len(before.VMs) || len(dry.Blockers) != 0 || c.state.Snapshot().Index() != index {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		call := leader.Call{IdempotencyKey: "d1"}
		r, err := c.Drain(ctx, "h1", leader.DrainRequest{Reason: "new memory", By: "ops"}, call)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Drain(ctx, "h1", leader.DrainRequest{Reason: "new memory", By: "ops"}, call)
		if err != nil || !again.Replayed || again.Operation.ID != r.Operation.ID {
			t.Errorf("the same request again: %+v, %v", again, err)
		}
		v := c.drainIs("h1", state.DrainDone)
		h, _ := v.Host("h1")
		if !h.Cordoned || len(on(v, "h1")) > 0 || v.Progress(r.Operation).State != state.OpDone {
			t.Errorf("host %+v, progress %+v", h, v.Progress(r.Operation))
		}
		if after, err := c.Empty(ctx, "h1"); err != nil || !after.Empty {
			t.Errorf("right after: %+v, %v", after, err)
		}
		v = c.eventually("what every move sent is reported", func(v *leader.View) bool {
			view := v.DrainView(h)
			return len(view.VMs) == len(before.VMs) && !slices.ContainsFunc(view.VMs, func(vm leader.DrainVM) bool { return vm.BytesMoved == 0 })
		})
		view := v.DrainView(h)
		if view.BytesMoved == 0 || view.BytesMoved > dry.Plan.Bytes {
			t.Errorf("%+v; %d bytes were predicted", view, dry.Plan.Bytes)
		}
		for _, vm := range view.VMs {
			if vm.State != "done" || vm.To == "" || vm.VC != "a" {
				t.Errorf("%+v", vm)
			}
		}
		after, err := c.Empty(ctx, "h1")
		if err != nil || !after.Empty || len(after.VMs)+len(after.Unmanaged) > 0 || after.At.IsZero() {
			t.Errorf("after: %+v, %v", after, err)
		}
		vms, err := world.Host("h1").List(ctx)
		if err != nil || len(vms) > 0 {
			t.Errorf("the hypervisor lists %v, %v", vms, err)
		}
		for _, vm := range v.VMs() {
			if vm.Generation != 1 || vm.Phase != state.Running {
				t.Errorf("VM %s was stopped: %+v", vm.Name, vm)
			}
		}
		// New VMs go elsewhere, until it takes some again; nothing is moved back.
		v = c.done(c.Create(ctx, vc("b", 3, 0.5, 512*mib), leader.Call{}))
		if len(on(v, "h1")) > 0 {
			t.Error("a drained host got a VM")
		}
		if err := c.Cordon(ctx, "h1", false, "", false); !errors.Is(err, leader.ErrConflict) {
			t.Errorf("uncordon of a drained host: %v", err)
		}
		if err := c.Undrain(ctx, "h1", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v = c.done(c.Create(ctx, vc("d", 3, 2, 512*mib), leader.Call{}))
		if h, _ := v.Host("h1"); h.Cordoned || h.Drain.State != "" || len(on(v, "h1")) == 0 {
			t.Errorf("after undrain: %+v", h)
		}
		noHarm(t, world, 4, 8<<30)
	})
}

// pinned is a VC whose VMs can only be on one host.
func pinned(name, host string) state.VC {
	x := vc(name, 1, 0.5, 512*mib)
	x.Groups[0].Affinity.Require = []string{"host:" + host}
	return x
}

// A VM that cannot move is named before anything moves; the other options do what their names say.
func TestDrainWithAVMThatCannotMove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, pinned("pin", "h1"), leader.Call{}))
		x := vc("free", 2, 0.5, 512*mib)
		x.Groups[0].Affinity.Prefer = []string{"host:h1"}
		v := c.done(c.Create(ctx, x, leader.Call{}))
		if len(on(v, "h1")) != 3 {
			t.Fatalf("%d VMs on h1", len(on(v, "h1")))
		}
		index := c.state.Snapshot().Index()
		var blocked *leader.Blocked
		_, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{})
		if !errors.As(err, &blocked) || len(blocked.Blockers) != 1 || blocked.Blockers[0].VM != "pin-g-0" || blocked.Blockers[0].VC != "pin" || !strings.Contains(blocked.Blockers[0].Why, "require host:h1") || len(blocked.Blockers[0].Advice) == 0 {
			t.Fatalf("%v", err)
		}
		v, _ = c.View(ctx, false)
		if h, _ := v.Host("h1"); h.Cordoned || h.Drain.State != "" || v.Index() != index {
			t.Error("a refused drain changed something")
		}
		r, err := c.Drain(ctx, "h1", leader.DrainRequest{OnBlocked: drain.OnBlockedSkip}, leader.Call{})
		if err != nil || len(r.Blockers) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		v = c.drainIs("h1", state.DrainBlocked)
		h, _ := v.Host("h1")
		if len(on(v, "h1")) != 1 || !strings.Contains(h.Drain.Text, "pin-g-0") || v.Progress(r.Operation).State != state.OpFailed {
			t.Errorf("%+v: %+v", h.Drain, v.Progress(r.Operation))
		}
		if view := v.DrainView(h); len(view.VMs) != 3 || !slices.ContainsFunc(view.VMs, func(r leader.DrainVM) bool { return r.VM == "pin-g-0" && r.State == "stays" && r.Text != "" }) {
			t.Errorf("%+v", view.VMs)
		}
		if e, _ := c.Empty(ctx, "h1"); e.Empty {
			t.Error("it is said to be empty")
		}
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{OnBlocked: drain.OnBlockedShutdown}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v = c.drainIs("h1", state.DrainDone)
		vm, _ := v.VMNamed("pin-g-0")
		p, _ := v.VCNamed("pin")
		if vm.Phase != state.Stopped || !strings.Contains(vm.Reason, "h1") || v.VCView(p).State != state.VCFailed || v.VCView(p).Reason == "" {
			t.Errorf("VM %+v, virtual cluster %+v", vm, v.VCView(p))
		}
		// It stays down until a user starts it, where it may run.
		var refused *leader.Refused
		p.OnFull = state.Reject
		if _, err := c.Start(ctx, "pin", leader.Call{}); err != nil && !errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
		if err := c.Undrain(ctx, "h1", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		c.done(c.Start(ctx, "pin", leader.Call{}))
		noHarm(t, world, 4, 8<<30)
	})
}

// All other hosts are full: nothing moves, and the answer names what is short.
func TestDrainWhereAllHostsAreFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 3), 3)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 3, 1, 6144*mib), leader.Call{}))
		var blocked *leader.Blocked
		_, err := c.Drain(ctx, "h2", leader.DrainRequest{}, leader.Call{})
		if !errors.As(err, &blocked) || !strings.Contains(err.Error(), "too little memory") || !strings.Contains(strings.Join(blocked.Blockers[0].Advice, ","), "free ") {
			t.Errorf("%v", err)
		}
	})
}

// VMs that must be apart, and too few hosts for them.
func TestDrainWithTooFewHostsForApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 3), 3)
		calm(c)
		ctx := t.Context()
		x := vc("db", 3, 0.5, 512*mib)
		x.Groups[0].Affinity.Spread = "host"
		c.done(c.Create(ctx, x, leader.Call{}))
		var blocked *leader.Blocked
		if _, err := c.Drain(ctx, "h3", leader.DrainRequest{}, leader.Call{}); !errors.As(err, &blocked) || !strings.Contains(blocked.Blockers[0].Why, "apart from") {
			t.Errorf("%v", err)
		}
		batches, stuck, err := c.DrainBatches(ctx)
		if err != nil || len(batches) != 0 || len(stuck) != 3 {
			t.Errorf("%+v %+v %v", batches, stuck, err)
		}
	})
}

// Undrain in the middle: what is on its way arrives, the rest stays.
func TestUndrainInTheMiddle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		calm(c, func(m *state.MoveSettings) { m.PerHost = 1 })
		ctx := t.Context()
		x := vc("a", 6, 0.25, 512*mib)
		x.Groups[0].Affinity.Prefer = []string{"host:h1"}
		c.done(c.Create(ctx, x, leader.Call{}))
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		c.eventually("one has left", func(v *leader.View) bool { return len(on(v, "h2")) > 0 })
		if err := c.Undrain(ctx, "h1", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v := c.eventually("moves have ended", func(v *leader.View) bool {
			return !slices.ContainsFunc(v.VMs(), func(vm state.VM) bool { return vm.MovingTo != "" })
		})
		if len(on(v, "h1")) == 0 || len(v.RunningMovePlans()) > 0 {
			t.Errorf("%d VMs left, %d plans run", len(on(v, "h1")), len(v.RunningMovePlans()))
		}
		if h, _ := v.Host("h1"); h.Cordoned || h.Drain != (state.Drain{}) {
			t.Errorf("%+v", h)
		}
		noHarm(t, world, 4, 8<<30)
	})
}

// The server is stopped in the middle: the next one goes on from the state alone.
func TestDrainGoesOnUnderANewLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world, dir := newWorld(t, 2), scratch.Dir(t)
		c := startCluster(t, dir, world, 2)
		calm(c, func(m *state.MoveSettings) { m.PerHost = 1 })
		ctx := t.Context()
		x := vc("a", 6, 0.25, 512*mib)
		x.Groups[0].Affinity.Prefer = []string{"host:h1"}
		c.done(c.Create(ctx, x, leader.Call{}))
		r, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{})
		if err != nil {
			t.Fatal(err)
		}
		c.eventually("one has left", func(v *leader.View) bool { return len(on(v, "h2")) > 0 })
		c.stop()
		c = startCluster(t, dir, world, 2)
		v := c.drainIs("h1", state.DrainDone)
		if v.Progress(r.Operation).State != state.OpDone || len(on(v, "h2")) != 6 {
			t.Errorf("%+v, %d VMs on h2", v.Progress(r.Operation), len(on(v, "h2")))
		}
		for _, vm := range v.VMs() {
			if vm.Generation != 1 {
				t.Errorf("VM %s was started %d times", vm.Name, vm.Generation)
			}
		}
		noHarm(t, world, 4, 8<<30)
	})
}

// A deadline that passes at once, with each way of going on.
func TestDrainDeadline(t *testing.T) {
	for _, onBlocked := range []string{drain.OnBlockedStop, drain.OnBlockedSkip, drain.OnBlockedShutdown} {
		t.Run(onBlocked, bubbled(func(t *testing.T) {
			world := newWorld(t, 2)
			c := startCluster(t, scratch.Dir(t), world, 2)
			calm(c, func(m *state.MoveSettings) { m.PerHost = 1 })
			ctx := t.Context()
			x := vc("a", 6, 0.25, 512*mib)
			x.Groups[0].Affinity.Prefer = []string{"host:h1"}
			c.done(c.Create(ctx, x, leader.Call{}))
			r, err := c.Drain(ctx, "h1", leader.DrainRequest{Deadline: time.Millisecond, OnBlocked: onBlocked}, leader.Call{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]state.DrainState{drain.OnBlockedStop: state.DrainStopped, drain.OnBlockedSkip: state.DrainBlocked, drain.OnBlockedShutdown: state.DrainDone}[onBlocked]
			c.drainIs("h1", want)
			v := c.eventually("moves have ended", func(v *leader.View) bool {
				return !slices.ContainsFunc(v.VMs(), func(vm state.VM) bool { return vm.MovingTo != "" })
			})
			h, _ := v.Host("h1")
			down := 0
			for _, vm := range v.VMs() {
				if vm.Phase == state.Stopped {
					down++
				}
			}
			switch onBlocked {
			case drain.OnBlockedShutdown:
				if down == 0 || len(on(v, "h1")) > 0 || v.Progress(r.Operation).State != state.OpDone {
					t.Errorf("%d VMs are down: %+v", down, h.Drain)
				}
				if v = c.done(c.Start(ctx, "a", leader.Call{})); len(on(v, "h2")) != 6 {
					t.Errorf("%d VMs on h2 after the start", len(on(v, "h2")))
				}
			default:
				if down > 0 || len(on(v, "h1")) == 0 || v.Progress(r.Operation).State != state.OpFailed || !strings.Contains(h.Drain.Text, "deadline") {
					t.Errorf("%d VMs are down: %+v, %+v", down, h.Drain, v.Progress(r.Operation))
				}
			}
			noHarm(t, world, 4, 8<<30)
		}))
	}
}

// Bytes are a bound: what they do not suffice for stays, and is named.
func TestDrainWithinBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		calm(c)
		ctx := t.Context()
		x := vc("a", 4, 0.25, 512*mib)
		x.Groups[0].Affinity.Prefer = []string{"host:h1"}
		c.done(c.Create(ctx, x, leader.Call{}))
		dry, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		bound := dry.Plan.Bytes * 2 / 3
		var blocked *leader.Blocked
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{MaxBytes: &bound}, leader.Call{}); !errors.As(err, &blocked) || !strings.Contains(err.Error(), "budget") {
			t.Fatalf("%v", err)
		}
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{MaxBytes: &bound, OnBlocked: drain.OnBlockedSkip}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v := c.drainIs("h1", state.DrainBlocked)
		h, _ := v.Host("h1")
		if n := len(on(v, "h1")); n == 0 || n == 4 || v.DrainView(h).BytesMoved > bound {
			t.Errorf("%d VMs left, %d bytes of %d", n, v.DrainView(h).BytesMoved, bound)
		}
	})
}

func TestDrainRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := t.Context()
		var invalid *leader.Invalid
		less := int64(-2)
		for _, q := range []leader.DrainRequest{{OnBlocked: "kill"}, {Deadline: -1}, {MaxBytes: &less}, {Reason: strings.Repeat("x", 501)}} {
			if _, err := c.Drain(ctx, "h1", q, leader.Call{}); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", q, err)
			}
		}
		for host, q := range map[string]leader.DrainRequest{"h9": {}, "h1": {OtherHosts: []string{"h9"}}} {
			if _, err := c.Drain(ctx, host, q, leader.Call{}); !errors.Is(err, leader.ErrNotFound) {
				t.Errorf("%v", err)
			}
		}
		if err := c.Undrain(ctx, "h9", leader.Call{}); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := c.Empty(ctx, "h9"); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("%v", err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := c.Drain(gone, "h1", leader.DrainRequest{}, leader.Call{}); err == nil {
			t.Error("a request that no caller waits for was carried out")
		}
	})
}

// A host whose hypervisor falls silent during its drain: the drain reports the silence, does not report that the host is empty,
// and goes on once it answers.
func TestDrainOfAHostThatFallsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		calm(c, func(m *state.MoveSettings) { m.PerHost = 1 })
		ctx := t.Context()
		x := vc("a", 4, 0.25, 512*mib)
		x.Groups[0].Affinity.Prefer = []string{"host:h1"}
		c.done(c.Create(ctx, x, leader.Call{}))
		if err := world.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c.eventually("h1 is out of reach", func(v *leader.View) bool { h, _ := v.Host("h1"); return v.HostView(h).State == "unreachable" })
		var blocked *leader.Blocked
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{}); !errors.As(err, &blocked) || len(blocked.Blockers) != 4 || !strings.Contains(blocked.Blockers[0].Why, "does not answer") {
			t.Errorf("a drain of a host that does not answer: %v", err)
		}
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{OnBlocked: drain.OnBlockedSkip}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		c.eventually("the drain says so", func(v *leader.View) bool {
			h, _ := v.Host("h1")
			return strings.Contains(h.Drain.Text, "does not answer") && h.Drain.State == state.DrainRunning
		})
		if e, err := c.Empty(ctx, "h1"); err != nil || e.Empty || len(e.VMs) != 4 {
			t.Errorf("%+v, %v", e, err)
		}
		if err := world.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c.drainIs("h1", state.DrainDone)
		noHarm(t, world, 4, 8<<30)
	})
}

// Hosts that can be drained at the same time are, while new VCs are admitted; then the next batch.
func TestRollingMaintenance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 4)
		c := startCluster(t, scratch.Dir(t), world, 4)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 8, 0.5, 1024*mib), leader.Call{}))
		batches, _, err := c.DrainBatches(ctx)
		total := 0
		for _, b := range batches {
			total += len(b.Hosts)
		}
		if err != nil || len(batches) == 0 || len(batches) > 2 || total != 4 {
			t.Fatalf("%v, %v", batches, err)
		}
		for n, b := range batches {
			hosts := b.Hosts
			for _, host := range hosts {
				r, err := c.Drain(ctx, host, leader.DrainRequest{OtherHosts: hosts}, leader.Call{})
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range r.Plan.Steps {
					if slices.Contains(hosts, step.To) {
						t.Errorf("a VM goes to a host that is next to be emptied: %+v", step)
					}
				}
			}
			c.done(c.Create(ctx, vc(fmt.Sprint("new", n), 2, 0.25, 256*mib), leader.Call{}))
			for _, host := range hosts {
				c.drainIs(host, state.DrainDone)
			}
			for _, host := range hosts {
				if e, err := c.Empty(ctx, host); err != nil || !e.Empty {
					t.Errorf("%+v, %v", e, err)
				}
				if err := c.Undrain(ctx, host, leader.Call{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		v, _ := c.View(ctx, false)
		for _, vm := range v.VMs() {
			if vm.Generation != 1 || vm.Phase != state.Running {
				t.Errorf("%+v", vm)
			}
		}
		noHarm(t, world, 4, 8<<30)
	})
}

func TestSimulateAndFailoverCapacity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 4, 1, 512*mib), leader.Call{}))
		less := int64(-5)
		var invalid *leader.Invalid
		for _, q := range []leader.SimulateRequest{{MaxBytes: &less}, {Snapshot: []byte("{}")}, {AddHosts: []leader.SimulatedHost{{}}}} {
			if _, err := c.Simulate(ctx, q); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", q, err)
			}
		}
		if _, err := c.Simulate(ctx, leader.SimulateRequest{RemoveHosts: []string{"h9"}}); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("%v", err)
		}
		v, _ := c.View(ctx, false)
		live, err := c.Simulate(ctx, leader.SimulateRequest{RemoveHosts: []string{"h1"}})
		if err != nil || live.MinYieldAfter != 1 || len(live.Plan.Steps) != len(on(v, "h1")) || len(live.Unplaced) != 0 {
			t.Fatalf("%+v, %v", live, err)
		}
		rows, err := c.FailoverCapacity(ctx)
		if err != nil || len(rows) != 2 || !rows[0].Fits || rows[0].MinYield != 1 {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

// A new leader knows nothing of a host before its hypervisor has listed what it runs: not that it is empty, either.
func TestEmptyIsOfThisTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world, dir := newWorld(t, 2), scratch.Dir(t)
		c := startCluster(t, dir, world, 2)
		ctx := t.Context()
		c.eventually("both are empty", func(*leader.View) bool {
			a, _ := c.Empty(ctx, "h1")
			b, _ := c.Empty(ctx, "h2")
			return a.Empty && b.Empty
		})
		c.stop()
		if err := world.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c = startCluster(t, dir, world, 2)
		if e, err := c.Empty(ctx, "h1"); err != nil || e.Empty || !e.At.IsZero() {
			t.Errorf("its inventory is not known: %+v, %v", e, err)
		}
		if err := world.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		c.eventually("it is empty", func(*leader.View) bool { e, _ := c.Empty(ctx, "h1"); return e.Empty && !e.At.IsZero() })
	})
}

// Where moves are made by themselves a drain also makes those that raise the minimum yield a lot, but not with a deadline, and
// nowhere else.
func TestDrainMovesOthersForAGreatGainOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 3), 3)
		calm(c)
		ctx := t.Context()
		// h1 is full, of h2 three times is wanted what it can give, and h3 is empty.
		for host, n := range map[string]int{"h1": 1, "h2": 3} {
			x := vc("on-"+host, n, 4, 512*mib)
			x.MinYield = 0.1
			x.Groups[0].Affinity.Prefer = []string{"host:" + host}
			for _, other := range []string{"h1", "h2", "h3"} {
				if err := c.Cordon(ctx, other, other != host, "", false); err != nil {
					t.Fatal(err)
				}
			}
			c.done(c.Create(ctx, x, leader.Call{}))
		}
		for _, host := range []string{"h1", "h2", "h3"} {
			if err := c.Cordon(ctx, host, false, "", false); err != nil {
				t.Fatal(err)
			}
		}
		moves := func(q leader.DrainRequest) int {
			r, err := c.Drain(ctx, "h1", q, leader.Call{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			return len(r.Plan.Steps)
		}
		if n := moves(leader.DrainRequest{}); n != 1 {
			t.Errorf("%d moves where only requested moves are wanted", n)
		}
		if _, err := c.Settings(ctx, func(s *state.Settings) error {
			s.Moves.Mode, s.Moves.StabilizationWindow = state.MovesAuto, state.Millis(time.Hour.Milliseconds())
			return nil
		}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		if n := moves(leader.DrainRequest{}); n != 2 {
			t.Errorf("%d moves, where one more brings the minimum yield from 0.33 to 0.5", n)
		}
		if n := moves(leader.DrainRequest{Deadline: time.Hour}); n != 1 {
			t.Errorf("%d moves with a deadline", n)
		}
	})
}
