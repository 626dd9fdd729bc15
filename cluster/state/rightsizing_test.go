package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

// estimated runs a VC of VMs of 4 GiB that may have 1 GiB, with estimated needs, where rightsizing is on.
func estimated(t failer, k *cluster, name string, hosts ...string) {
	k.must(t, state.KindPlan, withNeeds(planOf(k.Snapshot(), name, 2, 4*gib, hosts...)))
	for i, h := range hosts {
		k.must(t, state.KindVMReport, report(h, "vm-"+name+"-"+string(rune('0'+i)), 1, state.Running))
	}
}

func withNeeds(p state.Plan) state.Plan {
	p.VC.Needs, p.VC.Aggressiveness = state.NeedsEstimated, state.Balanced
	p.VC.Groups[0].MemoryMin = gib
	return p
}

func rightsizing(t failer, k *cluster, x state.RightsizingSettings) {
	m, _ := k.Snapshot().Meta()
	m.Settings.Rightsizing = x
	k.must(t, state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
}

func targets(s *state.Snapshot, memory int64, vms ...string) state.Rightsize {
	out := state.Rightsize{Basis: s.Index()}
	for _, id := range vms {
		out.Targets = append(out.Targets, state.VMTarget{VM: id, Generation: 1, Memory: memory})
	}
	return out
}

// withRightsize adds rightsizing to the newest log.
func withRightsize(t *testing.T, k *cluster) {
	k.must(t, state.KindHostReport, hostReport("h9", 8, 16*gib))
	rightsizing(t, k, state.RightsizingSettings{Mode: state.RightsizingOn, Needs: state.NeedsDeclared, Aggressiveness: state.Aggressive, DisabledStages: []string{state.StageMargin}})
	estimated(t, k, "shaped", "h9")
	b := targets(k.Snapshot(), 2*gib, "vm-shaped-0")
	b.Needs, b.Text = []state.GroupNeed{{VC: "vc-shaped", Group: "g", CPU: 0.5}}, "1 VM shrinks"
	k.must(t, state.KindRightsize, b)
	less := report("h9", "vm-shaped-0", 1, state.Running)
	less.VMs[0].ChargedMemory = 2 * gib
	k.must(t, state.KindVMReport, less)
	if err := k.apply(t, state.KindRightsize, targets(k.Snapshot(), gib/2, "vm-shaped-0")); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("below the floor: %v", err)
	}
}

// withHours adds what rightsizing did to the newest log.
func withHours(t *testing.T, k *cluster) {
	h := state.RightsizingHour{From: start.Truncate(time.Hour), Mode: state.RightsizingShadow, Minutes: 60, Average: state.Resources{CPU: 1.5, Memory: 3 * gib}, VMs: 120, ShortCPU: 2, ShortMemory: 1,
		WorstCPU: 0.25, WorstMemory: gib, WorstVM: "shaped-g-0", Preempted: 1}
	k.must(t, state.KindRightsizingReport, state.RightsizingReport{Hours: []state.RightsizingHour{h}})
	h.Mode = "weird"
	if err := k.apply(t, state.KindRightsizingReport, state.RightsizingReport{Hours: []state.RightsizingHour{h}}); !errors.Is(err, state.ErrInvalid) {
		t.Fatalf("a mode of no kind: %v", err)
	}
}

