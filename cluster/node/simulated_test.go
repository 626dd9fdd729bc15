package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// pipes is a network within a process: connections of net.Pipe that end when a side is cut off.
type pipes struct {
	mu    sync.Mutex
	ends  map[string]*pipeEnd
	cut   map[string]bool
	conns map[string][]net.Conn
}

type pipeEnd struct {
	of      *pipes
	address string
	accept  chan net.Conn
	stop    chan struct{}
	once    sync.Once
}

func (p *pipes) end(addr string) *pipeEnd {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &pipeEnd{of: p, address: addr, accept: make(chan net.Conn), stop: make(chan struct{})}
	p.ends[addr] = e
	return e
}

func (p *pipes) setCut(addr string, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[addr] = cut
	for _, c := range p.conns[addr] {
		_ = c.Close()
	}
	p.conns[addr] = nil
}

func (e *pipeEnd) Accept() (net.Conn, error) {
	select {
	case c := <-e.accept:
		return c, nil
	case <-e.stop:
		return nil, net.ErrClosed
	}
}

func (e *pipeEnd) Close() error {
	e.once.Do(func() { close(e.stop) })
	return nil
}

func (e *pipeEnd) Addr() net.Addr { return address(e.address) }

func (e *pipeEnd) Dial(to string, timeout time.Duration) (net.Conn, error) {
	e.of.mu.Lock()
	peer := e.of.ends[to]
	lost := peer == nil || e.of.cut[to] || e.of.cut[e.address]
	e.of.mu.Unlock()
	if lost {
		return nil, errors.New("no route")
	}
	near, far := net.Pipe()
	e.of.mu.Lock()
	for _, a := range []string{to, e.address} {
		e.of.conns[a] = append(e.of.conns[a], near, far)
	}
	e.of.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case peer.accept <- far:
		return near, nil
	case <-peer.stop:
	case <-timer.C:
	}
	return nil, errors.New("refused")
}

// simulated is a cluster in simulated time, over streams and disks in memory, with usual timers.
type simulated struct {
	t       *testing.T
	network *pipes
	mu      sync.Mutex
	servers map[string]*server
	disks   map[string]*Memory
	full    map[string]*full
	written int // entries that are in the log
}

func simulate(t *testing.T, size int) *simulated {
	c := &simulated{t: t, network: &pipes{ends: map[string]*pipeEnd{}, cut: map[string]bool{}, conns: map[string][]net.Conn{}},
		servers: map[string]*server{}, disks: map[string]*Memory{}, full: map[string]*full{}}
	c.start("s1")
	for n := 2; n <= size; n++ {
		id := fmt.Sprintf("s%d", n)
		c.start(id)
		if err := c.leader().AddServer(t.Context(), id, id, false); err != nil {
			t.Fatal(err)
		}
	}
	c.until("all vote", func() bool {
		n := 0
		for _, s := range c.leader().Servers() {
			if s.Voter && s.Healthy {
				n++
			}
		}
		return n == size
	})
	return c
}

func (c *simulated) start(id string) {
	c.t.Helper()
	if c.disks[id] == nil {
		c.disks[id], c.full[id] = NewMemory(), &full{}
	}
	s, err := tryOpen(Options{ID: id, Memory: c.disks[id], Fault: c.full[id].fault, Stream: c.network.end(id), Advertise: id,
		Bootstrap: id == "s1", Health: c.health, SnapshotEvery: 50, Trailing: 10, RestorePart: 4 << 10})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[id] = s
}

func (c *simulated) crash(id string) {
	c.t.Helper()
	if err := c.servers[id].Close(); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers, id)
}

func (c *simulated) health(_ context.Context, of Server) (Stats, error) {
	c.mu.Lock()
	s := c.servers[of.ID]
	c.mu.Unlock()
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if s == nil || c.network.cut[of.Address] {
		return Stats{}, errors.New("no answer")
	}
	return s.Stats(), nil
}

func (c *simulated) until(what string, f func() bool) {
	c.t.Helper()
	for range 6000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond) // sleep: simulated time
	}
	c.t.Fatalf("not within a simulated minute: %s", what)
}

