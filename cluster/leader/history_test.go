package leader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// A VM that moves twice takes along what both hosts measured while it ran there. Only the VM's present host is given that
// history.
func TestHistoryOverTwoMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 3), 3)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 1, 0.5, 64*mib), leader.Call{}))
		at := func() state.VM {
			vm, _ := c.state.Snapshot().VMNamed("a-g-0")
			return vm
		}
		// known is what is kept of the VM, once there is something.
		known := func() []history.Bucket {
			var all []history.Bucket
			c.eventually("the VM is measured on "+at().Host, func(*leader.View) bool {
				h, _, _, err := c.History(ctx, "a-g-0")
				if err != nil {
					t.Fatal(err)
				}
				all = h.Buckets(history.Raw, time.Time{})
				return len(all) > 0
			})
			return all
		}
		first := known()[0].At
		was := []string{at().Host}
		for range 2 {
			if _, err := c.Drain(ctx, was[len(was)-1], leader.DrainRequest{}, leader.Call{}); err != nil {
				t.Fatal(err)
			}
			c.drainIs(was[len(was)-1], state.DrainDone)
			was = append(was, at().Host)
			known()
		}
		if was[0] == was[1] || was[1] == was[2] || was[0] == was[2] {
			t.Fatalf("it was on %v", was)
		}
		data, err := c.HistoryFor(ctx, was[2], at().ID)
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := history.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if b := h.Buckets(history.Raw, time.Time{}); len(b) == 0 || b[0].At.After(first) {
			t.Errorf("%+v, and the first host measured at %v", b, first)
		}
		for _, q := range [][2]string{{was[0], at().ID}, {was[1], at().ID}, {"h9", at().ID}, {was[2], "missing"}} {
			if _, err := c.HistoryFor(ctx, q[0], q[1]); !errors.Is(err, agent.ErrNoHistory) {
				t.Errorf("for host %s, VM %s: %v", q[0], q[1], err)
			}
		}
		// A VM that was never moved came from nowhere.
		if err := c.Undrain(ctx, was[0], leader.Call{}); err != nil {
			t.Fatal(err)
		}
		c.done(c.Create(ctx, vc("b", 1, 0.5, 64*mib), leader.Call{}))
		vm, _ := c.state.Snapshot().VMNamed("b-g-0")
		if _, err := c.HistoryFor(ctx, vm.Host, vm.ID); !errors.Is(err, agent.ErrNoHistory) {
			t.Errorf("of a VM that did not move: %v", err)
		}
	})
}

func TestHistoryAndForecastOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		ctx := context.Background()
		if _, _, _, err := c.History(ctx, "missing"); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("history: %v", err)
		}
		if _, _, _, err := c.Forecast(ctx, "missing", agent.ResourceCPU, 3); !errors.Is(err, leader.ErrNotFound) {
			t.Errorf("forecast: %v", err)
		}
		c.done(c.Create(ctx, vc("a", 1, 0.5, 64*mib), leader.Call{}))
		for resource, declared := range map[string]float64{agent.ResourceCPU: 0.5, agent.ResourceMemory: 64 << 20} {
			f, need, vm, err := c.Forecast(ctx, "a-g-0", resource, 3)
			if err != nil || f.Trusted || f.Reason == "" || f.Resource != resource || need.Declared != declared || vm.Name != "a-g-0" {
				t.Errorf("%+v, %+v, %v", f, need, err)
			}
		}
		c.done(c.Stop(ctx, "a", leader.Call{}))
		var u *leader.Unreachable
		if _, _, vm, err := c.History(ctx, "a-g-0"); err != nil && !errors.Is(err, leader.ErrConflict) && !errors.As(err, &u) {
			t.Errorf("of a VM that is stopped, on %q: %v", vm.Host, err)
		}
	})
}
