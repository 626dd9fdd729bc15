package loop_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// run everything that was admitted.
func (c *cluster) run() {
	c.t.Helper()
	for _, vm := range c.Snapshot().VMs() {
		if vm.Phase == state.Starting {
			c.must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Running}}})
		}
	}
}

// shares in force, by VC.
func (c *cluster) share(name string) float64 {
	c.t.Helper()
	vc, ok := c.Snapshot().VCNamed(name)
	if !ok {
		c.t.Fatalf("no %s", name)
	}
	return vc.Groups[0].Allocation
}

func (c *cluster) vmOf(name string) state.VM {
	c.t.Helper()
	vc, _ := c.Snapshot().VCNamed(name)
	return c.Snapshot().VMsOf(vc.ID)[0]
}

// expect makes a plan whose only step is about to begin.
func (c *cluster) expect(id string, vm state.VM, to string) {
	c.t.Helper()
	c.must(state.KindMovePlan, state.MovePlanPut{Plan: state.MovePlan{ID: id, Kind: state.MovesRebalance, State: state.MovesRunning, Budget: -1,
		Steps: []state.MoveStep{{VM: vm.ID, From: vm.Host, To: to, Allotment: -1, State: state.StepPreparing}}}})
}

func (c *cluster) reallocate() bool {
	c.t.Helper()
	p := loop.Reallocate(c.Snapshot())
	if p == nil {
		return false
	}
	before := c.Snapshot()
	c.must(state.KindPlan, p)
	for _, vm := range before.VMs() {
		if old, _ := before.VC(vm.VC); vm.MovingTo != "" {
			if now, _ := c.Snapshot().VC(vm.VC); now.Groups[0].Allocation != old.Groups[0].Allocation {
				c.t.Fatalf("the share of %s changed from %v to %v while it moves", vm.Name, old.Groups[0].Allocation, now.Groups[0].Allocation)
			}
		}
	}
	return true
}

// Shares make room before a VM moves, stand still while it does, and follow when it has arrived.
func TestSharesAroundAMove(t *testing.T) {
	c := newCluster(t, "a", "b")
	create := func(name, host string, cpu float64) {
		g := group(1, cpu, gib)
		g.Affinity.Require = []string{"host:" + host}
		c.enact(name, loop.Create(c.Snapshot(), vc(name, 0, g), c.env()).Plan)
	}
	create("x", "a", 4)
	create("y", "a", 4)
	create("z", "b", 4)
	c.run()
	x := c.vmOf("x")
	open := state.Move{VM: x.ID, Generation: 1, To: "b", Open: true, ID: "m", Plan: "p"}
	if err := c.apply(state.KindMove, open); !errors.Is(err, state.ErrNotFound) {
		t.Fatalf("a move of no plan: %v", err)
	}
	c.expect("p", x, "b")
	if err := c.apply(state.KindMove, open); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("a move to a host without room for its share: %v", err)
	}
	if !c.reallocate() || c.share("x") != 2 || c.share("y") != 2 || c.share("z") != 2 {
		t.Fatalf("before the move: %v, %v, %v", c.share("x"), c.share("y"), c.share("z"))
	}
	c.must(state.KindMove, open)
	if c.reallocate() {
		t.Fatalf("during the move: %v, %v, %v", c.share("x"), c.share("y"), c.share("z"))
	}
	c.must(state.KindMove, state.Move{VM: x.ID, Generation: 1, To: "b", Arrived: true, Move: c.index})
	if !c.reallocate() || c.share("x") != 2 || c.share("y") != 4 || c.share("z") != 2 {
		t.Fatalf("after the move: %v, %v, %v", c.share("x"), c.share("y"), c.share("z"))
	}
}

// A new VC gets nothing of what a VM that moves, or is about to, has on either host.
func TestAdmissionBesideMoves(t *testing.T) {
	for _, state0 := range []string{"still", "about to move", "moves"} {
		c := newCluster(t, "a", "b")
		c.enact("x", loop.Create(c.Snapshot(), vc("x", 1, group(1, 3, 5*gib)), c.env()).Plan)
		c.run()
		x := c.vmOf("x")
		to := map[string]string{"a": "b", "b": "a"}[x.Host]
		if state0 != "still" {
			c.expect("p", x, to)
		}
		if state0 == "moves" {
			c.must(state.KindMove, state.Move{VM: x.ID, Generation: 1, To: to, Open: true, ID: "m", Plan: "p"})
		}
		for what, g := range map[string]state.Group{"CPU": group(1, 4, gib), "memory": group(1, 0.1, 4*gib)} {
			if d := loop.Consider(c.Snapshot(), vc("y", 1, g), c.env()); d.Admitted != (state0 == "still") {
				t.Errorf("x %s: %s: admitted: %v", state0, what, d.Admitted)
			}
		}
		a := loop.Scale(c.Snapshot(), func() state.VC {
			v, _ := c.Snapshot().VCNamed("x")
			v.Groups = slices.Clone(v.Groups)
			v.Groups[0].CPU = 4
			return v
		}(), c.env())
		if a.Plan == nil {
			t.Fatalf("x %s: it cannot grow", state0)
		}
		if err := c.apply(state.KindPlan, a.Plan); err != nil {
			t.Errorf("x %s: what it was promised is refused: %v", state0, err)
		}
	}
}

// Whatever moves: no plan that shares CPU again is refused, and none changes the share of what moves.
func TestSharesWhileVMsMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"a", "b", "c"}
		c := newCluster(t, hosts...)
		for i := range rapid.IntRange(2, 6).Draw(t, "VCs") {
			g := group(rapid.IntRange(1, 2).Draw(t, "VMs"), float64(rapid.IntRange(2, 12).Draw(t, "need"))/4, gib)
			if a := loop.Create(c.Snapshot(), vc(string(rune('p'+i)), 0, g), c.env()); a.Plan != nil && !a.Queued {
				c.enact("create", a.Plan)
			}
		}
		c.run()
		for i := range 20 {
			vms := c.Snapshot().VMs()
			vm := rapid.SampledFrom(vms).Draw(t, "VM")
			id := "plan" + string(rune('a'+i))
			switch {
			case vm.MovingTo != "":
				c.must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: vm.MovingTo, Move: vm.Move, Arrived: rapid.Bool().Draw(t, "arrived")})
			default:
				to := rapid.SampledFrom(hosts).Draw(t, "to")
				if to == vm.Host || c.Snapshot().Preparing()[vm.ID] != "" {
					continue
				}
				c.expect(id, vm, to)
				c.reallocate()
				_ = c.apply(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Open: true, ID: "m" + id, Plan: id})
				if rapid.Bool().Draw(t, "ends") {
					p, _ := c.Snapshot().MovePlan(id)
					p.State = state.MovesStopped
					c.must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: p.ModifyIndex})
				}
			}
			c.reallocate()
			for _, h := range c.Snapshot().Hosts() {
				if l := c.Snapshot().LoadOf(h.Name); l.CPU > 4*(1+1e-9) || l.Taken() > 8*gib {
					t.Fatalf("host %s: %+v", h.Name, l)
				}
			}
		}
	})
}
