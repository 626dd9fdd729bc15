package admission_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/simulate"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// An admission stage that is switched off decides as if its input were not there, and the other stage goes on: without a margin P is 1, without host
// availability no host reports any.
func TestStagesSwitchedOff(t *testing.T) {
	const off = "host availability is switched off (rightsizing.disabledStages)"
	for stage, tc := range map[string]struct {
		reports state.Resources // by the host
		without func(env *placement.Env)
	}{
		state.StageMargin:       {scheduling.Resources(2.9, 3200*scheduling.MiB), func(env *placement.Env) { env.Margin = times(1) }},
		state.StageAvailability: {scheduling.Resources(1.5, 2500*scheduling.MiB), func(env *placement.Env) { env.Availability = nil }},
	} {
		t.Run(stage, func(t *testing.T) {
			on, disabled := squeezed(t, state.RightsizingOn), squeezed(t, state.RightsizingOn)
			on.Set(state.RightsizingSettings{Mode: state.RightsizingOn})
			disabled.Set(state.RightsizingSettings{Mode: state.RightsizingOn, DisabledStages: []string{stage}})
			s, now := on.Snapshot(), disabled.Snapshot()
			report := placement.HostAvailability{At: on.Now, Available: tc.reports, VMs: map[string]uint64{}}
			for _, vm := range s.VMs() {
				report.VMs[vm.ID] = vm.Generation
			}
			env := withMargin(on, times(2), map[string]placement.HostAvailability{"h1": report})
			env.NewID = func() string { return "id" }
			less := env
			tc.without(&less)
			changed := false
			for _, cpu := range []float64{0.5, 1, 2, 2.7, 3} {
				for _, memory := range []int64{1000, 2000, 2900, 3400} {
					x := scheduling.VC("new", 1, scheduling.Group(1, cpu, memory*scheduling.MiB))
					before, want, got := admission.Consider(s, x, env), admission.Consider(s, x, less), admission.Consider(now, x, env)
					want.Summary = strings.ReplaceAll(want.Summary, "the host reported none", off)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%v cores, %d MiB: %+v, want %+v", cpu, memory, got, want)
					}
					changed = changed || got.Admitted != before.Admitted
				}
			}
			if !changed {
				t.Error("no request shows that the stage is off")
			}
			got, want := admission.HeadroomForNew(now, env), admission.HeadroomForNew(s, less)
			want[0].Ignored = strings.ReplaceAll(want[0].Ignored, "the host reported none", off)
			if !reflect.DeepEqual(got, want) || reflect.DeepEqual(got, admission.HeadroomForNew(s, env)) {
				t.Errorf("headroom %+v, want %+v", got, want)
			}
			if has := env.HasAvailable(now, "h1", scheduling.Resources(3.5, scheduling.GiB)); has != (stage == state.StageAvailability) || env.HasAvailable(s, "h1", scheduling.Resources(3.5, scheduling.GiB)) {
				t.Errorf("the fast path: the host has more than it reports: %v", has)
			}
			x := on.Named("a")
			if count := env.Margin.RulesFor(now, nil).CPU(&x, x.Groups[0]); (count == x.Groups[0].Need()) != (stage == state.StageMargin) {
				t.Errorf("moves: %v cores count as %v", x.Groups[0].Need(), count)
			}
		})
	}
}

// With the reserve switched off no quarter is kept of what the VMs of a host may take back, by any count. What the one VM may take back that
// may take most is kept as before.
func TestReserveSwitchedOff(t *testing.T) {
	c := scheduling.NewCluster(t)
	c.Host("h1", 4, 40*scheduling.GiB, state.Resources{})
	c.Create(scheduling.VC("a", 1, scheduling.Group(8, 0.1, 4*scheduling.GiB)))
	c.CommitPlan()
	c.LessMemory("a", scheduling.GiB)
	const has = 8 * (scheduling.GiB + 64*scheduling.MiB)
	c.Host("h1", 4, has+8*scheduling.GiB, state.Resources{})
	set := func(disabled ...string) {
		m, _ := c.Snapshot().Meta()
		m.Settings.OnFull, m.Settings.Rightsizing.DisabledStages = state.Queue, disabled
		c.Must(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
	}
	var index admission.CapacityIndex // stays, as a leader's does
	counts := func(what string, want int64) {
		t.Helper()
		byAdmission, byMoves := scheduling.MemoryLeft(c.Snapshot(), c.Env())
		for by, got := range map[string]int64{"the state": left(c.Snapshot(), "h1"), "the index": index.Free(c.Snapshot(), "h1").Memory, "admission": int64(byAdmission["h1"]), "moves": int64(byMoves["h1"])} {
			if got != want && !(by == "moves" && got == 0 && want < 0) { // which give a host beyond its limits what its VMs take
				t.Errorf("%s: %d MiB are left by %s, want %d", what, got>>20, by, want>>20)
			}
		}
	}
	request := func(memory int64) admission.Answer {
		return admission.Create(c.Snapshot(), scheduling.VC("b", 1, scheduling.Group(1, 0.1, memory-64*scheduling.MiB)), c.Env())
	}
	set(state.StageForecast, state.StageMargin, state.StageAvailability, state.StageEmergency)
	counts("on", 2*scheduling.GiB)
	if a := request(2*scheduling.GiB + scheduling.MiB); a.Decision.Admitted {
		t.Errorf("admitted into the quarter: %+v", a.Decision)
	}
	waiting := admission.Create(c.Snapshot(), scheduling.VC("waits", 1, scheduling.Group(1, 0.1, 5*scheduling.GiB-64*scheduling.MiB)), c.Env())
	c.Must(state.KindPlan, waiting.Plan)
	stillWaits := func(want bool) {
		t.Helper()
		out, err := simulate.Run(c.Snapshot(), c.Env(), moves.Observation{}, simulate.Request{Budget: -1})
		if err != nil || len(out.Refused) > 0 != want {
			t.Errorf("a simulation: %v, %v", out.Refused, err)
		}
	}
	stillWaits(true)
	set(state.StageReserve)
	counts("off", 5*scheduling.GiB)
	stillWaits(false)
	c.Enact("it goes", admission.Delete(c.Snapshot(), c.Named("waits"), c.Env()).Plan)
	if a := request(5*scheduling.GiB + scheduling.MiB); a.Decision.Admitted {
		t.Errorf("admitted into what one VM may take back: %+v", a.Decision)
	}
	a := request(5 * scheduling.GiB)
	if a.Plan == nil || a.Queued {
		t.Fatalf("it fits: %+v", a.Decision)
	}
	// It is switched on before that is applied.
	set()
	if err := c.Put(state.KindPlan, a.Plan); !errors.Is(err, state.ErrConflict) {
		t.Errorf("planned into the quarter: %v", err)
	}
	set(state.StageReserve)
	c.Enact("b", request(5*scheduling.GiB).Plan)
	c.CommitPlan()
	counts("full", 0)
	set()
	counts("on again", -3*scheduling.GiB)
	if p := placement.Reallocate(c.Snapshot()); p != nil {
		t.Errorf("a host that is short of its quarter: %+v", p)
	}
	if vms := c.Snapshot().VMs(); slices.ContainsFunc(vms, func(vm state.VM) bool { return vm.Goal != state.GoalRun }) {
		t.Errorf("%+v", vms)
	}
}