// leader is one that is not cut off.
func (c *simulated) leader() (leader *server) {
	c.t.Helper()
	c.until("a leader", func() bool {
		for id, s := range c.servers {
			if now, _ := s.Leadership(); now.Leads && !c.network.cut[id] {
				leader = s
			}
		}
		return leader != nil
	})
	return leader
}

// put writes count more entries, and returns how long that took.
func (c *simulated) put(count int) time.Duration {
	c.t.Helper()
	began := time.Now()
	for end := c.written + count; c.written < end; {
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		if _, outcome, err := c.leader().Apply(ctx, entry(c.written)); err == nil || outcome != nil {
			c.written++
		}
		cancel()
	}
	return time.Since(began)
}

// awaitQuiet waits until all servers hold all there is, and ends them.
func (c *simulated) awaitQuiet() {
	c.t.Helper()
	for id, s := range c.servers {
		c.until(id+" has it all", func() bool {
			return len(s.store.Snapshot().Images()) == c.written && save(c.t, s.store) == save(c.t, c.leader().store)
		})
	}
	for _, s := range c.servers {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// Leaders are cut off, servers crash and come back, and the states are equal in the end.
func TestInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 5)
		c.put(100)
		longest := time.Duration(0)
		for range 3 {
			cut := c.leader().id
			c.network.setCut(cut, true)
			longest = max(longest, c.put(20))
			crashed := c.leader().id
			c.crash(crashed)
			longest = max(longest, c.put(20))
			c.start(crashed)
			c.network.setCut(cut, false)
			c.put(20)
		}
		t.Logf("longest time without a leader: %s", longest)
		if longest > 5*time.Second {
			t.Errorf("%s without a write", longest)
		}
		c.awaitQuiet()
	})
}

// The leader of two servers gives a third its vote while the second is away, and is lost. The second has no entry that says so, and the third alone has
// the whole log: it leads.
func TestLeaderIsLostAfterAPromotion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 2)
		first, second := c.servers["s1"], c.servers["s2"]
		if c.leader() != first {
			first, second = second, first
		}
		c.start("s3")
		if err := first.AddServer(t.Context(), "s3", "s3", false); err != nil {
			t.Fatal(err)
		}
		c.put(3)
		c.until("the third has the log", func() bool { return len(c.servers["s3"].store.Snapshot().Images()) == 3 })
		c.network.setCut(second.id, true)
		if err := addVoter(first.cur.Load().raft, "s3", "s3", 0).Error(); err != nil {
			t.Fatal(err)
		}
		c.network.setCut(first.id, true)
		c.network.setCut(second.id, false)
		c.until("the third leads", func() bool { now, _ := c.servers["s3"].Leadership(); return now.Leads })
		c.network.setCut(first.id, false)
		c.put(5)
		c.awaitQuiet()
	})
}

// A full disk moves leadership once, and its server bothers the others no more until there is room.
func TestFullDiskInSimulatedTime(t *testing.T) {
	for _, only := range []string{"", WriteLog} {
		t.Run("writes "+only, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fullDisk(t, only) })
		})
	}
}

func fullDisk(t *testing.T, only string) {
	c := simulate(t, 3)
	c.put(60)
	first := c.leader()
	c.full[first.id].only = only
	c.full[first.id].on.Store(true)
	c.until("another leads", func() bool { return c.put(1) >= 0 && c.leader() != first })
	term := c.leader().Term()
	for range 60 {
		c.put(2)
		time.Sleep(time.Second) // sleep: simulated time
	}
	if now := c.leader().Term(); now != term {
		t.Errorf("term %d, and %d a minute later", term, now)
	}
	if first.Down() == nil {
		t.Error("it is up without room")
	}
	c.full[first.id].on.Store(false)
	c.until("it is back", func() bool { return first.Down() == nil })
	c.put(5)
	if now := c.leader().Term(); now != term {
		t.Errorf("its return cost an election: term %d, then %d", term, now)
	}
	c.awaitQuiet()
}

