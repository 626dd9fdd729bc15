package loop_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

const noCA = "/etc/pki/CA/cacert.pem is missing"

func here(why string) hypervisor.Obstacle  { return hypervisor.Obstacle{Why: why, Here: true} }
func there(why string) hypervisor.Obstacle { return hypervisor.Obstacle{Why: why} }

// Equal causes are named once, over the hosts that send and those that are not reached.
func TestSumOfRoutes(t *testing.T) {
	const see = " (see docs/how-to/set-up-live-migration.md)"
	for _, tc := range []struct {
		name   string
		routes loop.Routes
		want   []string
	}{
		{"nothing", loop.Routes{}, nil},
		{"one host, a file", loop.Routes{"h1": {"": here(noCA)}}, []string{"h1 cannot send VMs: " + noCA + " on h1" + see}},
		{"a file on several", loop.Routes{"h1": {"": here(noCA)}, "h2": {"": here(noCA)}}, []string{"h1, h2 cannot send VMs: " + noCA + " on h1, h2" + see}},
		{"two causes", loop.Routes{"h1": {"": here(noCA)}, "h2": {"": here("expired")}},
			[]string{"h1 cannot send VMs: " + noCA + " on h1" + see, "h2 cannot send VMs: expired on h2" + see}},
		{"one way", loop.Routes{"h1": {"h2": there("refused")}}, []string{"h1 cannot send VMs to h2: refused" + see}},
		{"one host that no host reaches", loop.Routes{"h1": {"h3": there("refused")}, "h2": {"h3": there("refused")}},
			[]string{"h1, h2 cannot send VMs to h3: refused" + see}},
		{"one host that reaches no host", loop.Routes{"h1": {"h2": there("no answer"), "h3": there("no answer")}},
			[]string{"h1 cannot send VMs to h2, h3: no answer" + see}},
		{"a file for one way only", loop.Routes{"h1": {"h2": here(noCA)}}, []string{"h1 cannot send VMs to h2: " + noCA + " on h1" + see}},
	} {
		var got []string
		for _, n := range tc.routes.Sum() {
			got = append(got, n.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

// A drain knows which hosts are not reached: they take no VM. If none is reached the answer says that once, before anything
// moves.
func TestDrainOverRoutes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		routes loop.Routes
		to     []string // of the moves
		text   string   // of the blockers
	}{
		{"all are reached", nil, []string{"b", "d"}, ""},
		{"one is not", loop.Routes{"a": {"b": there("refused")}}, []string{"d"}, ""},
		{"none is", loop.Routes{"a": {"": here(noCA)}}, nil, "2 VMs cannot leave: host a cannot send VMs: " + noCA + " on a"},
		{"none is, for causes of theirs", loop.Routes{"a": {"b": there("refused"), "d": there("refused")}}, nil, "host a cannot send VMs to b and d: refused"},
		{"others do not reach it", loop.Routes{"b": {"a": there("refused")}, "d": {"": here(noCA)}}, []string{"b", "d"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := overfull(t, "a", "b", "d")
			a, err := loop.Drain(loop.NewFleet(c.Snapshot(), c.env(), loop.FleetObservation{Routes: tc.routes}, loop.FleetOptions{}), "a", loop.DrainOptions{Budget: -1})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range a.Plan.Steps {
				if !slices.Contains(tc.to, s.To) {
					t.Errorf("%s is sent to %s", s.VMName, s.To)
				}
			}
			if tc.text == "" {
				if len(a.Plan.Steps) != 2 || len(a.Blockers) > 0 {
					t.Errorf("%d moves, blockers %v", len(a.Plan.Steps), a.Blockers)
				}
				return
			}
			text := loop.BlockersText(a.Blockers)
			if len(a.Plan.Steps) > 0 || len(a.Blockers) != 2 || !strings.Contains(text, tc.text) || strings.Count(text, "cannot send") != 1 {
				t.Errorf("%d moves, blockers: %s", len(a.Plan.Steps), text)
			}
		})
	}
}

// A move that a plan has yet to begin fails before it is opened once its target is not reached.
func TestMoveOverAWayThatIsGone(t *testing.T) {
	c := overfull(t, "a", "b", "d")
	c.drained("a", state.Drain{OnBlocked: loop.OnBlockedStop})
	c.next("a", loop.HostInventory{})
	execution := loop.MoveExecution{Env: c.env(), Routes: loop.Routes{"a": {"": here(noCA)}}, SyncedUpTo: func(string) uint64 { return 1 << 60 }, Synced: func(string) uint64 { return 1 << 60 },
		Refused: func(string, int) (int, string) { return 0, "" }}
	for _, action := range loop.Next(c.Snapshot(), execution) {
		if action.Open != nil {
			t.Errorf("%s", action)
		}
		if action.Replan == nil || !strings.Contains(action.Replan.Why, noCA) {
			t.Errorf("%s", action)
		}
	}
}
