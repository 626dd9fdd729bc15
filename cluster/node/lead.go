package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership says who leads, as this server knows it.
type Leadership struct {
	Term uint64
	// Leads: this server leads in Term, and its state has all that was committed before.
	Leads bool
	// Leader and Address of the server that leads, "" if none is known.
	Leader, Address string
}

// leadership keeps the newest Leadership, and wakes its watchers.
type leadership struct {
	mu      sync.Mutex
	now     Leadership
	changed chan struct{}
}

func (l *leadership) init() { l.changed = make(chan struct{}) }

func (l *leadership) set(f func(*Leadership)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.now
	f(&l.now)
	if l.now != old {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *leadership) lost(term uint64, id, address string) {
	l.set(func(s *Leadership) {
		*s = Leadership{Term: max(term, s.Term), Leader: id, Address: address}
	})
}

// Leadership returns who leads now, and a channel that is closed when that changes. Changes in between may be missed, but never
// a change of term: a server that leads in another term than before has lost leadership in between.
func (n *Node) Leadership() (now Leadership, changed <-chan struct{}) {
	n.lead.mu.Lock()
	defer n.lead.mu.Unlock()
	return n.lead.now, n.lead.changed
}

// Lead waits until this server leads and its state has all that was committed before its term.
func (n *Node) Lead(ctx context.Context) error {
	for {
		now, changed := n.Leadership()
		if n.isClosed() {
			return fmt.Errorf("wait for leadership: %w", ErrClosed)
		}
		if now.Leads {
			return nil
		}
		select {
		case <-changed:
		case <-n.closed:
		case <-ctx.Done():
			return fmt.Errorf("wait for leadership: %w", ctx.Err())
		}
	}
}

// WhileLeading runs f for each term that this server leads, one at a time, with a context that is
// cancelled as soon as leadership is lost. It returns when ctx is done or the node closed, f having returned.
func (n *Node) WhileLeading(ctx context.Context, f func(ctx context.Context, term uint64)) {
	for ctx.Err() == nil && !n.isClosed() {
		now, changed := n.Leadership()
		if now.Leads {
			n.leadOnce(ctx, now.Term, f)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.closed:
			return
		case <-changed:
		}
	}
}

func (n *Node) leadOnce(ctx context.Context, term uint64, f func(ctx context.Context, term uint64)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx, term)
	}()
	n.awaitChange(ctx, term)
	cancel()
	<-done
}

// awaitChange returns when this server no longer leads in the term.
func (n *Node) awaitChange(ctx context.Context, term uint64) {
	for {
		now, changed := n.Leadership()
		if !now.Leads || now.Term != term {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-n.closed:
			return
		}
	}
}

func (n *Node) isClosed() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

// watch reports one raft's changes of leadership until a write fails (its error) or the node is closed (nil).
func (n *Node) watch(ctx context.Context, l *life) error {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	})
	l.raft.RegisterObserver(observer)
	defer l.raft.DeregisterObserver(observer)
	n.lead.heard(l.raft) // before the observer was there
	var settling sync.WaitGroup
	defer settling.Wait()
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.failed:
			return err
		case leads := <-l.notify:
			stop()
			address, id := l.raft.LeaderWithID()
			n.lead.lost(l.raft.CurrentTerm(), string(id), string(address))
			n.pilot.stop()
			settling.Wait()
			if !leads {
				continue
			}
			c, cancel := context.WithCancel(ctx)
			stop = cancel
			settling.Go(func() { n.awaitApplied(c, l) })
		case <-seen:
			n.lead.heard(l.raft)
		}
	}
}

// heard notes that another server leads, or none.
func (l *leadership) heard(r *raft.Raft) {
	address, id := r.LeaderWithID()
	term := r.CurrentTerm()
	l.set(func(s *Leadership) {
		if !s.Leads {
			*s = Leadership{Term: max(term, s.Term), Leader: string(id), Address: string(address)}
		}
	})
}

// awaitApplied waits until all that was committed before this term is applied, and then reports that this server leads.
func (n *Node) awaitApplied(ctx context.Context, l *life) {
	for ctx.Err() == nil {
		term := l.raft.CurrentTerm()
		err := n.wait(ctx, l, l.raft.Barrier(time.Second))
		if err == nil && l.raft.CurrentTerm() == term {
			n.appliedTerm.Store(term)
			address := n.wire.LocalAddr()
			n.lead.set(func(s *Leadership) {
				if ctx.Err() == nil { // or watch has reported the loss already
					*s = Leadership{Term: term, Leads: true, Leader: n.id, Address: string(address)}
				}
			})
			n.pilot.start(ctx, l)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // raft reports leadership before it takes entries
		}
	}
}
