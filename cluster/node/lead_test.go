package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// service records the times in which a server's leader's service ran.
type service struct {
	mu   sync.Mutex
	runs []serviceRun
}

type serviceRun struct {
	id         string
	term       uint64
	from, to   time.Time
	has        int // entries that the state held at the beginning
	overlapped bool
}

func (v *service) run(s *server) func(context.Context, uint64) {
	running := false
	return func(ctx context.Context, term uint64) {
		v.mu.Lock()
		n := len(v.runs)
		v.runs = append(v.runs, serviceRun{id: s.id, term: term, from: time.Now(), has: len(s.store.Snapshot().Images()), overlapped: running})
		running = true
		v.mu.Unlock()
		<-ctx.Done()
		v.mu.Lock()
		v.runs[n].to, running = time.Now(), false
		v.mu.Unlock()
	}
}

// The leader's service begins with all that was acknowledged before, ends when leadership does, and
// never runs twice for a term.
func TestWhileLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 3)
		v := &service{}
		var group sync.WaitGroup
		for _, s := range c.servers {
			group.Go(func() { s.WhileLeading(t.Context(), v.run(s)) })
		}
		acked := map[int]int{} // entries acknowledged before the run of that number began
		for range 4 {
			c.put(10)
			v.mu.Lock()
			acked[len(v.runs)] = c.written
			v.mu.Unlock()
			first := c.leader()
			for id, s := range c.servers { // everyone knows who leads, and where
				c.until(id+" knows the leader", func() bool {
					now, _ := s.Leadership()
					return now.Leader == first.id && now.Address == first.id && now.Term == first.Term() && now.Leads == (s == first)
				})
			}
			at := time.Now()
			c.network.setCut(first.id, true)
			c.until("its service has ended", func() bool { now, _ := first.Leadership(); return !now.Leads })
			if took := time.Since(at); took > time.Second {
				t.Errorf("a leader that was cut off gave up after %s", took)
			}
			c.leader()
			c.network.setCut(first.id, false)
		}
		c.put(1)
		c.awaitQuiet()
		group.Wait()
		terms := map[uint64]bool{}
		for n, r := range v.runs {
			if terms[r.term] || r.overlapped || r.to.IsZero() {
				t.Errorf("run %d: %+v", n, r)
			}
			terms[r.term] = true
			if r.has < acked[n] {
				t.Errorf("run %d began with %d of %d acknowledged entries", n, r.has, acked[n])
			}
		}
		if len(v.runs) < 5 {
			t.Errorf("%d runs for 5 leaders", len(v.runs))
		}
	})
}

// A service that ends by itself is not begun again in the same term.
func TestWhileLeadingOnceATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 1)
		runs := 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.leader().WhileLeading(ctx, func(context.Context, uint64) { runs++ })
		}()
		time.Sleep(time.Minute) // sleep: simulated time
		cancel()
		<-done
		if runs != 1 {
			t.Errorf("%d runs in one term", runs)
		}
		c.awaitQuiet()
	})
}

// raft's complaints about a server that is away are heard once a minute for each such server.
func TestComplaintsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		removed := false
		first := newHclog(slog.New(slog.NewTextHandler(&out, nil)), false)
		first.removed = func() bool { return removed }
		log := first.Named("x").With("y", 1)
		for n := range 90 {
			removed = n >= 60 // nor are they heard once the server is known to be removed
			log.Error("failed to heartbeat to", "peer", "s2", "error", "refused")
			log.Error("failed to heartbeat to", "peer", "s3", "error", "refused")
			log.Warn("heartbeat timeout reached, starting election")
			log.Info("entering follower state")
			time.Sleep(2 * time.Second) // sleep: simulated time
		}
		if n := strings.Count(out.String(), "\n"); n != 6 {
			t.Errorf("%d lines in two minutes, want 6:\n%s", n, out.String())
		}
	})
}

// A server that alone can vote leads at once, at its first start and at later ones. With others it waits to hear of a leader.
func TestTheOnlyVoterDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 1)
		only := g.leader()
		g.stop(only)
		leadsAfter := func() time.Duration {
			began := time.Now()
			g.restart(only)
			only.lead(t)
			return time.Since(began)
		}
		if took := leadsAfter(); took > 100*time.Millisecond {
			t.Errorf("the only voter leads after %v", took)
		}
		other := g.start("s2", Options{})
		g.add(other)
		g.until("s2 has the log", func() bool { return other.Stats().Index == only.Stats().Index })
		g.stop(other)
		g.stop(only)
		began := time.Now()
		g.restart(only)
		g.restart(other)
		g.leader()
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("one of two voters leads after %v, before it could hear the other", took)
		}
	})
}
