package leader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/test/scratch"
)

var noCA = hypervisor.Obstacle{Why: "/etc/pki/CA/cacert.pem is missing", Here: true}

const noCAOnH1 = "host h1 cannot send VMs: /etc/pki/CA/cacert.pem is missing on h1"

// A host that cannot send VMs is named as such before any drain is asked for. Its drain is refused before anything moves, and
// goes on once the cause is mended.
func TestDrainOfAHostThatCannotSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 3)
		if err := world.NoRoute("h1", "", noCA); err != nil {
			t.Fatal(err)
		}
		c := startCluster(t, scratch.Dir(t), world, 3)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 6, 0.5, 512*mib), leader.Call{}))
		v := c.eventually("it is named", func(v *leader.View) bool { return len(v.MissingRoutes()) > 0 })
		if got := v.MissingRoutes()[0].String(); got != "h1 cannot send VMs: /etc/pki/CA/cacert.pem is missing on h1 (see docs/how-to/set-up-live-migration.md)" || len(v.MissingRoutes()) > 1 {
			t.Errorf("%v", v.MissingRoutes())
		}
		vms := len(on(v, "h1"))
		dry, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{DryRun: true})
		if err != nil || len(dry.Plan.Steps) > 0 || len(dry.Blockers) != vms {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		for _, b := range dry.Blockers {
			if b.Why != noCAOnH1 || !slices.Contains(b.Advice, "see docs/how-to/set-up-live-migration.md") {
				t.Errorf("%+v", b)
			}
		}
		var blocked *leader.Blocked
		_, err = c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{})
		if !errors.As(err, &blocked) || strings.Count(err.Error(), noCA.Why) != 1 {
			t.Errorf("the drain: %v", err)
		}
		if h, _ := c.state.Snapshot().Host("h1"); h.Cordoned || len(c.state.Snapshot().Migrations()) > 0 {
			t.Errorf("host %+v, migrations %+v", h, c.state.Snapshot().Migrations())
		}
		// Others are emptied, also to h1.
		if dry, err = c.Drain(ctx, "h2", leader.DrainRequest{}, leader.Call{DryRun: true}); err != nil || len(dry.Blockers) > 0 {
			t.Errorf("of another host: %+v, %v", dry.Blockers, err)
		}
	})
}

// A fault that was not known before a drain is found by its first moves: the cause is named right, and no VM is tried twice for
// it.
func TestDrainThatFindsNoRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 3)
		c := startCluster(t, scratch.Dir(t), world, 3)
		calm(c)
		ctx := t.Context()
		c.done(c.Create(ctx, vc("a", 6, 0.5, 512*mib), leader.Call{}))
		if err := world.NoRoute("h1", "", noCA); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Drain(ctx, "h1", leader.DrainRequest{}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		v := c.drainIs("h1", state.DrainBlocked)
		h, _ := v.Host("h1")
		if !strings.Contains(h.Drain.Text, noCAOnH1) || strings.Count(h.Drain.Text, "cannot send") != 1 {
			t.Errorf("the drain: %s", h.Drain.Text)
		}
		tried := map[string]int{}
		for _, m := range v.Migrations() {
			if tried[m.VM]++; tried[m.VM] > 1 {
				t.Errorf("VM %s was tried %d times", m.VM, tried[m.VM])
			}
		}
		noHarm(t, world, 4, 8<<30)
	})
}
