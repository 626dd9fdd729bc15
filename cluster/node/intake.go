package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// intake gathers entries on their way to raft, which commits together what waits for it: one write to the disk, one message to
// each server, one transaction of the state. A lone entry goes at once. Where others are under way, entries are handed over at
// most every intakeApart. Raft takes the first of them alone and the others after it. It could take all at once (BatchApplyCh),
// but when it ends it would then forget some callers that wait.
type intake struct {
	mu      sync.Mutex
	waiting []*offered
	running bool
	shut    bool
	under   int       // entries that were handed over and have no outcome yet
	last    time.Time // when entries were handed over
}

// intakeApart is how long an entry waits for others at most.
const intakeApart = 15 * time.Millisecond

// offered is an entry that waits to be handed over.
type offered struct {
	to     *life
	entry  []byte
	until  time.Time
	handed chan raft.ApplyFuture
}

// submit hands an entry over to raft. The caller must call awaitApplied once the entry's outcome is there, or once it waits for
// it no more.
func (n *Node) submit(ctx context.Context, l *life, entry []byte, timeout time.Duration) (f raft.ApplyFuture, awaitApplied func(), err error) {
	in := &n.intake
	o := &offered{to: l, entry: entry, until: time.Now().Add(timeout), handed: make(chan raft.ApplyFuture, 1)}
	in.mu.Lock()
	if in.shut {
		in.mu.Unlock()
		return nil, nil, ErrClosed
	}
	in.waiting = append(in.waiting, o)
	if !in.running {
		in.running = true
		n.group.Go(n.takeIn)
	}
	in.mu.Unlock()
	awaitApplied = func() {
		in.mu.Lock()
		in.under--
		in.mu.Unlock()
	}
	select {
	case f := <-o.handed:
		return f, awaitApplied, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.over:
		err = n.ended()
	}
	awaitApplied() // or it is about to be handed over: it counts as under way a little less long
	return nil, nil, fmt.Errorf("%w: %w", ErrUnknown, err)
}

// takeIn runs until no entry waits.
func (n *Node) takeIn() {
	in := &n.intake
	for {
		in.mu.Lock()
		if len(in.waiting) == 0 {
			in.running = false
			in.mu.Unlock()
			return
		}
		var early time.Duration
		if in.under > 0 {
			early = intakeApart - time.Since(in.last)
		}
		in.mu.Unlock()
		if early > 0 {
			select {
			case <-time.After(early):
			case <-n.closed:
			}
		}
		in.mu.Lock()
		all := in.waiting
		in.waiting, in.last = nil, time.Now()
		in.under += len(all)
		in.mu.Unlock()
		for _, o := range all {
			n.group.Go(func() { o.handed <- o.to.raft.Apply(o.entry, max(time.Millisecond, time.Until(o.until))) })
		}
	}
}
