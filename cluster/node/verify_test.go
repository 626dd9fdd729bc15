package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/test/patience"
)

// late is a transport that can keep answers to heartbeats back, as a paused process or a slow
// network does.
type late struct {
	preVoter
	mu      sync.Mutex
	gate    chan struct{} // nil: open
	delayed int           // answers behind the gate
}

func (l *late) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := l.preVoter.AppendEntries(id, to, args, resp)
	l.mu.Lock()
	gate := l.gate
	if gate != nil {
		l.delayed++
	}
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return err
}

func (l *late) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *late) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate != nil {
		close(l.gate)
		l.gate, l.delayed = nil, 0
	}
}

func (l *late) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delayed
}

// wired is n servers within this process, of which the first len(voters) vote; the transports are late ones.
func wired(t testing.TB, voters, others int, beat time.Duration) (servers []*server, wires []*raft.InmemTransport, gates []*late) {
	t.Helper()
	var first []raft.Server
	for n := range voters + others {
		id := fmt.Sprintf("s%d", n+1)
		addr, wire := raft.NewInmemTransport(raft.ServerAddress(id))
		wires = append(wires, wire)
		s := raft.Server{ID: raft.ServerID(id), Address: addr}
		if n >= voters {
			s.Suffrage = raft.Nonvoter
		}
		first = append(first, s)
	}
	for _, a := range wires {
		for _, b := range wires {
			if a != b {
				a.Connect(b.LocalAddr(), b)
			}
		}
	}
	for n, v := range first {
		gate := &late{preVoter: wires[n]}
		gates = append(gates, gate)
		t.Cleanup(gate.open) // before the servers are closed
		o := Options{ID: string(v.ID), transport: gate, voters: first, Memory: NewMemory(), Timers: Timers{Heartbeat: beat}}
		servers = append(servers, open(t, o))
	}
	for _, gate := range gates {
		t.Cleanup(gate.open)
	}
	return servers, wires, gates
}

func leaderOf(t testing.TB, servers []*server, but *server) (*server, int) {
	t.Helper()
	var at int
	s := await(t, "a leader", doing(servers...), func() *server {
		for n, s := range servers {
			if now, _ := s.Leadership(); now.Leads && s != but {
				at = n
				return s
			}
		}
		return nil
	})
	return s, at
}

// Answers to what was sent before the check began prove nothing: the servers that gave them may have elected another leader
// since. raft's own check accepts them.
func TestVerifyCountsFreshAnswersOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		servers, wires, gates := wired(t, 3, 0, 400*time.Millisecond)
		first, at := leaderOf(t, servers, nil)
		if term, err := first.Verify(t.Context()); err != nil || term != first.Term() {
			t.Fatalf("verify: %d, %v, want term %d", term, err, first.Term())
		}
		// The leader's heartbeats are answered, but the answers stay on their way; then it is cut off.
		gates[at].close()
		until(t, "answers of both", func() any { return gates[at].waiting() }, func() bool { return gates[at].waiting() >= 2 })
		for n, w := range wires {
			if n != at {
				wires[at].Disconnect(w.LocalAddr())
				w.Disconnect(wires[at].LocalAddr())
			}
		}
		// Now the check begins, and the answers come.
		own := first.cur.Load().raft.VerifyLeader()
		ctx, cancel := context.WithTimeout(t.Context(), patience.Within(patience.Stall))
		defer cancel()
		result := make(chan error, 1)
		go func() {
			_, err := first.Verify(ctx)
			result <- err
		}()
		until(t, "the check has begun", doing(servers...), func() bool {
			first.wire.mu.Lock()
			defer first.wire.mu.Unlock()
			return first.wire.news != nil
		})
		gates[at].open()
		if err := own.Error(); err != nil {
			t.Logf("raft's own check did not fall for it this time: %v", err)
		}
		if err := <-result; !errors.Is(err, ErrNotLeader) {
			t.Errorf("verified by answers from before: %v", err)
		}
	})
}

// Servers without a vote do not make a majority.
func TestVerifyCountsVotersOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		servers, wires, _ := wired(t, 3, 2, 400*time.Millisecond)
		first, at := leaderOf(t, servers, nil)
		if err := first.Linearize(t.Context()); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if n != at {
				wires[at].Disconnect(wires[n].LocalAddr())
				wires[n].Disconnect(wires[at].LocalAddr())
			}
		}
		if term, err := first.Verify(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("verified in term %d by servers that do not vote: %v", term, err)
		}
		if err := first.Linearize(t.Context()); err == nil {
			t.Error("a linearizable read with servers that do not vote")
		}
	})
}

// Each call is answered by a check that began after it, and many share one.
func TestVerifyIsShared(t *testing.T) {
	servers, _, gates := wired(t, 3, 0, 2*time.Second)
	first, at := leaderOf(t, servers, nil)
	before := first.wire.number()
	gates[at].close() // the first check waits, so that the others come while it runs
	errs := make(chan error, 1000)
	for range cap(errs) {
		go func() {
			_, err := first.Verify(t.Context())
			errs <- err
		}()
	}
	until(t, "a check runs and others wait", doing(servers...), func() bool {
		first.verify.mu.Lock()
		defer first.verify.mu.Unlock()
		return first.verify.next != nil
	})
	gates[at].open()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := first.wire.number() - before; n > 500 {
		t.Errorf("%d messages and checks for 1000 calls at the same time", n)
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, waiting := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("%d at a time", waiting), func(b *testing.B) { benchmark(b, waiting, (*Node).verifyOnce) })
	}
}

func BenchmarkLinearize(b *testing.B) {
	for _, waiting := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d at a time", waiting), func(b *testing.B) { benchmark(b, waiting, (*Node).Linearize) })
	}
}

func (n *Node) verifyOnce(ctx context.Context) error {
	_, err := n.Verify(ctx)
	return err
}

func benchmark(b *testing.B, waiting int, f func(*Node, context.Context) error) {
	servers, _, _ := wired(b, 3, 0, time.Second)
	leader, _ := leaderOf(b, servers, nil)
	g := leader.Node
	var wg sync.WaitGroup
	work := make(chan struct{})
	for range waiting {
		wg.Go(func() {
			for range work {
				if err := f(g, context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.StopTimer()
}
