package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestRemovalIsSafe(t *testing.T) {
	v := func(id string, healthy bool) Server { return Server{ID: id, Voter: true, Healthy: healthy} }
	other := Server{ID: "n", Healthy: true}
	for _, c := range []struct {
		name    string
		servers []Server
		id      string
		force   bool
		gone    bool
		refused string
	}{
		{name: "unknown", servers: []Server{v("a", true)}, id: "x", gone: true},
		{name: "no vote", servers: []Server{v("a", true), other}, id: "n"},
		{name: "the last voter", servers: []Server{v("a", true), other}, id: "a", refused: "only voting server"},
		{name: "the last voter, forced", servers: []Server{v("a", true), other}, id: "a", force: true, refused: "only voting server"},
		{name: "one of two", servers: []Server{v("a", true), v("b", true)}, id: "b"},
		{name: "the healthy one of two", servers: []Server{v("a", true), v("b", false)}, id: "a", refused: "only 0 would be healthy"},
		{name: "the dead one of two", servers: []Server{v("a", true), v("b", false)}, id: "b"},
		{name: "the dead one of three", servers: []Server{v("a", true), v("b", true), v("c", false)}, id: "c"},
		{name: "a healthy one of three", servers: []Server{v("a", true), v("b", true), v("c", false)}, id: "b", refused: "of the 2 voting servers left only 1"},
		{name: "the same, forced", servers: []Server{v("a", true), v("b", true), v("c", false)}, id: "b", force: true},
		{name: "healthy of five with one dead", servers: []Server{v("a", true), v("b", true), v("c", true), v("d", true), v("e", false)}, id: "b"},
	} {
		gone, err := removal(c.servers, c.id, c.force)
		if gone != c.gone || (err != nil) != (c.refused != "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: gone %v, %v; want %v, %q", c.name, gone, err, c.gone, c.refused)
		}
	}
}

// What autopilot decided before a server was removed, or taken its right to a vote, is not carried out after that: a dead server
// with a vote would take the quorum with it.
func TestPromotionComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var vote atomic.Bool
		vote.Store(true)
		s := open(t, Options{Dir: t.TempDir(), Autopilot: Autopilot{Votes: func(string) bool { return vote.Load() }}}).lead(t)
		late := func() error {
			return guarded{Raft: s.cur.Load().raft, node: s.Node}.AddVoter("new", "new:1", 0, 0).Error()
		}
		servers := func() (out []string) {
			for _, s := range s.Servers() {
				out = append(out, fmt.Sprint(s.ID, " ", s.Voter))
			}
			return out
		}
		before := servers()
		if err := s.AddServer(t.Context(), "new", "new:1", false); err != nil {
			t.Fatal(err)
		}
		if err := late(); !errors.Is(err, ErrRefused) {
			t.Errorf("a server that has not answered since it was added: %v", err)
		}
		vote.Store(false)
		if err := late(); !errors.Is(err, ErrRefused) {
			t.Errorf("a server without a right to a vote: %v", err)
		}
		vote.Store(true)
		if err := s.RemoveServer(t.Context(), "new", false); err != nil {
			t.Fatal(err)
		}
		if err := late(); !errors.Is(err, ErrRefused) {
			t.Errorf("a server that was removed: %v", err)
		}
		if now := servers(); !slices.Equal(now, before) {
			t.Errorf("the servers are %q, were %q", now, before)
		}
	})
}

func TestAdvice(t *testing.T) {
	for voters, some := range []bool{false, true, true, false, true, false, true, false} {
		servers := []Server{{ID: "without a vote"}}
		for range voters {
			servers = append(servers, Server{Voter: true})
		}
		if a := Advice(servers); (a != "") != some {
			t.Errorf("%d voters: advice %q", voters, a)
		}
	}
}

func TestTransferAndRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 3)
		g.put(0, 5)
		first := g.leader()
		target := "s2"
		if first.id == target {
			target = "s3"
		}
		g.until("all are healthy", func() bool {
			for _, s := range first.Servers() {
				if !s.Healthy || !s.Voter {
					return false
				}
			}
			return true
		})
		for name, err := range map[string]error{
			"to an unknown server": first.TransferLeadership(t.Context(), "s9"),
			"follower":             g.members[target].TransferLeadership(t.Context(), target),
		} {
			want := ErrRefused
			if name == "follower" {
				want = ErrNotLeader
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := first.TransferLeadership(t.Context(), target); err != nil {
			t.Fatal(err)
		}
		second := g.members[target]
		second.lead(t)
		if err := second.TransferLeadership(t.Context(), target); err != nil {
			t.Errorf("to itself: %v", err)
		}
		// A leader that is to go hands leadership on first.
		g.until("the new leader knows all", func() bool {
			for _, s := range second.Servers() {
				if !s.Healthy {
					return false
				}
			}
			return true
		})
		if err := second.RemoveServer(t.Context(), target, false); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("remove the leader: %v", err)
		}
		for range 2 {
			g.until("removed", func() bool {
				err := g.leader(second).RemoveServer(t.Context(), target, false)
				if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotLeader) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		third := g.leader(second)
		if n := len(third.Servers()); n != 2 {
			t.Errorf("%d servers after one of three was removed", n)
		}
		g.put(5, 10)
		// Of two, one dead: the other is not removed by mistake.
		for id, m := range g.members {
			if id != third.id && id != target {
				g.stop(m)
				if err := third.RemoveServer(t.Context(), third.id, false); err == nil {
					t.Error("the last healthy voter went")
				}
			}
		}
	})
}

