package drain_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/test/scheduling"
)

const noCA = "/etc/pki/CA/cacert.pem is missing"

func here(why string) hypervisor.Obstacle  { return hypervisor.Obstacle{Why: why, Here: true} }
func there(why string) hypervisor.Obstacle { return hypervisor.Obstacle{Why: why} }

// A drain knows which hosts are not reached: they take no VM. If none is reached the answer says that once, before anything
// moves.
func TestDrainOverRoutes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		routes moves.Routes
		to     []string // of the moves
		text   string   // of the blockers
	}{
		{"all are reached", nil, []string{"b", "d"}, ""},
		{"one is not", moves.Routes{"a": {"b": there("refused")}}, []string{"d"}, ""},
		{"none is", moves.Routes{"a": {"": here(noCA)}}, nil, "2 VMs cannot leave: host a cannot send VMs: " + noCA + " on a"},
		{"none is, for causes of theirs", moves.Routes{"a": {"b": there("refused"), "d": there("refused")}}, nil, "host a cannot send VMs to b and d: refused"},
		{"others do not reach it", moves.Routes{"b": {"a": there("refused")}, "d": {"": here(noCA)}}, []string{"b", "d"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := scheduling.Overfull(t, "a", "b", "d")
			a, err := drain.Plan(moves.NewFleet(c.Snapshot(), c.Env(), moves.Observation{Routes: tc.routes}, moves.Options{}), "a", drain.Options{Budget: -1})
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
			text := moves.BlockersText(a.Blockers)
			if len(a.Plan.Steps) > 0 || len(a.Blockers) != 2 || !strings.Contains(text, tc.text) || strings.Count(text, "cannot send") != 1 {
				t.Errorf("%d moves, blockers: %s", len(a.Plan.Steps), text)
			}
		})
	}
}

// A move that a plan has yet to begin fails before it is opened once its target is not reached.
func TestMoveOverAWayThatIsGone(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b", "d")
	drained(c, "a", state.Drain{OnBlocked: drain.OnBlockedStop})
	next(c, "a", drain.HostInventory{})
	execution := moves.Execution{Env: c.Env(), Routes: moves.Routes{"a": {"": here(noCA)}}, SyncedUpTo: func(string) uint64 { return 1 << 60 }, Synced: func(string) uint64 { return 1 << 60 },
		Refused: func(string, int) (int, string) { return 0, "" }}
	for _, action := range moves.Next(c.Snapshot(), execution) {
		if action.Open != nil {
			t.Errorf("%s", action)
		}
		if action.Replan == nil || !strings.Contains(action.Replan.Why, noCA) {
			t.Errorf("%s", action)
		}
	}
}
