package leader_test

import (
	"testing"

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
