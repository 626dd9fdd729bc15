package leader_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
	testsite "evenkeel/test/site"
)

// off keeps the loop from moving VMs by itself.
func (c *testCluster) moves(patch func(m *state.MoveSettings)) {
	c.t.Helper()
	if _, err := c.Settings(c.t.Context(), func(s *state.Settings) error { patch(&s.Moves); return nil }, leader.Call{}); err != nil {
		c.t.Fatal(err)
	}
}

// crowd makes a cluster whose first host has all VMs of VCs with 4 cores each.
func (c *testCluster) crowd(others []string, names ...string) {
	c.t.Helper()
	ctx := c.t.Context()
	for _, h := range others {
		if err := c.Cordon(ctx, h, true, "", false); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, name := range names {
		x := vc(name, 1, 4, 512*mib)
		x.MinYield = 0.1
		c.done(c.Create(ctx, x, leader.Call{}))
	}
	for _, h := range others {
		if err := c.Cordon(ctx, h, false, "", false); err != nil {
			c.t.Fatal(err)
		}
	}
}

// ended waits until a plan of moves has, in the state that is wanted.
func (c *testCluster) ended(id string, want state.MovePlanState) state.MovePlan {
	c.t.Helper()
	v := c.eventually("plan "+id+" is "+string(want), func(v *leader.View) bool {
		p, ok := v.MovePlan(id)
		if !ok || !p.State.Ended() {
			return false
		}
		if p.State != want {
			c.t.Fatalf("plan %s is %s, want it %s: %s", id, p.State, want, testsite.Doing(v))
		}
		for _, m := range v.MigrationsOf(id) {
			if m.State == state.MigrationRunning {
				return false
			}
		}
		return true
	})
	p, _ := v.MovePlan(id)
	return p
}

func must[T any](t *testing.T) func(T, error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// A re-balance that was asked for raises the minimum yield within its budget, and reports it; a second one finds nothing to do.
func TestRebalance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		ctx := t.Context()
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesOff })
		c.crowd([]string{"h2"}, "a", "b")
		if y := c.eventually("they share a host", func(v *leader.View) bool { return v.MinYield() < 0.6 }).MinYield(); y != 0.5 {
			t.Fatalf("minimum yield %v", y)
		}
		dry := must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{}, leader.Call{DryRun: true}))
		if len(dry.Plan.Steps) != 1 || dry.Plan.MinYieldAfter != 1 || !dry.DryRun || len(c.state.Snapshot().MovePlans()) != 0 {
			t.Fatalf("dry run: %+v", dry)
		}
		none := int64(0)
		idle := must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{MaxBytes: &none}, leader.Call{}))
		if len(idle.Plan.Steps) != 0 || idle.Plan.State != state.MovesDone || idle.Plan.Reason == "" {
			t.Errorf("within 0 bytes: %+v", idle.Plan)
		}
		call := leader.Call{IdempotencyKey: "once"}
		r := must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{By: "ann", Text: "now"}, call))
		again := must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{By: "ann", Text: "now"}, call))
		if !again.Replayed || again.Plan.ID != r.Plan.ID || again.Operation.ID != r.Operation.ID {
			t.Errorf("asked twice with one key: %+v", again)
		}
		p := c.ended(r.Plan.ID, state.MovesDone)
		if p.BytesMoved > p.Budget || p.By != "ann" {
			t.Errorf("plan: %+v", p)
		}
		v := c.eventually("every VM has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 })
		if got := v.Progress(r.Operation); got.State != state.OpDone || got.Done != 1 {
			t.Errorf("operation: %+v", got)
		}
		ms := v.MigrationsOf(p.ID)
		if len(ms) != 1 || ms[0].State != state.MigrationDone || ms[0].From != "h1" || ms[0].To != "h2" {
			t.Errorf("migrations: %+v", ms)
		}
		r = must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{}, leader.Call{}))
		if len(r.Plan.Steps) != 0 || r.Plan.State != state.MovesDone || v.Progress(r.Operation).Text == "" {
			t.Errorf("a second one: %+v", r.Plan)
		}
		if points := must[[]leader.CurvePoint](t)(c.Curve(ctx)); len(points) != 1 || points[0].MinYield != 1 {
			t.Errorf("curve: %+v", points)
		}
	})
}

