package loop_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// lessMemory gives the VMs of a VC less than they were started with, and their guests let go.
func (c *cluster) lessMemory(name string, memory int64) {
	c.t.Helper()
	x := c.named(name)
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = memory
	c.enact("less memory", loop.Scale(c.Snapshot(), x, c.env()).Plan)
	c.commitPlan()
}

// left beside the reserve, by the state's ledger.
func left(s *state.Snapshot, host string) int64 { return s.LedgerOf(host).Free().Memory }

// Eight VMs may take back 3 GiB each: no VC is admitted into a quarter of that, by any count, and all counts agree to the last
// MiB.
func TestAQuarterIsKept(t *testing.T) {
	c := newCluster(t)
	c.host("h1", 4, 40*gib, state.Resources{})
	c.create(vc("a", 1, group(8, 0.1, 4*gib)))
	c.commitPlan()
	c.lessMemory("a", gib)
	const has = 8*(gib+64*mib) + 6*gib
	c.host("h1", 4, has+2*gib, state.Resources{})
	var index loop.CapacityIndex
	if got := index.MemoryLeft(c.Snapshot(), "h1"); got != 2*gib || left(c.Snapshot(), "h1") != got {
		t.Fatalf("%d MiB are left", got>>20)
	}
	limit := int64(2*gib - 64*mib)
	if a := loop.Create(c.Snapshot(), vc("b", 1, group(1, 0.1, limit+mib)), c.env()); a.Decision.Admitted {
		t.Errorf("admitted into the reserve: %+v", a.Decision)
	}
	a := loop.Create(c.Snapshot(), vc("b", 1, group(1, 0.1, limit)), c.env())
	if a.Plan == nil || a.Queued {
		t.Fatalf("it fits: %+v", a.Decision)
	}
	larger := *a.Plan
	larger.VMs = slices.Clone(larger.VMs)
	larger.VMs[0].BootMemory, larger.VMs[0].ChargedMemory = limit+mib, limit+mib
	if err := c.apply(state.KindPlan, larger); !errors.Is(err, state.ErrConflict) {
		t.Errorf("planned into the reserve: %v", err)
	}
	c.enact("b", a.Plan)
	// Where less than the reserve is left nothing is done: no VM is evicted, others stay as they are.
	c.host("h1", 4, has+gib, state.Resources{})
	for _, p := range []*state.Plan{loop.Reallocate(c.Snapshot()), loop.Restart(c.Snapshot(), c.env())} {
		if p != nil {
			t.Errorf("%+v", p)
		}
	}
	c.enact("b goes", loop.Delete(c.Snapshot(), c.named("b"), c.env()).Plan)
}

// A VM that comes with what it may take back counts alike where it is expected, where it is opened, and where it is on its way.
func TestReserveOfArrivingVMs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		c.host("h1", 8, 64*gib, state.Resources{})
		memory := func(of string) int64 { return int64(rapid.IntRange(1, 16).Draw(t, of)) * gib / 4 }
		var names []string
		for range rapid.IntRange(0, 9).Draw(t, "there") {
			names = append(names, string(rune('a'+len(names))))
			c.create(vc(names[len(names)-1], 1, group(1, 0.1, 4*gib)))
		}
		c.host("h2", 4, 8*gib, state.Resources{})
		x := vc("x", 1, group(1, 0.1, 4*gib))
		x.Groups[0].Affinity.Require = []string{"host:h2"}
		c.create(x)
		c.commitPlan()
		for _, name := range append(names, "x") {
			c.lessMemory(name, memory("has"))
		}
		vm := c.vmOf("x")
		h, _ := c.Snapshot().Host("h1")
		need := c.Snapshot().LoadOf("h1")
		need.Add(vm.ChargeOn(h, c.named("x").Groups[0]))
		// It has just the room, or a byte less.
		deficit := int64(rapid.IntRange(0, 1).Draw(t, "lacks"))
		c.host("h1", 8, need.Taken()-deficit, state.Resources{})
		var index loop.CapacityIndex
		if got := index.MemoryLeft(c.Snapshot(), "h1"); got != left(c.Snapshot(), "h1") {
			t.Fatalf("%d are left, the state says %d", got, left(c.Snapshot(), "h1"))
		}
		c.expect("p", vm, "h1")
		if got := index.MemoryLeft(c.Snapshot(), "h1"); got != -deficit {
			t.Fatalf("expected: %d are left, want %d", got, -deficit)
		}
		actions := loop.Next(c.Snapshot(), newMover(c).execute())
		if opens := slices.ContainsFunc(actions, func(a loop.Action) bool { return a.Open != nil }); opens != (deficit == 0) {
			t.Fatalf("%d lack: %v", deficit, actions)
		}
		err := c.apply(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: "h1", Open: true, ID: "m", Plan: "p"})
		if (err != nil) != (deficit > 0) {
			t.Fatalf("%d lack: %v", deficit, err)
		}
		if got := left(c.Snapshot(), "h1"); err == nil && (got != 0 || index.MemoryLeft(c.Snapshot(), "h1") != 0) {
			t.Fatalf("on its way: %d are left, by the rooms %d", got, index.MemoryLeft(c.Snapshot(), "h1"))
		}
	})
}
