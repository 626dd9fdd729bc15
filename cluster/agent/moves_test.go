package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// endOf is what was last reported move 5 in that phase.
func (l *leader) endOf(p agent.Phase) (out agent.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports {
		for _, st := range r.Statuses {
			if st.Move == 5 && st.Phase == p {
				out = st
			}
		}
	}
	return out
}

// A move that was begun keeps to its bounds, is given up when that is asked for, and ends with what was sent. A VM of 1 GiB at
// 64 MiB/s takes 16 s and more.
func TestMoveEnds(t *testing.T) {
	begunBefore := func(w *simulated.World, l *leader) {
		go func() { _, _ = w.Host("h1").Migrate(context.Background(), "m", hypervisor.Migration{To: "h2"}) }()
		time.Sleep(5 * time.Second) // sleep: in simulated time, while it goes on
		l.next()
	}
	for _, c := range []struct {
		name   string
		change func(*agent.Move)
		before func(w *simulated.World, l *leader)
		phase  agent.Phase
		why    string
		lowest int64
		max    int64
	}{
		{name: "it goes", phase: agent.PhaseLeft, lowest: gib, max: 3 * gib / 2},
		{name: "it may send less than it needs", change: func(m *agent.Move) { m.MaxBytes = 300 * mib }, phase: agent.PhaseStayed, why: "would send more than", lowest: 200 * mib, max: 300 * mib},
		{name: "its time is up", change: func(m *agent.Move) { m.Deadline = 5 * time.Second }, phase: agent.PhaseStayed, why: "not done within 5s", lowest: 300 * mib, max: 330 * mib},
		{name: "a narrow band, and its time is up", change: func(m *agent.Move) { m.Deadline, m.Bandwidth = 5*time.Second, 16*mib }, phase: agent.PhaseStayed, why: "not done within 5s",
			lowest: 70 * mib, max: 85 * mib},
		{name: "it is given up before it began", change: func(m *agent.Move) { m.Abort = "it is not wanted" }, phase: agent.PhaseStayed, why: "it is not wanted"},
		{name: "it is given up on its way", before: func(_ *simulated.World, l *leader) {
			go func() {
				time.Sleep(6 * time.Second) // sleep: in simulated time, until it is on its way
				l.order(func(d *agent.Desired) { m := *d.VMs[0].Move; m.Abort = "it is not wanted"; d.VMs[0].Move = &m })
			}()
		}, phase: agent.PhaseStayed, why: "it is not wanted", lowest: 250 * mib, max: 450 * mib},
		{name: "an agent before this one began it", before: begunBefore, phase: agent.PhaseStayed, why: "its bytes were not counted", lowest: 300 * mib, max: 400 * mib},
		{name: "an agent before this one began it, and it is to be given up", change: func(m *agent.Move) { m.Abort = "it is not wanted" }, before: begunBefore, phase: agent.PhaseStayed,
			why: "the agent was restarted", lowest: 300 * mib, max: 400 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			twoHosts(t, func(w *simulated.World, l *leader) {
				if c.change != nil {
					c.change(l.want.VMs[0].Move)
				}
				if c.before != nil {
					c.before(w, l)
				}
			}, func(w *simulated.World, l *leader) {
				st := l.endOf(c.phase)
				if st.Phase == "" || !strings.Contains(st.Reason, c.why) || st.Bytes < c.lowest || st.Bytes > c.max {
					t.Errorf("reported %+v, want %s, %q, %d to %d bytes; all of it %q", st, c.phase, c.why, c.lowest, c.max, l.received())
				}
				if left := c.phase == agent.PhaseLeft; left != on(t, w, "h2") || left == on(t, w, "h1") || left != (st.Downtime > 0) {
					t.Errorf("%+v; it runs on h1: %v, on h2: %v", st, on(t, w, "h1"), on(t, w, "h2"))
				}
			})
		})
	}
}

// How far a move is stands in a report every second, and no longer than it goes on.
func TestMoveProgress(t *testing.T) {
	twoHosts(t, func(*simulated.World, *leader) {}, func(_ *simulated.World, l *leader) {
		l.mu.Lock()
		defer l.mu.Unlock()
		var seen []agent.MoveProgress
		for _, r := range l.reports {
			seen = append(seen, r.Moves...)
		}
		if len(seen) < 14 || len(seen) > 40 {
			t.Fatalf("%d reports of a move of some 20 s", len(seen))
		}
		for i, p := range seen[1:] {
			if p.Move != 5 || p.VM != "m" || p.Bytes < seen[i].Bytes || p.Since < seen[i].Since || p.Since-seen[i].Since > 1100*time.Millisecond {
				t.Errorf("after %+v comes %+v", seen[i], p)
			}
		}
		if last := seen[len(seen)-1]; last.Bytes < gib || last.Rate <= 0 || last.Dirty <= 0 {
			t.Errorf("at last %+v", last)
		}
		if end := l.reports[len(l.reports)-1]; len(end.Moves) > 0 {
			t.Errorf("long after its end: %+v", end.Moves)
		}
		if l.reports[len(l.reports)-1].Migrates.CPUModel == "" {
			t.Error("nothing is reported of what the host has for moves")
		}
	})
}

// An agent that ends gives its moves up: no agent would count their bytes.
func TestMoveEndsWithAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		l := newLeader(wanted("m", moving()))
		l.deaf = true
		end := run(t, w, l)
		after(8 * time.Second)
		vms, err := w.Host("h2").List(t.Context())
		if err != nil || len(vms) != 1 {
			t.Errorf("on its way: %v, %v", vms, err)
		}
		end()
		if _, found, err := w.Host("h1").Abort(context.Background(), "m"); err != nil || found {
			t.Errorf("a move goes on after the end of its agent: %v", err)
		}
		after(time.Minute)
		if !on(t, w, "h1") || on(t, w, "h2") {
			t.Errorf("it runs on h1: %v, on h2: %v", on(t, w, "h1"), on(t, w, "h2"))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// slowDisk takes its time for whatever is kept.
type slowDisk struct{ *memoryState }

func (d slowDisk) Save(m agent.PersistentState) error {
	time.Sleep(5 * time.Second) // sleep: simulated time
	return d.memoryState.Save(m)
}

// A move begins on a disk that is busy with another write, and waits for it. That works also in simulated time, which goes on
// only while no goroutine waits for a lock.
func TestMoveWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		if w.Host("h1").Define(t.Context(), wanted("n").Spec) != nil || w.Host("h1").Start(t.Context(), wanted("n").Spec) != nil {
			t.Fatal("VM n does not run")
		}
		l := newLeader(wanted("m", moving()), wanted("n", moving()))
		l.deaf = true
		g := &guarded{w: w, l: l, keep: &memoryState{}, boot: "b1", zero: time.Now()}
		o := g.options()
		o.State = slowDisk{g.keep}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx, o) }()
		after(time.Minute)
		if m, _ := g.keep.Load(); len(m.Sending) != 2 {
			t.Errorf("kept of moves that were begun: %v", m.Sending)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