// The loop re-balances by itself once the gain has been there for a while; in the other modes it does not.
func TestRebalanceByItself(t *testing.T) {
	for _, mode := range []state.MoveMode{state.MovesAuto, state.MovesPropose, state.MovesOff} {
		t.Run(string(mode), bubbled(func(t *testing.T) {
			world := newWorld(t, 2)
			c := startCluster(t, scratch.Dir(t), world, 2)
			c.moves(func(m *state.MoveSettings) { m.Mode, m.StabilizationWindow = mode, 1 })
			c.crowd([]string{"h2"}, "a", "b")
			if mode == state.MovesOff {
				c.eventually("they share a host", func(v *leader.View) bool { return v.MinYield() < 0.6 })
				if n := len(c.state.Snapshot().MovePlans()); n != 0 {
					t.Errorf("%d plans", n)
				}
				return
			}
			v := c.eventually("there is a plan", func(v *leader.View) bool { return len(v.MovePlans()) > 0 })
			p := v.MovePlans()[0]
			if mode == state.MovesPropose {
				if p.State != state.MovesProposed || len(v.Migrations()) != 0 {
					t.Fatalf("plan: %+v", p)
				}
				r := must[leader.MoveResult](t)(c.ApplyPlan(t.Context(), p.ID, leader.Call{}))
				if r.Plan.State != state.MovesRunning || r.Operation.MovePlan != p.ID {
					t.Errorf("applied: %+v", r)
				}
				if _, err := c.ApplyPlan(t.Context(), p.ID, leader.Call{}); !errors.Is(err, leader.ErrConflict) {
					t.Errorf("applied twice: %v", err)
				}
			}
			if p = c.ended(p.ID, state.MovesDone); p.By != "loop" {
				t.Errorf("plan: %+v", p)
			}
			c.eventually("every VM has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 })
		}))
	}
}

// A host that is out of reach and runs nothing, such as one that is lost and waits for repair, keeps no VM of other hosts where it is.
func TestRebalanceBesideALostHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 3)
		c := startCluster(t, scratch.Dir(t), world, 3)
		c.moves(func(m *state.MoveSettings) { m.StabilizationWindow = 1 })
		if err := world.Disconnect("h3"); err != nil {
			t.Fatal(err)
		}
		c.eventually("h3 is out of reach", func(v *leader.View) bool { h, _ := v.Host("h3"); return v.HostView(h).State == "unreachable" })
		c.crowd([]string{"h2"}, "a", "b")
		c.eventually("every VM has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 && len(v.Migrations()) > 0 })
	})
}

// A plan that was put forward and is not what it was is not applied.
func TestApplyStalePlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		c.moves(func(m *state.MoveSettings) { m.Mode, m.StabilizationWindow = state.MovesPropose, 1 })
		c.crowd([]string{"h2"}, "a", "b")
		p := c.eventually("there is a plan", func(v *leader.View) bool { return len(v.MovePlans()) > 0 }).MovePlans()[0]
		if err := c.Cordon(t.Context(), "h2", true, "", false); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ApplyPlan(t.Context(), p.ID, leader.Call{}); !errors.Is(err, leader.ErrConflict) {
			t.Errorf("applied: %v", err)
		}
		if p, err := c.StopPlan(t.Context(), p.ID, "ann"); err != nil || p.State != state.MovesStopped {
			t.Errorf("stopped: %+v, %v", p, err)
		}
		if _, err := c.ApplyPlan(t.Context(), "none", leader.Call{}); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("an unknown one: %v", err)
		}
	})
}

// oneOnEach has a VM of so many bytes on each of the hosts h1 and h2.
func (c *testCluster) oneOnEach(memory int64) {
	c.t.Helper()
	for name, shut := range map[string]string{"a": "h1", "b": "h2"} {
		if err := c.Cordon(c.t.Context(), shut, true, "", false); err != nil {
			c.t.Fatal(err)
		}
		c.done(c.Create(c.t.Context(), vc(name, 1, 1, memory), leader.Call{}))
		if err := c.Cordon(c.t.Context(), shut, false, "", false); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A VC that waits for want of room is answered which moves would make room, and gets it.
func TestRoomForOneThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 2)
		c := startCluster(t, scratch.Dir(t), world, 2)
		ctx := t.Context()
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesOff })
		c.oneOnEach(3 << 30)
		big := vc("big", 1, 1, 6<<30)
		big.OnFull = state.Reject
		_, err := c.Create(ctx, big, leader.Call{DryRun: true})
		var no *leader.Refused
		if !errors.As(err, &no) || !advises(no.Decision, "would fit after moving 3.") {
			t.Fatalf("refused: %v, %+v", err, no)
		}
		big.OnFull = state.Queue
		r := must[leader.Result](t)(c.Create(ctx, big, leader.Call{}))
		if v := c.vc(c.eventually("it is there", func(*leader.View) bool { return true }), "big"); v.State != state.VCQueued {
			t.Fatalf("big is %s", v.State)
		}
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesAuto })
		c.done(r, nil)
		plans := c.eventually("the plan has ended", func(v *leader.View) bool { return len(v.RunningMovePlans()) == 0 }).MovePlans()
		if len(plans) != 1 || plans[0].Kind != state.MovesRoom || plans[0].VC != r.VC.ID || plans[0].State != state.MovesDone {
			t.Errorf("plans: %+v", plans)
		}
	})
}

