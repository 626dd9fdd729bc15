package leader_test

import (
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// That hosts make no emergency grants any more reaches all of them, those without VMs and those that wait for a change included; and
// that they make them again.
func TestEmergencyStageReachesAllHosts(t *testing.T) {
	newCrew(t, func(t *testing.T, c *crew) {
		for _, disabled := range [][]string{{state.StageMargin}, {state.StageForecast, state.StageEmergency}, {}} {
			changed := map[string]<-chan struct{}{}
			for _, host := range []string{"h1", "h2", "h3"} {
				_, ch, err := c.Desired(t.Context(), host)
				if err != nil {
					t.Fatal(err)
				}
				changed[host] = ch
			}
			if _, err := c.Settings(t.Context(), func(s *state.Settings) error { s.Rightsizing.DisabledStages = disabled; return nil }, leader.Call{}); err != nil {
				t.Fatal(err)
			}
			for host, ch := range changed {
				<-ch // in the bubble: one that is never closed is a deadlock
				want, _, err := c.Desired(t.Context(), host)
				if err != nil {
					t.Fatal(err)
				}
				if want.NoEmergencyGrants != (len(disabled) == 2) {
					t.Errorf("%q off: host %s is sent %v", disabled, host, want.NoEmergencyGrants)
				}
			}
		}
	}, "h2", "h3")
}

// The status has what each stage does, in figures. One that is switched off does nothing, and what the others do stays as it is.
func TestStagesInTheStatus(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		stages := func() map[string]leader.StageStatus {
			t.Helper()
			now, err := h.Rightsizing(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]leader.StageStatus{}
			for _, stage := range now.Stages {
				out[stage.Stage] = stage
			}
			if len(out) != len(state.Stages) || out[state.StageForecast].Effect != now.Reclaimed {
				t.Fatalf("%+v, reclaimed %+v", now.Stages, now.Reclaimed)
			}
			return out
		}
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		for _, name := range []string{"a", "b", "c"} {
			h.run(name, state.NeedsEstimated, "core", 1<<30, 256<<20)
		}
		h.pass(15 * time.Minute)
		for _, name := range []string{"d", "e", "f"} {
			h.run(name, state.NeedsEstimated, "core", 1<<30, 256<<20)
		}
		h.pass(25 * time.Minute)
		on := stages()
		reserve := h.store.Snapshot().LoadOf("h1").Reserve
		if got := on[state.StageReserve].Effect; got.Memory <= 0 || got.Memory != reserve.Bytes()-reserve.Largest() {
			t.Errorf("the reserve: %+v of %+v", got, reserve)
		}
		if got := on[state.StageMargin].Effect; got.CPU <= 0 || on[state.StageForecast].Effect.Memory < 3<<30 {
			t.Errorf("%+v", on)
		}
		for _, off := range []string{state.StageMargin, state.StageReserve, state.StageEmergency} {
			h.mode(state.RightsizingSettings{Mode: state.RightsizingOn, DisabledStages: []string{off}})
			for stage, now := range stages() {
				want := on[stage]
				switch {
				case stage == off:
					want = leader.StageStatus{Stage: stage}
				case off == state.StageReserve && stage == state.StageMargin, off == state.StageMargin && stage == state.StageAvailability:
					continue // follows from what is free
				}
				if now != want {
					t.Errorf("%s off: %+v, want %+v", off, now, want)
				}
			}
		}
	})
}
