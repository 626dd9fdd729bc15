package control_test

import (
	"errors"
	"testing"

	"evenkeel/cluster/control"
	"evenkeel/cluster/state"
)

// off keeps the loop from moving VMs by itself.
func (c *testCluster) moves(patch func(m *state.MoveSettings)) {
	c.t.Helper()
	if _, err := c.Settings(c.t.Context(), func(s *state.Settings) error { patch(&s.Moves); return nil }, control.Call{}); err != nil {
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
		c.done(c.Create(ctx, vc(name, 1, 4, 512*mib), control.Call{}))
	}
	for _, h := range others {
		if err := c.Cordon(ctx, h, false, "", false); err != nil {
			c.t.Fatal(err)
		}
	}
}

// ended waits until a plan of moves has.
func (c *testCluster) ended(id string) state.MovePlan {
	c.t.Helper()
	v := c.eventually("plan "+id+" ends", func(v *control.View) bool {
		p, ok := v.MovePlan(id)
		if !ok || !p.State.Ended() {
			return false
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

// A re-balance asked for raises the minimum yield within its budget, and says so; a second finds nothing to do.
func TestRebalance(t *testing.T) {
	world := newWorld(t, 2)
	c := startCluster(t, t.TempDir(), world, 2)
	ctx := t.Context()
	c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesOff })
	c.crowd([]string{"h2"}, "a", "b")
	if y := c.eventually("they share a host", func(v *control.View) bool { return v.MinYield() < 0.6 }).MinYield(); y != 0.5 {
		t.Fatalf("minimum yield %v", y)
	}
	dry := must[control.MoveResult](t)(c.Rebalance(ctx, control.RebalanceRequest{}, control.Call{DryRun: true}))
	if len(dry.Plan.Steps) != 1 || dry.Plan.MinYieldAfter != 1 || !dry.DryRun || len(c.state.Snapshot().MovePlans()) != 0 {
		t.Fatalf("dry run: %+v", dry)
	}
	none := int64(0)
	idle := must[control.MoveResult](t)(c.Rebalance(ctx, control.RebalanceRequest{MaxBytes: &none}, control.Call{}))
	if len(idle.Plan.Steps) != 0 || idle.Plan.State != state.MovesDone || idle.Plan.Reason == "" {
		t.Errorf("within 0 bytes: %+v", idle.Plan)
	}
	call := control.Call{IdempotencyKey: "once"}
	r := must[control.MoveResult](t)(c.Rebalance(ctx, control.RebalanceRequest{By: "ann", Text: "now"}, call))
	again := must[control.MoveResult](t)(c.Rebalance(ctx, control.RebalanceRequest{By: "ann", Text: "now"}, call))
	if !again.Replayed || again.Plan.ID != r.Plan.ID || again.Operation.ID != r.Operation.ID {
		t.Errorf("asked twice with one key: %+v", again)
	}
	p := c.ended(r.Plan.ID)
	if p.State != state.MovesDone || p.BytesMoved > p.Budget || p.By != "ann" {
		t.Errorf("plan: %+v", p)
	}
	v := c.eventually("everybody has what they need", func(v *control.View) bool { return v.MinYield() == 1 })
	if got := v.Progress(r.Operation); got.State != state.OpDone || got.Done != 1 {
		t.Errorf("operation: %+v", got)
	}
	ms := v.MigrationsOf(p.ID)
	if len(ms) != 1 || ms[0].State != state.MigrationDone || ms[0].From != "h1" || ms[0].To != "h2" {
		t.Errorf("migrations: %+v", ms)
	}
	r = must[control.MoveResult](t)(c.Rebalance(ctx, control.RebalanceRequest{}, control.Call{}))
	if len(r.Plan.Steps) != 0 || r.Plan.State != state.MovesDone || v.Progress(r.Operation).Text == "" {
		t.Errorf("a second one: %+v", r.Plan)
	}
	if points := must[[]control.CurvePoint](t)(c.Curve(ctx)); len(points) != 1 || points[0].MinYield != 1 {
		t.Errorf("curve: %+v", points)
	}
}

// The loop re-balances by itself once the gain has been there for a while; in the other modes it does not.
func TestRebalanceByItself(t *testing.T) {
	for _, mode := range []state.MoveMode{state.MovesAuto, state.MovesPropose, state.MovesOff} {
		t.Run(string(mode), func(t *testing.T) {
			world := newWorld(t, 2)
			c := startCluster(t, t.TempDir(), world, 2)
			c.moves(func(m *state.MoveSettings) { m.Mode, m.Hold = mode, 1 })
			c.crowd([]string{"h2"}, "a", "b")
			if mode == state.MovesOff {
				c.eventually("they share a host", func(v *control.View) bool { return v.MinYield() < 0.6 })
				if n := len(c.state.Snapshot().MovePlans()); n != 0 {
					t.Errorf("%d plans", n)
				}
				return
			}
			v := c.eventually("there is a plan", func(v *control.View) bool { return len(v.MovePlans()) > 0 })
			p := v.MovePlans()[0]
			if mode == state.MovesPropose {
				if p.State != state.MovesProposed || len(v.Migrations()) != 0 {
					t.Fatalf("plan: %+v", p)
				}
				r := must[control.MoveResult](t)(c.ApplyPlan(t.Context(), p.ID, control.Call{}))
				if r.Plan.State != state.MovesRunning || r.Operation.MovePlan != p.ID {
					t.Errorf("applied: %+v", r)
				}
				if _, err := c.ApplyPlan(t.Context(), p.ID, control.Call{}); !errors.Is(err, control.ErrConflict) {
					t.Errorf("applied twice: %v", err)
				}
			}
			if p = c.ended(p.ID); p.State != state.MovesDone || p.By != "loop" {
				t.Errorf("plan: %+v", p)
			}
			c.eventually("everybody has what they need", func(v *control.View) bool { return v.MinYield() == 1 })
		})
	}
}

// A plan that was put forward and is not what it was is not applied.
func TestApplyStalePlan(t *testing.T) {
	world := newWorld(t, 2)
	c := startCluster(t, t.TempDir(), world, 2)
	c.moves(func(m *state.MoveSettings) { m.Mode, m.Hold = state.MovesPropose, 1 })
	c.crowd([]string{"h2"}, "a", "b")
	p := c.eventually("there is a plan", func(v *control.View) bool { return len(v.MovePlans()) > 0 }).MovePlans()[0]
	if err := c.Cordon(t.Context(), "h2", true, "", false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApplyPlan(t.Context(), p.ID, control.Call{}); !errors.Is(err, control.ErrConflict) {
		t.Errorf("applied: %v", err)
	}
	if p, err := c.StopPlan(t.Context(), p.ID, "ann"); err != nil || p.State != state.MovesStopped {
		t.Errorf("stopped: %+v, %v", p, err)
	}
	if _, err := c.ApplyPlan(t.Context(), "none", control.Call{}); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
}

// What waits for want of room is told what would make room, and gets it.
func TestRoomForOneThatWaits(t *testing.T) {
	world := newWorld(t, 2)
	c := startCluster(t, t.TempDir(), world, 2)
	ctx := t.Context()
	c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesOff })
	for name, shut := range map[string]string{"a": "h1", "b": "h2"} {
		if err := c.Cordon(ctx, shut, true, "", false); err != nil {
			t.Fatal(err)
		}
		c.done(c.Create(ctx, vc(name, 1, 1, 3<<30), control.Call{}))
		if err := c.Cordon(ctx, shut, false, "", false); err != nil {
			t.Fatal(err)
		}
	}
	big := vc("big", 1, 1, 6<<30)
	big.OnFull = state.Reject
	_, err := c.Create(ctx, big, control.Call{DryRun: true})
	var no *control.Refused
	if !errors.As(err, &no) || !advises(no.Decision, "would fit after moving 3.") {
		t.Fatalf("refused: %v, %+v", err, no)
	}
	big.OnFull = state.Queue
	r := must[control.Result](t)(c.Create(ctx, big, control.Call{}))
	if v := c.vc(c.eventually("it is there", func(*control.View) bool { return true }), "big"); v.State != state.VCQueued {
		t.Fatalf("big is %s", v.State)
	}
	c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesAuto })
	c.done(r, nil)
	plans := c.state.Snapshot().MovePlans()
	if len(plans) != 1 || plans[0].Kind != state.MovesRoom || plans[0].VC != r.VC.ID || plans[0].State != state.MovesDone {
		t.Errorf("plans: %+v", plans)
	}
}

func advises(d state.Decision, text string) bool {
	for _, a := range d.Advice {
		if len(a) >= len(text) && a[:len(text)] == text {
			return true
		}
	}
	return false
}