func advises(d state.Decision, text string) bool {
	for _, a := range d.Advice {
		if len(a) >= len(text) && a[:len(text)] == text {
			return true
		}
	}
	return false
}

// slowWorld has links over which 512 MiB take most of a second.
func slowWorld(t *testing.T, n int) *simulated.World {
	t.Helper()
	w, err := simulated.New(simulated.Options{Hosts: n, CPU: 4, Memory: 8 << 30, Timing: &simulated.Timing{
		Start: 2 * time.Millisecond, Boot: 5 * time.Millisecond, Shutdown: 5 * time.Millisecond, Timeout: 2 * time.Second,
		Link: 700 << 20, Downtime: 10 * time.Millisecond, Progress: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// underWay begins a re-balance and returns once a VM is on its way.
func (c *testCluster) underWay() (leader.MoveResult, state.Migration) {
	c.t.Helper()
	r := must[leader.MoveResult](c.t)(c.Rebalance(c.t.Context(), leader.RebalanceRequest{}, leader.Call{}))
	v := c.eventually("a VM is on its way", func(v *leader.View) bool {
		for _, m := range v.MigrationsOf(r.Plan.ID) {
			if live := v.MigrationView(m).Live; live != nil && live.Bytes > 0 {
				return true
			}
		}
		return false
	})
	return r, v.MigrationsOf(r.Plan.ID)[0]
}

// once checks that every VM that is to run does so in one place.
func (c *testCluster) once(v *leader.View) {
	c.t.Helper()
	if twice := c.world.Audit().Doubled; len(twice) > 0 {
		c.t.Errorf("in two places: %v", twice)
	}
	for _, vm := range v.VMs() {
		if vm.Goal == state.GoalRun && vm.Phase != state.Running {
			c.t.Errorf("VM %s is %s: %s", vm.Name, vm.Phase, vm.Reason)
		}
	}
}

// While VMs move: what becomes of plans, migrations and VMs when something comes in between.
func TestMovesThatAreDisturbed(t *testing.T) {
	setup := func(t *testing.T, hosts int) (*testCluster, leader.MoveResult, state.Migration) {
		c := startCluster(t, scratch.Dir(t), slowWorld(t, hosts), hosts)
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesOff })
		var others []string
		for i := 1; i < hosts; i++ {
			others = append(others, fmt.Sprintf("h%d", i+1))
		}
		c.crowd(others, "a", "b")
		r, m := c.underWay()
		return c, r, m
	}
	t.Run("aborted", bubbled(func(t *testing.T) {
		c, r, m := setup(t, 2)
		if _, err := c.AbortMigration(t.Context(), m.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		p := c.ended(r.Plan.ID, state.MovesDone)
		v := c.eventually("the other one moved instead", func(v *leader.View) bool { return v.MinYield() == 1 })
		m, _ = v.Migration(m.ID)
		if m.State != state.MigrationAborted || m.BytesMoved <= 0 || p.BytesMoved <= m.BytesMoved || p.Tries != 1 {
			t.Errorf("%+v of %+v", m, p)
		}
		if _, err := c.AbortMigration(t.Context(), m.ID, "ann"); !errors.Is(err, leader.ErrConflict) {
			t.Errorf("aborted again: %v", err)
		}
		c.once(v)
	}))
	t.Run("stopped", bubbled(func(t *testing.T) {
		c, r, m := setup(t, 2)
		if p, err := c.StopPlan(t.Context(), r.Plan.ID, "ann"); err != nil || p.State != state.MovesStopped {
			t.Fatalf("%+v, %v", p, err)
		}
		p := c.ended(r.Plan.ID, state.MovesStopped)
		if v := c.eventually("it arrives", func(*leader.View) bool { return true }); true {
			if m, _ = v.Migration(m.ID); m.State != state.MigrationDone || p.Steps[0].State != state.StepDone || v.Progress(r.Operation).State != state.OpFailed {
				t.Errorf("%+v of %+v", m, p)
			}
			c.once(v)
		}
	}))
	t.Run("its target is cut off", bubbled(func(t *testing.T) {
		c, r, m := setup(t, 3)
		if err := c.world.Disconnect(m.To); err != nil {
			t.Fatal(err)
		}
		c.eventually("it stayed", func(v *leader.View) bool { m, _ = v.Migration(m.ID); return m.State == state.MigrationFailed })
		if err := c.world.Reconnect(m.To); err != nil {
			t.Fatal(err)
		}
		p := c.ended(r.Plan.ID, state.MovesDone)
		v := c.eventually("every VM has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 })
		if p.Tries == 0 || m.Error == "" {
			t.Errorf("%+v of %+v", m, p)
		}
		c.once(v)
	}))
	t.Run("its VC is deleted", bubbled(func(t *testing.T) {
		c, r, m := setup(t, 2)
		vc, _ := c.state.Snapshot().VC(m.VC)
		del := must[leader.Result](t)(c.Delete(t.Context(), vc.Name, leader.Call{}))
		p := c.ended(r.Plan.ID, state.MovesDone)
		c.done(del, nil)
		if p.Steps[0].State == state.StepFailed {
			t.Errorf("%+v", p)
		}
		c.once(c.eventually("the other has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 }))
	}))
	t.Run("its VC grows", bubbled(func(t *testing.T) {
		c, r, m := setup(t, 2)
		vc, _ := c.state.Snapshot().VC(m.VC)
		more := 4.0
		count := 2
		scaled, err := c.Scale(t.Context(), vc.Name, leader.Scale{CPU: &more, Count: &count}, leader.Call{})
		var no *leader.Refused
		if err != nil && !errors.As(err, &no) {
			t.Fatal(err)
		}
		c.ended(r.Plan.ID, state.MovesDone)
		if err == nil {
			c.done(scaled, nil)
		}
		c.once(c.eventually("", func(*leader.View) bool { return true }))
	}))
	t.Run("needs shrink", bubbled(func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), slowWorld(t, 2), 2)
		c.moves(func(m *state.MoveSettings) { m.Mode, m.PerHost = state.MovesOff, 1 })
		c.crowd([]string{"h2"}, "a", "b", "c", "d")
		r, m := c.underWay()
		if len(r.Plan.Steps) != 2 {
			t.Fatalf("%+v", r.Plan)
		}
		less := 0.5
		for _, name := range []string{"a", "b", "c", "d"} {
			if _, err := c.Scale(t.Context(), name, leader.Scale{CPU: &less}, leader.Call{}); err != nil {
				t.Fatal(err)
			}
		}
		p := c.ended(r.Plan.ID, state.MovesStopped)
		v := c.eventually("every VM has what it needs", func(v *leader.View) bool { return v.MinYield() == 1 })
		if m, _ = v.Migration(m.ID); m.State != state.MigrationDone || p.Steps[1].State != state.StepSkipped || p.Tries != 0 {
			t.Errorf("%s, planned again %d times: %s: %+v, and %+v", p.State, p.Tries, p.Reason, m, p.Steps[1:])
		}
		c.once(v)
	}))
	t.Run("another server leads", bubbled(func(t *testing.T) {
		dir, world := scratch.Dir(t), slowWorld(t, 2)
		c := startCluster(t, dir, world, 2)
		c.moves(func(m *state.MoveSettings) { m.Mode, m.PerHost = state.MovesOff, 1 })
		c.crowd([]string{"h2"}, "a", "b", "c", "d")
		r, _ := c.underWay()
		if len(r.Plan.Steps) < 2 {
			t.Fatalf("%+v", r.Plan)
		}
		c.stop()
		c = startCluster(t, dir, world, 2)
		c.ended(r.Plan.ID, state.MovesDone)
		c.once(c.eventually("all have half of what they need", func(v *leader.View) bool { return v.MinYield() > 0.49 }))
	}))
}

// Caps never sum above a host's CPU, nor memory above its own, while a re-balance of many VMs goes on and tenants come and go.
func TestLimitsWhileMoving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 3)
		c := startCluster(t, scratch.Dir(t), world, 3)
		ctx := t.Context()
		c.moves(func(m *state.MoveSettings) { m.Mode, m.PerHost = state.MovesOff, 4 })
		c.crowd([]string{"h2", "h3"}, "a", "b", "c", "d", "e", "f")
		r := must[leader.MoveResult](t)(c.Rebalance(ctx, leader.RebalanceRequest{}, leader.Call{}))
		for i := range 4 {
			if _, err := c.Create(ctx, vc(fmt.Sprintf("n%d", i), 1, 1, 512<<20), leader.Call{}); err != nil {
				t.Fatal(err)
			}
		}
		c.ended(r.Plan.ID, state.MovesDone)
		v := c.eventually("all run", func(v *leader.View) bool { return state.CountPhases(v.VMs()).Running == 10 })
		c.once(v)
		for host, of := range world.Audit().Peaks {
			if of.CPU > 4*1.000001 || of.Memory > 8<<30 {
				t.Errorf("host %s had caps of %v cores and %d bytes at once", host, of.CPU, of.Memory)
			}
		}
	})
}
