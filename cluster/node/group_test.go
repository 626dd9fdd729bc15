package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/test/memnet"
	"evenkeel/test/patience"
	"evenkeel/test/scratch"
)

// stream is one over a network in memory, without TLS.
type stream struct {
	net.Listener
	of *memnet.Network
}

func (s stream) Dial(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.of.Dial(ctx, "tcp", address)
}

// listen at an address of the group's network.
func (g *group) listen(address string) stream {
	g.t.Helper()
	l, err := g.network.Listen(address)
	if err != nil {
		g.t.Fatal(err)
	}
	return stream{l, &g.network}
}

// bubble runs a test beside others, in simulated time: what waits takes no time, and no limit depends on the machine.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// What a slow disk still writes when the servers have ended, ends by itself.
		t.Cleanup(func() { time.Sleep(time.Minute) }) // sleep: simulated time
		f(t)
	})
}

// group is servers that can be stopped and started.
type group struct {
	network memnet.Network
	t       *testing.T
	mu      sync.Mutex
	members map[string]*member
	pilot   Autopilot
}

type member struct {
	*server
	o       Options
	address string
	up      bool
}

func newGroup(t *testing.T, size int) *group {
	g := &group{t: t, members: map[string]*member{}, pilot: Autopilot{Every: 50 * time.Millisecond, Stable: 100 * time.Millisecond}}
	g.start("s1", Options{Bootstrap: true}).lead(t)
	for n := 2; n <= size; n++ {
		id := fmt.Sprintf("s%d", n)
		m := g.start(id, Options{})
		g.add(m)
	}
	return g
}

// add adds a server with a vote, through the present leader: on a slow machine that may change meanwhile.
func (g *group) add(m *member) {
	g.t.Helper()
	g.until(m.id+" is added", func() bool { return g.leader().AddServer(g.t.Context(), m.id, m.address, true) == nil })
}

// start a server that has its own directory, fast timers, and the others' health from themselves.
func (g *group) start(id string, o Options) *member {
	g.t.Helper()
	l := g.listen("127.0.0.1:0")
	o.ID, o.Advertise = id, l.Addr().String()
	if o.Dir == "" {
		o.Dir = scratch.Dir(g.t)
	}
	o.Timers = Timers{Heartbeat: 500 * time.Millisecond, Retry: 20 * time.Millisecond}
	o.Health, o.Autopilot = g.health, g.pilot
	o.Stream = l
	m := &member{o: o, address: o.Advertise, up: true}
	m.server = open(g.t, o)
	g.mu.Lock()
	g.members[id] = m
	g.mu.Unlock()
	return m
}

func (g *group) health(_ context.Context, of Server) (Stats, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[of.ID]
	if m == nil || !m.up {
		return Stats{}, errors.New("no answer")
	}
	return m.Stats(), nil
}

func (g *group) setUp(m *member, up bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.up = up
}

func (g *group) stop(m *member) {
	g.t.Helper()
	g.setUp(m, false)
	m.close(g.t)
}

// restart a stopped server on its directory and its address.
func (g *group) restart(m *member) {
	g.t.Helper()
	m.o.Stream, m.o.Used = g.listen(m.address), true
	s := open(g.t, m.o)
	g.mu.Lock()
	m.server, m.up = s, true
	g.mu.Unlock()
}

func (g *group) leader(but ...*member) *member {
	g.t.Helper()
	return await(g.t, "a leader", g.doing, func() *member {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, m := range g.members {
			except := false
			for _, b := range but {
				except = except || b == m
			}
			if now, _ := m.Leadership(); m.up && now.Leads && !except {
				return m
			}
		}
		return nil
	})
}

// server as the leader sees it.
func (g *group) seen(leader *member, id string) *Server {
	for _, s := range leader.Servers() {
		if s.ID == id {
			return &s
		}
	}
	return nil
}

func (g *group) until(what string, f func() bool) {
	g.t.Helper()
	until(g.t, what, g.doing, f)
}

// doing is how far the servers that are up are.
func (g *group) doing() any {
	g.mu.Lock()
	defer g.mu.Unlock()
	var up []*server
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		if m := g.members[id]; m.up {
			up = append(up, m.server)
		}
	}
	return doing(up...)()
}

func (m *member) images() int { return len(m.store.Snapshot().Images()) }

// put writes entries [from, to) through the present leader.
func (g *group) put(from, to int) {
	g.t.Helper()
	for n := from; n < to; n++ {
		g.until(fmt.Sprintf("entry %d", n), func() bool {
			ctx, cancel := context.WithTimeout(g.t.Context(), patience.Within(2*time.Second))
			defer cancel()
			_, outcome, err := g.leader().Apply(ctx, entry(n))
			return err == nil && (outcome == nil || errors.Is(outcome, state.ErrConflict))
		})
	}
}

// restore a snapshot through the present leader, or through the next one if this one leads no more.
func (g *group) restore(file []byte) {
	g.t.Helper()
	g.until("a snapshot is restored", func() bool {
		_, err := g.leader().Restore(g.t.Context(), bytes.NewReader(file), false)
		if err != nil && !errors.Is(err, ErrNotLeader) {
			g.t.Fatal(err)
		}
		return err == nil
	})
}

func TestJoinAndPromotion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 1)
		first := g.leader()
		g.put(0, 10)
		if a := Advice(first.Servers()); a == "" {
			t.Error("no advice for a single server")
		}
		for _, id := range []string{"s2", "s3"} {
			m := g.start(id, Options{})
			if got := m.Servers(); len(got) != 0 {
				t.Errorf("%s waits to be added, but has servers %v", id, got)
			}
			add := func() bool { return g.leader().AddServer(t.Context(), id, m.address, false) == nil }
			g.until(id+" is added", add)
			g.until(id+" is added again", add)
			g.until(id+" votes", func() bool { s := g.seen(g.leader(), id); return s.Voter && s.Healthy })
			g.until(id+" is added once more", add)
			if !g.seen(g.leader(), id).Voter {
				t.Errorf("%s lost its vote by being added again", id)
			}
			if n := m.images(); n != 10 {
				t.Errorf("%s was given a vote with %d of 10 entries", id, n)
			}
		}
		first = g.leader()
		if a := Advice(first.Servers()); a != "" {
			t.Errorf("advice for three servers: %s", a)
		}
		if err := first.AddServer(t.Context(), "s4", first.address, true); !errors.Is(err, ErrRefused) {
			t.Errorf("a second server at the same address: %v", err)
		}
		g.stop(first)
		second := g.leader()
		if n := second.images(); n != 10 {
			t.Errorf("the next leader has %d of 10 entries", n)
		}
		g.put(10, 20)
		g.restart(first)
		g.until("the first one has all", func() bool { return first.images() == 20 })
	})
}

// up are the servers that run.
func (g *group) up() []*server {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*server
	for _, m := range g.members {
		if m.up {
			out = append(out, m.server)
		}
	}
	return out
}
