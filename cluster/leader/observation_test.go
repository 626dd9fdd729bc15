package leader_test

import (
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// A host's clock may be an hour off: the age of what it reported is what the leader counts since, no more and no less.
func TestHostsClockIsWrong(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
			const gib = 1 << 30
			h.ahead = off
			h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
			h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
			h.pass(15 * time.Minute)
			alone := func() string {
				x, err := h.Rightsizing(t.Context())
				if err != nil || len(x.VMs) != 1 {
					t.Fatalf("clock %v off: %+v, %v", off, x, err)
				}
				return x.VMs[0].Excluded
			}
			vm, g := h.vm("old-g-0")
			if vm.Target == 0 || vm.Target > 3*gib || g.Estimated == 0 {
				t.Fatalf("clock %v off: nothing was taken: %+v, %+v (%s)", off, vm, g, alone())
			}
			h.mute = true
			h.pass(8 * time.Minute)
			if why := alone(); why != "" {
				t.Errorf("clock %v off: after 8 minutes without a forecast: %s", off, why)
			}
			h.pass(4 * time.Minute)
			if vm, g := h.vm("old-g-0"); vm.Target != 0 || g.Estimated != 0 || alone() != "nothing new is forecast for it" {
				t.Errorf("clock %v off: after 12 minutes without a forecast: %+v, %+v (%s)", off, vm, g, alone())
			}
		})
	}
}

// What was measured some time before a host reports it is that much older.
func TestForecastThatComesLate(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		const gib = 1 << 30
		h.ahead, h.late = time.Hour, 7*time.Minute
		h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		h.pass(15 * time.Minute)
		if vm, _ := h.vm("old-g-0"); vm.Target == 0 {
			t.Fatalf("nothing was taken: %+v", vm)
		}
		h.mute = true
		h.pass(5 * time.Minute)
		if vm, _ := h.vm("old-g-0"); vm.Target != 0 {
			t.Errorf("what was forecast by what was measured 12 minutes ago holds: %+v", vm)
		}
	})
}

// A host may shrink balloons by itself of VMs that agreed to it and have less already, down to what they may always count on.
func TestMinMemoryThatAHostIsSent(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		const gib = 1 << 30
		lowest := func(name string) int64 {
			t.Helper()
			want, _, err := h.Desired(t.Context(), "h1")
			if err != nil {
				t.Fatal(err)
			}
			for _, vm := range want.VMs {
				if vm.Spec.Title == name+"-g-0" {
					return vm.MinMemory
				}
			}
			t.Fatalf("no VM of %s", name)
			return 0
		}
		h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
		h.run("fixed", state.NeedsDeclared, "core", gib, gib/2)
		h.pass(time.Minute)
		if old, fixed := lowest("old"), lowest("fixed"); old != 0 || fixed != 0 {
			t.Errorf("in the shadow: %d, %d", old, fixed)
		}
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		h.pass(15 * time.Minute)
		if old, fixed := lowest("old"), lowest("fixed"); old != 256<<20 || fixed != 0 {
			t.Errorf("where it is on: %d, %d", old, fixed)
		}
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOff})
		if old := lowest("old"); old != 0 {
			t.Errorf("once it is off: %d", old)
		}
	})
}
