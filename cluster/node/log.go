package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Apply puts an entry into the log and returns once it is committed and applied here. outcome is the result of
// state.Store.Apply; err means that the entry is not known to be in the log: ErrNotLeader says that it is not, ErrUnknown that
// it may be.
func (n *Node) Apply(ctx context.Context, entry []byte) (index uint64, outcome, err error) {
	l := n.cur.Load()
	if l == nil {
		return 0, nil, fmt.Errorf("apply entry: %w", n.gone())
	}
	timeout := 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Millisecond, time.Until(deadline))
	}
	l.waits.Add(1)
	defer l.stopWaiting()
	f, awaitApplied, err := n.submit(ctx, l, entry, timeout)
	if err == nil {
		err = n.wait(ctx, l, f)
		awaitApplied()
	}
	if err != nil {
		return 0, nil, fmt.Errorf("apply entry: %w", err)
	}
	if e, ok := f.Response().(error); ok {
		outcome = e
	}
	return f.Index(), outcome, nil
}

// Linearize returns once the state here has every entry that any server acknowledged before the call. Only the leader can.
func (n *Node) Linearize(ctx context.Context) error {
	// This server has applied what it acknowledged in its term. What others acknowledged before is applied once a barrier of
	// this term has come through. Neither the commit index nor the applied index shows that (a new leader does not know yet
	// what is committed, and raft counts an entry as applied when it is handed over, not when it is in the state).
	for {
		l := n.cur.Load()
		if l == nil {
			return fmt.Errorf("linearizable read: %w", n.gone())
		}
		term := l.raft.CurrentTerm()
		if n.appliedTerm.Load() != term {
			if err := n.wait(ctx, l, l.raft.Barrier(10*time.Second)); err != nil {
				return fmt.Errorf("linearizable read: %w", err)
			}
			if l.raft.CurrentTerm() != term {
				continue
			}
			n.appliedTerm.Store(term)
		}
		verified, err := n.Verify(ctx)
		if err != nil {
			return fmt.Errorf("linearizable read: %w", err)
		}
		if verified == term {
			return nil
		}
	}
}

// Term is the highest term this server has seen, 0 while it is down or closed.
func (n *Node) Term() uint64 {
	if l := n.cur.Load(); l != nil {
		return l.raft.CurrentTerm()
	}
	return 0
}

// Leader is the id of the server that leads, "" if none is known.
func (n *Node) Leader() string {
	if l := n.cur.Load(); l != nil {
		_, id := l.raft.LeaderWithID()
		return string(id)
	}
	return ""
}

// Leads says whether this server believes that it leads.
func (n *Node) Leads() bool {
	l := n.cur.Load()
	return l != nil && l.raft.State() == raft.Leader
}

// Status returns the status in texts and figures, for people.
func (n *Node) Status() map[string]string {
	if l := n.cur.Load(); l != nil {
		return l.raft.Stats()
	}
	return map[string]string{"state": "Down"}
}

// Snapshot saves the state now and truncates the log before it.
func (n *Node) Snapshot() error {
	l := n.cur.Load()
	if l == nil {
		return fmt.Errorf("snapshot: %w", n.gone())
	}
	if err := l.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// wait waits for a future, and translates its error to this package's.
func (n *Node) wait(ctx context.Context, l *life, f raft.Future) error {
	done := make(chan error, 1)
	l.waits.Add(1)
	go func() {
		defer l.stopWaiting()
		done <- f.Error()
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	case <-l.over: // an instance of raft that ends may forget callers that wait, see awaitOutcomes
		select {
		case err = <-done:
		default:
			return fmt.Errorf("%w: %w", ErrUnknown, n.ended())
		}
	}
	if l.hears(err, time.Now(), l.election) {
		l.fail(errStuck)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", ErrUnknown, n.ended())
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// ended says why an instance of raft ended while a caller waited for it.
func (n *Node) ended() error {
	select {
	case <-n.closed:
		return ErrClosed
	default:
		return errDown
	}
}
