package agenda_test

import (
	"log/slog"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// The first of the queue keeps its turn when the leader changes, whichever hosts report to the new one: one that is dead with the old leader
// has no room for it, and one that reports later may have. That is found again until it is known.
func TestHeadOfANewTerm(t *testing.T) {
	type step struct {
		silent      bool
		unavailable []string
		want        string // the VC of the head
	}
	for name, x := range map[string]struct {
		dead  int64 // bytes of a host that comes when all wait, and is dead
		first state.Group
		steps []step
	}{
		"a host is dead": {16 * scheduling.GiB, scheduling.Group(1, 1, 7*scheduling.GiB), []step{
			{true, []string{"h1", "h2", "h3"}, ""}, {true, []string{"h3"}, "first"}, {false, []string{"h3"}, "first"}, {false, nil, "first"}}},
		"the silence ends": {16 * scheduling.GiB, scheduling.Group(1, 1, 7*scheduling.GiB), []step{
			{true, []string{"h1", "h2", "h3"}, ""}, {false, []string{"h3"}, "first"}}},
		"a host reports late": {scheduling.GiB, scheduling.Group(2, 1, 7*scheduling.GiB), []step{
			{true, []string{"h1", "h2", "h3"}, "first"}, {true, []string{"h2", "h3"}, "first"}, {true, nil, "first"}, {false, nil, "first"}}},
		"hosts that it needs stay away": {scheduling.GiB, scheduling.Group(2, 1, 7*scheduling.GiB), []step{
			{true, []string{"h2", "h3"}, "first"}, {false, []string{"h2", "h3"}, "second"}}},
	} {
		c := scheduling.NewCluster(t, "h1", "h2")
		runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 6*scheduling.GiB))
		runs.Duration = 3600
		c.Create(runs)
		c.Run()
		c.Create(scheduling.VC("first", 0.5, x.first))
		c.Create(scheduling.VC("second", 0.5, scheduling.Group(1, 1, 7*scheduling.GiB)))
		c.Host("h3", 8, x.dead, state.Resources{})
		var now step
		leads := false
		r := agenda.NewRunner(agenda.Options{Now: c.Now, Log: slog.New(slog.DiscardHandler), Snapshot: c.Snapshot, Leads: func() bool { return leads }, Queue: admission.Queue,
			Pools: func() placement.Pools { return nil }, Silent: func(*state.Snapshot) bool { return now.silent },
			Unavailable: func(*state.Snapshot) map[string]string {
				out := map[string]string{}
				for _, h := range now.unavailable {
					out[h] = "is silent"
				}
				return out
			}})
		if r.Head() != nil {
			t.Errorf("%s: a server that does not lead has a head", name)
		}
		leads = true
		for i := range x.steps {
			now = x.steps[i]
			got := ""
			if h := r.Head(); h != nil {
				vc, _ := c.Snapshot().VC(h.VC)
				got = vc.Name
			}
			if got != now.want {
				t.Errorf("%s, step %d: the head is %q, want %q", name, i, got, now.want)
			}
			if i == 0 {
				c.Ahead += 100 * time.Millisecond
			}
		}
	}
}
