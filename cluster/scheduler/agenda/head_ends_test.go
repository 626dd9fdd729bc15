package agenda_test

import (
	"fmt"
	"slices"
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

// Behind a head of the queue, one that fits and leaves the head its room starts, however many before it do not fit. Room of a head that is
// gone, or that is long past its time, is kept for no VC.
func TestQueueBehindHead(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 5*scheduling.GiB))
	runs.Duration = 3600
	c.Create(runs)
	c.Run()
	c.Create(scheduling.VC("first", 0.5, scheduling.Group(2, 1, 6*scheduling.GiB)))
	for i := range 70 {
		vc := scheduling.VC(fmt.Sprintf("w%d-x", i), 0.5, scheduling.Group(1, 1, 7*scheduling.GiB))
		vc.Duration = 300
		c.Create(vc)
	}
	env := c.Env()
	var err error
	if env.Head, err = agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), env); err != nil || env.Head == nil {
		t.Fatalf("%+v, %v", env.Head, err)
	}
	early := env
	now := *env.Head
	now.At = env.Now
	early.Head = &now
	for name, duration := range map[string]int64{"small": 300, "long": 0} {
		vc := scheduling.VC(name, 0.5, scheduling.Group(1, 0.1, 2*scheduling.GiB))
		vc.ID, vc.Duration = c.ID(), duration
		a := admission.Create(c.Snapshot(), vc, early)
		if !a.Queued {
			t.Fatalf("%s does not wait: %+v", name, a.Decision)
		}
		c.Must(state.KindPlan, a.Plan)
	}
	admits := func(what string, env placement.Env, want ...string) {
		t.Helper()
		ids := admission.Fitting(c.Snapshot(), env)
		for _, name := range []string{"small", "long"} {
			vc := c.Named(name)
			if got := slices.Contains(ids, vc.ID) && admission.Admit(c.Snapshot(), vc.ID, env) != nil; got != slices.Contains(want, name) {
				t.Errorf("%s: %s is admitted: %v", what, name, got)
			}
		}
	}
	admits("with a head", env, "small")
	past := env
	past.Now = env.Head.At.Add(5 * time.Minute)
	admits("past its time", past, "small", "long")
	first := c.Named("first")
	c.Must(state.KindPlan, admission.Stop(c.Snapshot(), first, env).Plan)
	admits("stopped", env, "small", "long")
}
