package admission_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// left beside the reserve, by the state's ledger.
func left(s *state.Snapshot, host string) int64 { return s.LedgerOf(host).Free().Memory }

// Eight VMs may take back 3 GiB each: no VC is admitted into a quarter of that, by any count, and all counts agree to the last
// MiB.
func TestAQuarterIsKept(t *testing.T) {
	c := scheduling.NewCluster(t)
	c.Host("h1", 4, 40*scheduling.GiB, state.Resources{})
	c.Create(scheduling.VC("a", 1, scheduling.Group(8, 0.1, 4*scheduling.GiB)))
	c.CommitPlan()
	c.LessMemory("a", scheduling.GiB)
	const has = 8*(scheduling.GiB+64*scheduling.MiB) + 6*scheduling.GiB
	c.Host("h1", 4, has+2*scheduling.GiB, state.Resources{})
	var index admission.CapacityIndex
	if got := index.Free(c.Snapshot(), "h1").Memory; got != 2*scheduling.GiB || left(c.Snapshot(), "h1") != got {
		t.Fatalf("%d MiB are left", got>>20)
	}
	limit := int64(2*scheduling.GiB - 64*scheduling.MiB)
	if a := admission.Create(c.Snapshot(), scheduling.VC("b", 1, scheduling.Group(1, 0.1, limit+scheduling.MiB)), c.Env()); a.Decision.Admitted {
		t.Errorf("admitted into the reserve: %+v", a.Decision)
	}
	a := admission.Create(c.Snapshot(), scheduling.VC("b", 1, scheduling.Group(1, 0.1, limit)), c.Env())
	if a.Plan == nil || a.Queued {
		t.Fatalf("it fits: %+v", a.Decision)
	}
	larger := *a.Plan
	larger.VMs = slices.Clone(larger.VMs)
	larger.VMs[0].BootMemory, larger.VMs[0].ChargedMemory = limit+scheduling.MiB, limit+scheduling.MiB
	if err := c.Put(state.KindPlan, larger); !errors.Is(err, state.ErrConflict) {
		t.Errorf("planned into the reserve: %v", err)
	}
	c.Enact("b", a.Plan)
	// Where less than the reserve is left nothing is done: no VM is evicted, others stay as they are.
	c.Host("h1", 4, has+scheduling.GiB, state.Resources{})
	for _, p := range []*state.Plan{placement.Reallocate(c.Snapshot()), admission.Restart(c.Snapshot(), c.Env())} {
		if p != nil {
			t.Errorf("%+v", p)
		}
	}
	c.Enact("b goes", admission.Delete(c.Snapshot(), c.Named("b"), c.Env()).Plan)
}

// A VM that comes with what it may take back counts alike where it is expected, where it is opened, and where it is on its way.
func TestReserveOfArrivingVMs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := scheduling.NewCluster(t)
		c.Host("h1", 8, 64*scheduling.GiB, state.Resources{})
		memory := func(of string) int64 { return int64(rapid.IntRange(1, 16).Draw(t, of)) * scheduling.GiB / 4 }
		var names []string
		for range rapid.IntRange(0, 9).Draw(t, "there") {
			names = append(names, string(rune('a'+len(names))))
			c.Create(scheduling.VC(names[len(names)-1], 1, scheduling.Group(1, 0.1, 4*scheduling.GiB)))
		}
		c.Host("h2", 4, 8*scheduling.GiB, state.Resources{})
		x := scheduling.VC("x", 1, scheduling.Group(1, 0.1, 4*scheduling.GiB))
		x.Groups[0].Affinity.Require = []string{"host:h2"}
		c.Create(x)
		c.CommitPlan()
		for _, name := range append(names, "x") {
			c.LessMemory(name, memory("has"))
		}
		vm := c.VMOf("x")
		h, _ := c.Snapshot().Host("h1")
		need := c.Snapshot().LoadOf("h1")
		need.Add(vm.ChargeOn(h, c.Named("x").Groups[0]))
		// It has just the room, or a byte less.
		deficit := int64(rapid.IntRange(0, 1).Draw(t, "lacks"))
		c.Host("h1", 8, need.Taken()-deficit, state.Resources{})
		var index admission.CapacityIndex
		if got := index.Free(c.Snapshot(), "h1").Memory; got != left(c.Snapshot(), "h1") {
			t.Fatalf("%d are left, the state says %d", got, left(c.Snapshot(), "h1"))
		}
		c.Expect("p", vm, "h1")
		if got := index.Free(c.Snapshot(), "h1").Memory; got != -deficit {
			t.Fatalf("expected: %d are left, want %d", got, -deficit)
		}
		synced := func(string) uint64 { return c.Index }
		actions := moves.Next(c.Snapshot(), moves.Execution{Env: c.Env(), SyncedUpTo: synced, Synced: synced,
			UnavailableFor: func(string) time.Duration { return time.Hour }, Refused: func(string, int) (int, string) { return 0, "" }})
		if opens := slices.ContainsFunc(actions, func(a moves.Action) bool { return a.Open != nil }); opens != (deficit == 0) {
			t.Fatalf("%d lack: %v", deficit, actions)
		}
		err := c.Put(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: "h1", Open: true, ID: "m", Plan: "p"})
		if (err != nil) != (deficit > 0) {
			t.Fatalf("%d lack: %v", deficit, err)
		}
		if got := left(c.Snapshot(), "h1"); err == nil && (got != 0 || index.Free(c.Snapshot(), "h1").Memory != 0) {
			t.Fatalf("on its way: %d are left, by the rooms %d", got, index.Free(c.Snapshot(), "h1").Memory)
		}
	})
}
