package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

// A whole cluster of five in simulated time, over streams and disks in memory, with usual timers: leaders are cut off,
// servers crash and come back, and the states are equal in the end.
func TestInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{ends: map[string]*pipeEnd{}, cut: map[string]bool{}, conns: map[string][]net.Conn{}}
		servers := map[string]*server{}
		var mu sync.Mutex
		health := func(_ context.Context, of Server) (Stats, error) {
			mu.Lock()
			defer mu.Unlock()
			network.mu.Lock()
			defer network.mu.Unlock()
			if s := servers[of.ID]; s != nil && !network.cut[of.Address] {
				return s.Stats(), nil
			}
			return Stats{}, errors.New("no answer")
		}
		disks := map[string]*Memory{}
		start := func(id string) *server {
			if disks[id] == nil {
				disks[id] = NewMemory()
			}
			s, err := tryOpen(Options{ID: id, Memory: disks[id], Stream: network.end(id), Advertise: id, Bootstrap: id == "s1", Health: health, SnapshotEvery: 50, Trailing: 10})
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			servers[id] = s
			mu.Unlock()
			return s
		}
		leader := func() *server {
			for range 6000 {
				for id, s := range servers {
					if now, _ := s.Leadership(); now.Leads && !network.cut[id] {
						return s
					}
				}
				time.Sleep(10 * time.Millisecond) // sleep: simulated time
			}
			t.Fatal("no leader within a simulated minute")
			return nil
		}
		began := time.Now()
		start("s1")
		leader()
		for n := 2; n <= 5; n++ {
			id := fmt.Sprintf("s%d", n)
			start(id)
			if err := leader().AddServer(t.Context(), id, id, false); err != nil {
				t.Fatal(err)
			}
		}
		voters := func() (n int) {
			for _, s := range leader().Servers() {
				if s.Voter && s.Healthy {
					n++
				}
			}
			return n
		}
		for n := 0; voters() < 5; n++ {
			if n > 600 {
				t.Fatalf("after a simulated minute: %+v", leader().Servers())
			}
			time.Sleep(100 * time.Millisecond) // sleep: simulated time
		}
		t.Logf("five voters after %s of simulated time", time.Since(began))
		n := 0
		put := func(count int) {
			for end := n + count; n < end; {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if _, outcome, err := leader().Apply(ctx, entry(n)); err == nil || outcome != nil {
					n++
				}
				cancel()
			}
		}
		put(100)
		longest := time.Duration(0)
		for range 3 {
			cut := leader().id
			network.setCut(cut, true)
			at := time.Now()
			put(20)
			longest = max(longest, time.Since(at))
			crashed := leader().id
			if err := servers[crashed].Close(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			delete(servers, crashed)
			mu.Unlock()
			put(20)
			start(crashed)
			network.setCut(cut, false)
			put(20)
		}
		t.Logf("longest gap after a leader was cut off: %s", longest)
		if longest > 5*time.Second {
			t.Errorf("%s without a write", longest)
		}
		time.Sleep(30 * time.Second) // sleep: simulated time, for the last ones to catch up
		want := save(t, leader().store)
		for id, s := range servers {
			if got := save(t, s.store); got != want {
				t.Errorf("%s differs:\n%s\nfrom\n%s", id, got, want)
			}
			if k := len(s.store.Snapshot().Images()); k != n {
				t.Errorf("%s has %d of %d entries", id, k, n)
			}
		}
		for _, s := range servers {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
