package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// The setting says where new VMs go, by a full plan and by the capacity index, and the decision names it. Running VMs stay:
// no re-balance follows a change of the setting.
func TestPlacementPolicy(t *testing.T) {
	for _, row := range []struct {
		hosts  int
		policy state.Placement
		used   int // hosts, of 4 VMs that come one after the other; 3 fit on one
		text   string
	}{
		{6, "", 4, "placement spread: least headroom 74%"}, // as before there was a setting
		{6, state.Spread, 4, "placement spread: least headroom 74%"},
		{6, state.Pack, 2, "placement pack: 4 of 6 hosts have no VM"},
		{64, state.Spread, 4, "placement spread"},
		{64, state.Pack, 2, "placement pack"},
	} {
		t.Run(fmt.Sprintf("%d hosts, %q", row.hosts, row.policy), func(t *testing.T) {
			var names []string
			for i := range row.hosts {
				names = append(names, fmt.Sprintf("h%02d", i))
			}
			c := scheduling.NewCluster(t, names...)
			put := func(policy state.Placement) {
				m, _ := c.Snapshot().Meta()
				set := state.DefaultSettings()
				set.Placement = policy
				c.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
			}
			put(row.policy)
			var index admission.CapacityIndex
			var d state.Decision
			for i := range 4 {
				x := scheduling.VC(fmt.Sprintf("x%d", i), 0.5, scheduling.Group(1, 1, 2*scheduling.GiB))
				a, fast := index.TryFastPath(c.Snapshot(), x, c.Env(), func(string) bool { return false })
				if fast != (row.hosts >= 64) {
					t.Fatalf("the capacity index answers: %v", fast)
				}
				if !fast {
					a = admission.Create(c.Snapshot(), x, c.Env())
				}
				c.Enact("create", a.Plan)
				d = a.Decision
			}
			on := map[string]int{}
			for _, vm := range c.Snapshot().VMs() {
				on[vm.Host]++
			}
			if len(on) != row.used {
				t.Errorf("4 VMs on %v", on)
			}
			if !strings.Contains(d.Summary, row.text) {
				t.Errorf("summary %q, want %q", d.Summary, row.text)
			}
			c.Run()
			other := state.Pack
			if row.policy == state.Pack {
				other = state.Spread
			}
			put(other)
			p, err := rebalance.Plan(moves.NewFleet(c.Snapshot(), c.Env(), moves.Observation{}, moves.Options{}), -1, 0.1, false)
			if err != nil || len(p.Steps) > 0 {
				t.Errorf("VMs move for the sake of a policy: %v %+v", err, p.Steps)
			}
		})
	}
}