// An hour that is reported again replaces the earlier report of it. The oldest hours are dropped. A report with an hour that no
// leader can have observed is refused whole.
func TestRightsizingHours(t *testing.T) {
	k := small(t, 1)
	hour := func(n int, mode state.RightsizingMode, minutes float64) state.RightsizingHour {
		return state.RightsizingHour{From: start.Truncate(time.Hour).Add(time.Duration(n) * time.Hour), Mode: mode, Minutes: minutes}
	}
	report := func(hours ...state.RightsizingHour) error {
		return k.apply(t, state.KindRightsizingReport, state.RightsizingReport{Hours: hours})
	}
	if err := report(hour(1, state.RightsizingShadow, 10), hour(0, state.RightsizingShadow, 60), hour(1, state.RightsizingOn, 5)); err != nil {
		t.Fatal(err)
	}
	if err := report(hour(1, state.RightsizingShadow, 20)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range k.Snapshot().RightsizingHours() {
		got = append(got, fmt.Sprintf("%s %s %g", h.From.Format("15:04"), h.Mode, h.Minutes))
	}
	if diff := cmp.Diff([]string{"03:00 shadow 60", "04:00 on 5", "04:00 shadow 20"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, bad := range map[string]func(*state.RightsizingHour){
		"half an hour": func(h *state.RightsizingHour) { h.From = h.From.Add(30 * time.Minute) },
		"mode":         func(h *state.RightsizingHour) { h.Mode = state.RightsizingOff },
		"minutes":      func(h *state.RightsizingHour) { h.Minutes = -1 },
		"memory":       func(h *state.RightsizingHour) { h.WorstMemory = -1 },
		"preempted":    func(h *state.RightsizingHour) { h.Preempted = -1 },
		"year": func(h *state.RightsizingHour) {
			h.From = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -14*3600))
		},
	} {
		h := hour(9, state.RightsizingOn, 1)
		bad(&h)
		if err := report(hour(8, state.RightsizingOn, 1), h); !errors.Is(err, state.ErrInvalid) || len(k.Snapshot().RightsizingHours()) != 3 {
			t.Errorf("%s: %v, %d hours", name, err, len(k.Snapshot().RightsizingHours()))
		}
	}
	for n := 2; n < 2*state.RightsizingHours; n++ {
		if err := report(hour(n, state.RightsizingOn, 60)); err != nil {
			t.Fatal(err)
		}
	}
	kept := k.Snapshot().RightsizingHours()
	if len(kept) != state.RightsizingHours || !kept[0].From.Equal(hour(state.RightsizingHours, "", 0).From) {
		t.Errorf("%d hours are kept, from %v", len(kept), kept[0].From)
	}
}

func TestRightsize(t *testing.T) {
	k := small(t, 2) // 4 cores, 8 GiB each
	h, _ := k.Snapshot().Host("h1")
	rightsizing(t, k, state.RightsizingSettings{Mode: state.RightsizingOn})
	estimated(t, k, "a", "h1")
	frozen := func(want int64) {
		t.Helper()
		if got := k.Snapshot().LoadOf("h1").Memory; got != want+h.VMOverhead*int64(k.Snapshot().LoadOf("h1").VMs) {
			t.Fatalf("%d MiB count, want %d", got>>20, want>>20)
		}
	}
	b := targets(k.Snapshot(), 2*gib, "vm-a-0")
	b.Needs = []state.GroupNeed{{VC: "vc-a", Group: "g", CPU: 0.5}}
	k.must(t, state.KindRightsize, b)
	vm, _ := k.Snapshot().VM("vm-a-0")
	vc, _ := k.Snapshot().VC("vc-a")
	g := vc.Groups[0]
	if vm.Due(g) != 2*gib || g.Need() != 0.5 || g.Yield() != 1 {
		t.Fatalf("%+v, %+v", vm, g)
	}
	frozen(4 * gib) // until the host says that the guest has let go
	report := func(bytes int64) {
		r := report("h1", "vm-a-0", 1, state.Running)
		r.VMs[0].ChargedMemory = bytes
		k.must(t, state.KindVMReport, r)
	}
	report(gib) // a target is counted also where the guest holds less
	frozen(2 * gib)
	if l := k.Snapshot().LoadOf("h1"); l.Reserve.Bytes() != 2*gib {
		t.Errorf("%d MiB are kept for the VM that may grow back", l.Reserve.Bytes()>>20)
	}
	report(3 * gib) // emergency grant: the host gave it more by itself
	frozen(3 * gib)
	k.must(t, state.KindRightsize, targets(k.Snapshot(), 0, "vm-a-0"))
	frozen(4 * gib)
	if vm, _ := k.Snapshot().VM("vm-a-0"); vm.Target != 0 {
		t.Errorf("%+v", vm)
	}
}

// Each of these is refused, and nothing of it comes true.
func TestRightsizeIsChecked(t *testing.T) {
	need := func(cpu float64) func(k *cluster) state.Rightsize {
		return func(k *cluster) state.Rightsize {
			b := targets(k.Snapshot(), 3*gib, "vm-a-0")
			b.Needs = []state.GroupNeed{{VC: "vc-a", Group: "g", CPU: cpu}}
			return b
		}
	}
	for name, c := range map[string]struct {
		rightsize func(k *cluster) state.Rightsize
		want      string
	}{
		"below the floor":     {func(k *cluster) state.Rightsize { return targets(k.Snapshot(), gib-1, "vm-a-0") }, "not from"},
		"above what it asked": {func(k *cluster) state.Rightsize { return targets(k.Snapshot(), 4*gib+1, "vm-a-0") }, "not from"},
		"needs more":          {need(2.5), "declared were 2"},
		"no such group": {func(k *cluster) state.Rightsize {
			return state.Rightsize{Basis: k.Snapshot().Index(), Needs: []state.GroupNeed{{VC: "vc-a", Group: "x", CPU: 1}}}
		}, "gone"},
		"another generation": {func(k *cluster) state.Rightsize {
			b := targets(k.Snapshot(), 2*gib, "vm-a-0")
			b.Targets[0].Generation = 2
			return b
		}, "gone"},
		"declared": {func(k *cluster) state.Rightsize { return targets(k.Snapshot(), 2*gib, "vm-d-0") }, "its needs are declared"},
		"off": {func(k *cluster) state.Rightsize {
			rightsizing(t, k, state.RightsizingSettings{Mode: state.RightsizingOff})
			return targets(k.Snapshot(), 2*gib, "vm-a-0")
		}, "rightsizing is off"},
		"shadow": {func(k *cluster) state.Rightsize {
			rightsizing(t, k, state.RightsizingSettings{})
			return targets(k.Snapshot(), 2*gib, "vm-a-0")
		}, "rightsizing is shadow"},
		"stops": {func(k *cluster) state.Rightsize {
			k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalStop))
			return targets(k.Snapshot(), 2*gib, "vm-a-0")
		}, "stopping"},
		"changed meanwhile": {func(k *cluster) state.Rightsize {
			b := targets(k.Snapshot(), 2*gib, "vm-a-0")
			p := planOf(k.Snapshot(), "a", 2, 4*gib)
			vc, _ := k.Snapshot().VC("vc-a")
			p.VC, p.VCVersion, p.Verb, p.Allocations, p.Operation = &vc, vc.ModifyIndex, "scaled", nil, nil
			k.must(t, state.KindPlan, p)
			return b
		}, "changed at index"},
		"one of two": {func(k *cluster) state.Rightsize { return targets(k.Snapshot(), 2*gib, "vm-a-0", "vm-d-0") }, "its needs are declared"},
	} {
		t.Run(name, func(t *testing.T) {
			k := small(t, 2)
			rightsizing(t, k, state.RightsizingSettings{Mode: state.RightsizingOn})
			estimated(t, k, "a", "h1")
			d := planOf(k.Snapshot(), "d", 1, 4*gib, "h2")
			d.VC.Needs, d.VC.Groups[0].MemoryMin = state.NeedsDeclared, gib
			k.must(t, state.KindPlan, d)
			k.must(t, state.KindVMReport, report("h2", "vm-d-0", 1, state.Running))
			b := c.rightsize(k)
			err := k.apply(t, state.KindRightsize, b)
			if !errors.Is(err, state.ErrConflict) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			vm, _ := k.Snapshot().VM("vm-a-0")
			if vc, _ := k.Snapshot().VC("vc-a"); vm.Target != 0 || vc.Groups[0].Estimated != 0 {
				t.Errorf("half of it came true: %+v, %+v", vm, vc)
			}
		})
	}
}

