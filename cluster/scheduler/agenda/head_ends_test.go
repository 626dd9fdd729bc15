package agenda_test

import (
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A VC that runs on, or never starts, has room kept for others behind it for half an hour, and not for ever.
func TestHeadRestsOnCredibleEnds(t *testing.T) {
	for name, starts := range map[string]bool{"runs on": true, "never starts": false} {
		c := scheduling.NewCluster(t, "h1", "h2")
		runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB))
		runs.Duration = 600
		c.Create(runs)
		if starts {
			c.Run()
		}
		c.Create(scheduling.VC("first", 0.5, scheduling.Group(2, 1, 7*scheduling.GiB)))
		begin := c.Now()
		for _, x := range []struct {
			ahead time.Duration
			kept  bool
		}{{0, true}, {20 * time.Minute, true}, {2 * time.Hour, false}, {240 * time.Hour, false}} {
			c.Ahead = x.ahead
			head, err := agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), c.Env())
			if err != nil || (head != nil) != x.kept {
				t.Errorf("%s, after %s: %+v, %v", name, x.ahead, head, err)
			}
			if head != nil && starts && head.At.Sub(begin) > 50*time.Minute {
				t.Errorf("%s, after %s: room is kept from %s on: its end moves on with the time", name, x.ahead, head.At.Sub(begin))
			}
		}
	}
}

// A VC that asks for what the agenda does not know of, or that could not start on empty hosts, takes the turn of none that could.
func TestHeadAsksForWhatIsKnown(t *testing.T) {
	large := func() state.Group { return scheduling.Group(2, 1, 7*scheduling.GiB) }
	for name, ask := range map[string]func() state.Group{
		"requires a VM": func() state.Group { g := large(); g.Affinity.Require = []string{"app=db"}; return g },
		"avoids a VM":   func() state.Group { g := large(); g.Affinity.Avoid = []string{"app=db"}; return g },
		"a pool":        func() state.Group { g := large(); g.Disk = state.Disk{Pool: "fast", Size: scheduling.GiB}; return g },
		"too many":      func() state.Group { g := large(); g.Count = 3; return g },
	} {
		c := scheduling.NewCluster(t, "h1", "h2")
		runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB))
		runs.Duration = 3600
		c.Create(runs)
		c.Run()
		queue := []state.VC{scheduling.VC("other", 0.5, ask()), scheduling.VC("first", 0.5, large())}
		for i := range queue {
			queue[i].ID, queue[i].Goal = c.ID(), state.GoalRun
		}
		env := c.Env()
		env.Pools = placement.Pools{"h1": {"default": ""}}
		head, err := agenda.First(c.Snapshot(), queue, env)
		if err != nil || head == nil || head.VC != queue[1].ID {
			t.Errorf("%s: %+v, %v", name, head, err)
		}
	}
}
