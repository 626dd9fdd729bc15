package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// What is foreign, what another cluster left, and what has our mark and is unknown are counted and left alone; the last is named.
func TestRunForeign(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		ctx := context.Background()
		foreign := wanted("f").Spec
		foreign.Identity, foreign.Name = hypervisor.Identity{}, "theirs"
		other, unknown := wanted("o").Spec, wanted("u").Spec
		other.Cluster = "other"
		h := w.Host("h1")
		if err := errors.Join(w.AddForeign("h1", foreign), h.Define(ctx, other), h.Start(ctx, other), h.Define(ctx, unknown), h.Start(ctx, unknown)); err != nil {
			t.Fatal(err)
		}
		before := list(t, w)
		l := newLeader()
		l.refuse = true // as the leader does of what the state does not know
		defer run(t, w, l)()
		after(time.Minute)
		for _, r := range l.reports {
			if r.ForeignVMs != 3 || r.Foreign.CPU != 3 || r.Foreign.Memory != 3*(gib+64*mib) {
				t.Fatalf("report %+v, want three VMs that are not the leader's", r)
			}
		}
		full := slices.IndexFunc(l.reports, func(r agent.Report) bool { return slices.Equal(r.Unmanaged, []string{"ek-u"}) })
		if full < 0 {
			t.Error("what is unknown was not reported")
		}
		if now := list(t, w); !slices.Equal(now, before) {
			t.Errorf("VMs are %+v, were %+v", now, before)
		}
	})
}

// VMs that the leader does not know are reported as taking capacity, until it knows them; so it places nothing there. An agent
// that was started again reports them from its first report on.
func TestRunReportsWhatIsUnmanaged(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		stopAgent := run(t, w, l)
		after(5 * time.Second)
		takes := func(when string, n int, want agent.Limits) {
			t.Helper()
			if r := l.last(); r.ForeignVMs != n || r.Foreign != want || len(r.Unmanaged) != n {
				t.Errorf("%s: %d VMs of others (unknown %q) take %+v, want %d and %+v", when, r.ForeignVMs, r.Unmanaged, r.Foreign, n, want)
			}
		}
		takes("all are known", 0, agent.Limits{})
		b := l.want.VMs[1]
		l.order(func(d *agent.Desired) { d.VMs = d.VMs[:1] })
		after(5 * time.Second)
		takes("b is unknown", 1, agent.Limits{CPU: 1, Memory: gib + 64*mib})
		stopAgent()
		before := l.count()
		stopAgent = run(t, w, l)
		defer func() { stopAgent() }()
		after(5 * time.Second)
		for _, r := range l.reports[before:] {
			if r.Foreign.CPU != 1 {
				t.Errorf("started again it reports %+v of others", r.Foreign)
			}
		}
		l.order(func(d *agent.Desired) { d.VMs = append(d.VMs, b) })
		after(5 * time.Second)
		takes("b is known again", 0, agent.Limits{})
	})
}

// After a restore the leader plans on a host from its first report in the new epoch on: that report counts the unmanaged VMs
// there.
func TestRunCountsWhatIsUnmanagedBeforeInventory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		defer run(t, w, l)()
		after(5 * time.Second)
		before := l.count()
		l.order(func(d *agent.Desired) { d.Epoch, d.VMs = d.Epoch+1, d.VMs[:1] })
		after(5 * time.Second)
		reported := 0
		for _, r := range l.reports[before:] {
			if r.Epoch != l.want.Epoch || r.Running == nil {
				continue
			}
			if reported++; r.ForeignVMs != 1 {
				t.Errorf("report %d in the new epoch: %d VMs of others, want b: %+v", reported, r.ForeignVMs, r)
			}
		}
		if reported == 0 {
			t.Error("no report in the new epoch")
		}
	})
}

// An agent that has waited for a leader for long acts as soon as it is heard.
func TestRunActsWhenTheLeaderIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		l.cut(errCut)
		defer run(t, w, l)()
		after(time.Minute + 100*time.Millisecond)
		l.mu.Lock()
		l.down = nil
		l.next()
		l.mu.Unlock()
		began := time.Now()
		for len(l.received()) == 0 && time.Since(began) < time.Minute {
			after(10 * time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the VM ran %s after the leader was heard", took)
		}
	})
}