// Memory that was given to others cannot be taken back by a target.
func TestRightsizeKeepsLimits(t *testing.T) {
	k := small(t, 1)
	h, _ := k.Snapshot().Host("h1")
	rightsizing(t, k, state.RightsizingSettings{Mode: state.RightsizingOn})
	estimated(t, k, "a", "h1")
	k.must(t, state.KindRightsize, targets(k.Snapshot(), 3*gib, "vm-a-0"))
	r := report("h1", "vm-a-0", 1, state.Running)
	r.VMs[0].ChargedMemory = 3 * gib
	k.must(t, state.KindVMReport, r)
	left := h.Usable().Memory - 4*gib - 2*h.VMOverhead // 3 held and 1 kept
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "b", 1, left, "h1"))
	k.must(t, state.KindRightsize, targets(k.Snapshot(), 0, "vm-a-0")) // the reserve is what lets it
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "c", 1, gib/2, "h1")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("more than the host has: %v", err)
	}
}

func TestWhichVMsAreRightsized(t *testing.T) {
	for _, c := range []struct {
		set            state.RightsizingSettings
		vc             state.VC
		want           bool
		aggressiveness string
	}{
		{state.RightsizingSettings{}, state.VC{}, false, state.Balanced},
		{state.RightsizingSettings{}, state.VC{Needs: state.NeedsEstimated}, true, state.Balanced},
		{state.RightsizingSettings{Needs: state.NeedsEstimated, Aggressiveness: state.Conservative}, state.VC{}, true, state.Conservative},
		{state.RightsizingSettings{Needs: state.NeedsEstimated}, state.VC{Needs: state.NeedsDeclared, Aggressiveness: state.Aggressive}, false, state.Aggressive},
	} {
		if got, aggressiveness := c.set.Estimates(&c.vc), c.set.AggressivenessOf(&c.vc); got != c.want || aggressiveness != c.aggressiveness {
			t.Errorf("%+v, %+v: %v, %s", c.set, c.vc, got, aggressiveness)
		}
	}
	for _, bad := range []state.RightsizingSettings{{Mode: "maybe"}, {Needs: "guessed"}, {Aggressiveness: "reckless"}, {DisabledStages: []string{state.StageMargin, "buffer"}}} {
		if err := (state.SettingsPut{Settings: state.Settings{OnFull: state.Queue, Rightsizing: bad}}).Check(); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A host keeps a quarter of what all its VMs may take back, where that is more than one of them may.
func TestAQuarterIsKept(t *testing.T) {
	k := small(t, 0)
	k.must(t, state.KindHostReport, hostReport("h1", 4, 16*gib))
	hosts := []string{"h1", "h1", "h1", "h1", "h1", "h1", "h1", "h1"}
	p := planOf(k.Snapshot(), "a", 0.1, gib, hosts...)
	for i := range p.VMs {
		p.VMs[i].BootMemory = 3 * gib
	}
	k.must(t, state.KindPlan, p)
	l := k.Snapshot().LoadOf("h1")
	if l.Reserve.Largest() != 2*gib || l.Reserve.Bytes() != 4*gib {
		t.Fatalf("of 8 times 2 GiB %+v are kept", l)
	}
	free := 16*gib - l.Memory - l.Reserve.Bytes() - 64*mib
	add := func(name string, memory int64) error {
		return k.apply(t, state.KindPlan, planOf(k.Snapshot(), name, 0.1, memory, "h1"))
	}
	if err := add("b", free+1); !errors.Is(err, state.ErrConflict) {
		t.Errorf("into the quarter: %v", err)
	}
	if err := add("c", free); err != nil {
		t.Errorf("beside the quarter: %v", err)
	}
	// Where it is short of that already, what makes it no worse is taken.
	k.must(t, state.KindHostReport, hostReport("h1", 4, 14*gib))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "c", state.GoalDelete))
	k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "reallocated", AffectedHosts: []string{"h1"},
		Allocations: []state.Allocation{{VC: "vc-a", Group: "g", CPU: 0.05}}})
	if err := add("d", gib/4); !errors.Is(err, state.ErrConflict) {
		t.Errorf("more where it is short: %v", err)
	}
	// With the stage off it keeps what one VM may take back, and no quarter.
	k.must(t, state.KindHostReport, hostReport("h1", 4, 29*gib/2))
	if err := add("e", gib/4); !errors.Is(err, state.ErrConflict) {
		t.Errorf("into the quarter: %v", err)
	}
	rightsizing(t, k, state.RightsizingSettings{DisabledStages: []string{state.StageReserve}})
	if err := add("f", gib/4); err != nil {
		t.Errorf("where no quarter is kept: %v", err)
	}
	if err := add("g", gib/4); !errors.Is(err, state.ErrConflict) {
		t.Errorf("into what one VM may take back: %v", err)
	}
}
