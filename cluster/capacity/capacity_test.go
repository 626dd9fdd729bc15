package capacity

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCharge(t *testing.T) {
	for _, tc := range []struct {
		name string
		vm   VM
		want Charge
	}{
		{"as it was started", VM{Reported: 100, Target: 100, Boot: 100, Share: 1}, Charge{1, 110, 0}},
		{"a new start, of which nothing is reported", VM{Target: 100, Boot: 100, Share: 1}, Charge{1, 110, 0}},
		{"deflated: it may take back the rest", VM{Reported: 40, Target: 40, Boot: 100, Share: 1}, Charge{1, 50, 60}},
		{"to be deflated: it counts until the guest has let go", VM{Reported: 100, Target: 40, Boot: 100, Share: 1}, Charge{1, 110, 0}},
		{"to be inflated: it counts from the decision on", VM{Reported: 40, Target: 80, Boot: 100, Share: 1}, Charge{1, 90, 20}},
		{"it moves, and its group is given more", VM{Reported: 100, Target: 100, Boot: 100, Share: 2, Frozen: 1}, Charge{2, 110, 0}},
		{"it moves, and its group is given less", VM{Reported: 100, Target: 100, Boot: 100, Share: 1, Frozen: 2}, Charge{2, 110, 0}},
		{"it stops: its group's share and target are others' now", VM{Reported: 40, Target: 80, Boot: 100, Share: 2, Frozen: 1, Stopping: true}, Charge{1, 50, 60}},
		{"it has more than it was started with", VM{Reported: 120, Target: 120, Boot: 100, Share: 1}, Charge{1, 130, 0}},
	} {
		if got := tc.vm.Charge(10); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// Any VMs, in any order: the ledger has their sums, and whatever one VM takes back by itself, or four of equal deficits a quarter each, the
// host has the memory.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Ledger{Usable: Resources{CPU: 8, Memory: rapid.Int64Range(0, 400).Draw(t, "usable")}}
		var memory, deficits, largest int64
		n := rapid.IntRange(0, 8).Draw(t, "VMs")
		for range n {
			c := VM{Reported: rapid.Int64Range(0, 100).Draw(t, "reported"), Target: rapid.Int64Range(0, 100).Draw(t, "target"), Boot: rapid.Int64Range(0, 100).Draw(t, "boot"),
				Share: float64(rapid.IntRange(0, 4).Draw(t, "share")), Stopping: rapid.Bool().Draw(t, "stops")}.Charge(3)
			before := l
			fits := l.Fits(c)
			if l != before {
				t.Fatal("asking changed it")
			}
			l.Add(c)
			memory, deficits, largest = memory+c.Memory, deficits+c.Deficit, max(largest, c.Deficit)
			free := l.Free()
			if fits != (free.CPU >= 0 && free.Memory >= 0) {
				t.Fatalf("fits: %v, and then %+v are free", fits, free)
			}
			if cpu, more := l.Exceeded(before.Load); more != (free.Memory < 0 && (c.Memory > 0)) || cpu != (free.CPU < 0 && c.CPU > 0) {
				t.Fatalf("exceeded: CPU %v, memory %v, with %+v free after %+v", cpu, more, free, c)
			}
			if cpu, more := l.Exceeded(l.Load); cpu || more {
				t.Fatal("it is no worse than it was")
			}
		}
		if want := memory + max(largest, (deficits+3)/4); l.Taken() != want || l.VMs != n {
			t.Fatalf("%d bytes of %d VMs, want %d of %d", l.Taken(), l.VMs, want, n)
		}
	})
}

// The order of VMs is of no account.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		charges := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Charge {
			return Charge{CPU: float64(rapid.IntRange(0, 8).Draw(t, "quarters")) / 4, Memory: rapid.Int64Range(1, 1<<40).Draw(t, "memory"), Deficit: rapid.Int64Range(0, 1<<40).Draw(t, "deficit")}
		}), 0, 8).Draw(t, "charges")
		var a, b Load
		for _, c := range charges {
			a.Add(c)
		}
		slices.Reverse(charges)
		for _, c := range charges {
			b.Add(c)
		}
		if a != b {
			t.Fatalf("%+v, the other way around %+v", a, b)
		}
	})
}