// A dead server goes once another has its place, and not before.
func TestDeadServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 1)
		g.pilot.DeadAfter = 500 * time.Millisecond
		g.stop(g.leader())
		g.members["s1"].o.Autopilot = g.pilot
		g.restart(g.members["s1"])
		first := g.leader()
		for _, id := range []string{"s2", "s3"} {
			m := g.start(id, Options{})
			if err := first.AddServer(t.Context(), id, m.address, true); err != nil {
				t.Fatal(err)
			}
		}
		g.put(0, 3)
		g.until("all are healthy", func() bool { a, b := g.seen(first, "s2"), g.seen(first, "s3"); return a.Healthy && b.Healthy })
		g.stop(g.members["s3"])
		g.until("it is found out", func() bool { s := g.seen(first, "s3"); return !s.Healthy && s.Trouble != "" && s.Contact > time.Second })
		if s := g.seen(first, "s3"); s == nil || !s.Voter {
			t.Fatal("a dead server was removed although only two others are there")
		}
		m := g.start("s4", Options{})
		if err := first.AddServer(t.Context(), "s4", m.address, false); err != nil {
			t.Fatal(err)
		}
		g.until("the new one votes, the dead one is gone", func() bool {
			s := g.seen(first, "s4")
			return s != nil && s.Voter && g.seen(first, "s3") == nil
		})
	})
}

// A server that is to have no vote gets none, and an autopilot that is off gives none.
func TestNoVote(t *testing.T) {
	for name, pilot := range map[string]Autopilot{
		"off":       {Off: true},
		"no voters": {Votes: func(id string) bool { return id != "s2" }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGroup(t, 1)
				g.stop(g.members["s1"])
				pilot.Every, pilot.Stable = g.pilot.Every, g.pilot.Stable
				g.members["s1"].o.Autopilot = pilot
				g.restart(g.members["s1"])
				first := g.leader()
				m := g.start("s2", Options{})
				if err := first.AddServer(t.Context(), "s2", m.address, false); err != nil {
					t.Fatal(err)
				}
				var at time.Time
				g.until("it is healthy for long", func() bool {
					s := g.seen(first, "s2")
					if s.Healthy && at.IsZero() {
						at = time.Now()
					}
					return s.Healthy && time.Since(at) > 10*pilot.Every
				})
				if g.seen(first, "s2").Voter {
					t.Error("it was given a vote")
				}
			})
		})
	}
}

// Writers go on while leaders are killed, come back and transfer leadership. What was acknowledged is there, and no term has
// more than one leader.
func TestLeaderChangesUnderWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 3)
		var terms sync.Map
		var double atomic.Bool
		watch := func(m *member) {
			go m.WhileLeading(t.Context(), func(ctx context.Context, term uint64) {
				if other, loaded := terms.LoadOrStore(term, m.id); loaded && other != m.id {
					double.Store(true)
				}
				<-ctx.Done()
			})
		}
		for _, m := range g.members {
			watch(m)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var acked atomic.Int64
		for w := range 4 {
			wg.Go(func() {
				for n := w * 100000; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					for _, m := range g.up() {
						if _, outcome, err := m.Apply(t.Context(), entry(n)); err == nil && outcome == nil {
							acked.Add(1)
							break
						}
					}
					time.Sleep(time.Millisecond) // sleep: simulated time, which would not pass while no server takes writes
				}
			})
		}
		for range 3 {
			m := g.leader()
			g.stop(m)
			g.leader(m)
			g.restart(m)
			watch(m)
			g.until("it is back in step", func() bool { l := g.leader(); s := g.seen(l, m.id); return s != nil && s.Healthy })
			l := g.leader()
			if err := l.TransferLeadership(t.Context(), m.id); err != nil && !errors.Is(err, ErrNotLeader) {
				t.Logf("transfer: %v", err) // under load it may not be in time
			}
		}
		close(stop)
		wg.Wait()
		l := g.leader()
		if err := l.Linearize(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := int64(l.images()); n < acked.Load() || acked.Load() == 0 {
			t.Errorf("%d entries are there, %d were acknowledged", n, acked.Load())
		}
		if double.Load() {
			t.Error("two servers led in one term")
		}
		want := save(t, l.store)
		for _, m := range g.up() {
			g.until(m.id+" has the state", func() bool { return save(t, m.store) == want })
		}
	})
}