// A state is restored while one server is down and another is cut off; both come back to it.
func TestRestoreInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 5)
		c.leader().found(t, "c1")
		c.put(30)
		file := c.leader().backup(t)
		c.put(60) // more than a snapshot's worth
		var others []string
		for id := range c.servers {
			if id != c.leader().id {
				others = append(others, id)
			}
		}
		down, cut := others[0], others[1]
		c.full[down].on.Store(true)
		c.network.setCut(cut, true)
		c.put(30)
		c.until("one is down", func() bool { return c.servers[down].Down() != nil })
		for name := range 3 { // older, and older again
			if _, err := c.leader().Restore(t.Context(), bytes.NewReader(file), false); err != nil {
				t.Fatal(name, err)
			}
		}
		c.written = 30
		c.put(5)
		c.full[down].on.Store(false)
		c.network.setCut(cut, false)
		c.put(5)
		c.awaitQuiet()
	})
}

// A state is restored while a server is away that led, and has entries in its log which were never committed: it comes back to it, too.
func TestRestoreWhileAnOldLeaderIsAway(t *testing.T) {
	for _, past := range []bool{false, true} {
		t.Run(fmt.Sprintf("past the log: %t", past), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := simulate(t, 3)
				c.leader().found(t, "c1")
				c.leader().command(t, state.KindMemberPut, state.Member{Name: "s1", Server: true, Format: state.FormatVersion})
				c.put(30)
				file := c.leader().backup(t)
				old := c.leader()
				c.network.setCut(old.id, true)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				var asked sync.WaitGroup
				for n := range 40 {
					asked.Go(func() {
						if _, _, err := old.Apply(ctx, entry(1000+n)); err == nil {
							t.Error("acknowledged without a quorum")
						}
					})
				}
				asked.Wait()
				cancel()
				c.put(5)
				restore := func(n *Node) error {
					if !past {
						_, err := n.Restore(t.Context(), bytes.NewReader(file), false)
						return err
					}
					saved, body, err := inspect(bytes.NewReader(file))
					if err != nil {
						return err
					}
					l, _, err := n.leading()
					if err != nil {
						return err
					}
					return n.restorePastLog(t.Context(), l, n.state.Snapshot(), saved, body, state.Restore{})
				}
				if err := restore(c.leader().Node); err != nil {
					t.Fatal(err)
				}
				c.written = 30
				c.network.setCut(old.id, false)
				c.put(5)
				c.awaitQuiet()
			})
		})
	}
}

// A leader that is cut off while it restores changes no server's state, its own neither, and comes back into step.
func TestRestoreByALeaderThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 3)
		c.leader().found(t, "c1")
		c.put(30)
		file := c.leader().backup(t)
		c.put(30)
		old := c.leader()
		if err := old.Linearize(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.network.setCut(old.id, true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := old.restoreInLog(ctx, old.store.Snapshot(), file[bytes.IndexByte(file, '\n')+1:], state.Restore{ID: "r"}); err == nil {
			t.Error("restored without a quorum")
		}
		c.put(5)
		c.network.setCut(old.id, false)
		c.put(5)
		c.awaitQuiet()
	})
}

// A state that raft replaces by an older snapshot takes the entries after that one again.
func TestReplacedStateTakesEntriesAgain(t *testing.T) {
	s := state.New()
	f := &fsm{store: s}
	for n := range 10 {
		f.Apply(&raft.Log{Index: uint64(n + 1), Data: entry(n)})
	}
	older := save(t, s)
	for n := 10; n < 20; n++ {
		f.Apply(&raft.Log{Index: uint64(n + 1), Data: entry(n)})
	}
	want := save(t, s)
	back := &fsm{store: s, has: 20}
	for n := 5; n < 20; n++ {
		back.Apply(&raft.Log{Index: uint64(n + 1), Data: entry(n)})
	}
	if save(t, s) != want {
		t.Error("entries that the state held changed it")
	}
	if err := back.Restore(io.NopCloser(strings.NewReader(older))); err != nil {
		t.Fatal(err)
	}
	for n := 10; n < 20; n++ {
		back.Apply(&raft.Log{Index: uint64(n + 1), Data: entry(n)})
	}
	if got := save(t, s); got != want {
		t.Errorf("entries after the older snapshot are missing:\n%s\nwant\n%s", got, want)
	}
}
