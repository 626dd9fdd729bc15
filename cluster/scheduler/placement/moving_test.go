package placement_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Shares make room before a VM moves, stand still while it does, and follow when it has arrived.
func TestSharesAroundAMove(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b")
	create := func(name, host string, cpu float64) {
		g := scheduling.Group(1, cpu, scheduling.GiB)
		g.Affinity.Require = []string{"host:" + host}
		c.Enact(name, admission.Create(c.Snapshot(), scheduling.VC(name, 0, g), c.Env()).Plan)
	}
	create("x", "a", 4)
	create("y", "a", 4)
	create("z", "b", 4)
	c.Run()
	x := c.VMOf("x")
	open := state.Move{VM: x.ID, Generation: 1, To: "b", Open: true, ID: "m", Plan: "p"}
	if err := c.Put(state.KindMove, open); !errors.Is(err, state.ErrNotFound) {
		t.Fatalf("a move of no plan: %v", err)
	}
	c.Expect("p", x, "b")
	if err := c.Put(state.KindMove, open); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("a move to a host without room for its share: %v", err)
	}
	if !c.Reallocate() || c.Share("x") != 2 || c.Share("y") != 2 || c.Share("z") != 2 {
		t.Fatalf("before the move: %v, %v, %v", c.Share("x"), c.Share("y"), c.Share("z"))
	}
	c.Must(state.KindMove, open)
	if c.Reallocate() {
		t.Fatalf("during the move: %v, %v, %v", c.Share("x"), c.Share("y"), c.Share("z"))
	}
	c.Must(state.KindMove, state.Move{VM: x.ID, Generation: 1, To: "b", Arrived: true, Move: c.Index})
	if !c.Reallocate() || c.Share("x") != 2 || c.Share("y") != 4 || c.Share("z") != 2 {
		t.Fatalf("after the move: %v, %v, %v", c.Share("x"), c.Share("y"), c.Share("z"))
	}
}

// A new VC gets nothing of what a VM that moves, or is about to, has on either host.
func TestAdmissionBesideMoves(t *testing.T) {
	for _, state0 := range []string{"still", "about to move", "moves"} {
		c := scheduling.NewCluster(t, "a", "b")
		c.Enact("x", admission.Create(c.Snapshot(), scheduling.VC("x", 1, scheduling.Group(1, 3, 5*scheduling.GiB)), c.Env()).Plan)
		c.Run()
		x := c.VMOf("x")
		to := map[string]string{"a": "b", "b": "a"}[x.Host]
		if state0 != "still" {
			c.Expect("p", x, to)
		}
		if state0 == "moves" {
			c.Must(state.KindMove, state.Move{VM: x.ID, Generation: 1, To: to, Open: true, ID: "m", Plan: "p"})
		}
		for what, g := range map[string]state.Group{"CPU": scheduling.Group(1, 4, scheduling.GiB), "memory": scheduling.Group(1, 0.1, 4*scheduling.GiB)} {
			if d := admission.Consider(c.Snapshot(), scheduling.VC("y", 1, g), c.Env()); d.Admitted != (state0 == "still") {
				t.Errorf("x %s: %s: admitted: %v", state0, what, d.Admitted)
			}
		}
		a := admission.Scale(c.Snapshot(), func() state.VC {
			v, _ := c.Snapshot().VCNamed("x")
			v.Groups = slices.Clone(v.Groups)
			v.Groups[0].CPU = 4
			return v
		}(), c.Env())
		if a.Plan == nil {
			t.Fatalf("x %s: it cannot grow", state0)
		}
		if err := c.Put(state.KindPlan, a.Plan); err != nil {
			t.Errorf("x %s: what it was promised is refused: %v", state0, err)
		}
	}
}

// Whatever moves: no plan that shares CPU again is refused, and none changes the share of what moves.
func TestSharesWhileVMsMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"a", "b", "c"}
		c := scheduling.NewCluster(t, hosts...)
		for i := range rapid.IntRange(2, 6).Draw(t, "VCs") {
			g := scheduling.Group(rapid.IntRange(1, 2).Draw(t, "VMs"), float64(rapid.IntRange(2, 12).Draw(t, "need"))/4, scheduling.GiB)
			if a := admission.Create(c.Snapshot(), scheduling.VC(string(rune('p'+i)), 0, g), c.Env()); a.Plan != nil && !a.Queued {
				c.Enact("create", a.Plan)
			}
		}
		c.Run()
		for i := range 20 {
			vms := c.Snapshot().VMs()
			vm := rapid.SampledFrom(vms).Draw(t, "VM")
			id := "plan" + string(rune('a'+i))
			switch {
			case vm.MovingTo != "":
				c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: vm.MovingTo, Move: c.MoveOf(vm.ID), Arrived: rapid.Bool().Draw(t, "arrived")})
			default:
				to := rapid.SampledFrom(hosts).Draw(t, "to")
				if to == vm.Host || c.Snapshot().Preparing()[vm.ID] != "" {
					continue
				}
				c.Expect(id, vm, to)
				c.Reallocate()
				_ = c.Put(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Open: true, ID: "m" + id, Plan: id})
				if rapid.Bool().Draw(t, "ends") {
					p, _ := c.Snapshot().MovePlan(id)
					p.State = state.MovesStopped
					c.Must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: p.ModifyIndex})
				}
			}
			c.Reallocate()
			for _, h := range c.Snapshot().Hosts() {
				if l := c.Snapshot().LoadOf(h.Name); l.CPU > 4*(1+1e-9) || l.Taken() > 8*scheduling.GiB {
					t.Fatalf("host %s: %+v", h.Name, l)
				}
			}
		}
	})
}
