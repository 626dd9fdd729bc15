package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// verifier lets callers that ask at the same time share a check.
type verifier struct {
	mu      sync.Mutex
	running bool
	next    *check    // begins after all callers that wait for it have arrived
	last    time.Time // one began
	shut    bool
}

// checksApart is the least time from one check to the next: each is a message to every server, and many callers that ask at the
// same time come one by one.
const checksApart = 4 * time.Millisecond

type check struct {
	done chan struct{}
	term uint64
	err  error
}

// Verify returns the term in which this server leads, after a check begun after the call: a majority of the voters answered, in
// that term, to messages sent to them since. Calls that wait at the same time share one check. err wraps ErrNotLeader if the
// check failed.
func (n *Node) Verify(ctx context.Context) (term uint64, err error) {
	v := &n.verify
	v.mu.Lock()
	if v.shut {
		v.mu.Unlock()
		return 0, fmt.Errorf("check leadership: %w", ErrClosed)
	}
	c := v.next
	if c == nil {
		c = &check{done: make(chan struct{})}
		v.next = c
	}
	if !v.running {
		v.running = true
		n.group.Go(n.checks)
	}
	v.mu.Unlock()
	select {
	case <-c.done:
		return c.term, c.err
	case <-ctx.Done():
		return 0, fmt.Errorf("check leadership: %w", ctx.Err())
	}
}

// checks runs until no caller waits.
func (n *Node) checks() {
	v := &n.verify
	for {
		v.mu.Lock()
		if v.next == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		early := checksApart - time.Since(v.last)
		v.mu.Unlock()
		if early > 0 && !n.alone() {
			select { // callers that come meanwhile share the check
			case <-time.After(early):
			case <-n.closed:
			}
		}
		v.mu.Lock()
		c := v.next
		v.next, v.last = nil, time.Now()
		v.mu.Unlock()
		c.term, c.err = n.check()
		close(c.done)
	}
}

func (n *Node) check() (term uint64, err error) {
	l := n.cur.Load()
	if l == nil {
		return 0, fmt.Errorf("check leadership: %w", n.gone())
	}
	term = l.raft.CurrentTerm()
	sent := n.wire.number()
	no := fmt.Errorf("check leadership: %w", ErrNotLeader)
	leads := func() bool { return l.raft.State() == raft.Leader && l.raft.CurrentTerm() == term }
	if !leads() {
		if n.isClosed() {
			return 0, fmt.Errorf("check leadership: %w", ErrClosed)
		}
		return 0, no
	}
	// raft's own check makes it send a message to every server at once. Its result counts answers to earlier
	// messages, too, and is not used.
	l.raft.VerifyLeader()
	// Leadership that is lost has no message of its own here: raft gives up within its lease when
	// no majority answers.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, news := n.wire.agreed(raft.ServerID(n.id), voters(l.raft), term, sent)
		if !leads() {
			return 0, no
		}
		if yes {
			return term, nil
		}
		select {
		case <-news:
		case <-tick.C:
		case <-n.closed:
			return 0, fmt.Errorf("check leadership: %w", ErrClosed)
		}
	}
}

// voters returns the voters of the newest configuration, committed or not: raft counts by it, too.
func voters(r *raft.Raft) []raft.ServerID {
	var out []raft.ServerID
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			out = append(out, s.ID)
		}
	}
	return out
}
