package simulated

import (
	"context"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// maxQueued is how many events a reader may be behind before it has to list again.
const maxQueued = 1024

// subscriber is one reader of a machine's events.
type subscriber struct {
	out   chan hypervisor.Event
	wake  chan struct{} // holds one token if the queue may have grown
	quit  chan struct{}
	once  sync.Once
	mu    sync.Mutex
	queue []hypervisor.Event
}

// subscribe starts a reader that lives until ctx or its connection ends. The
// machine is locked.
func (m *machine) subscribe(ctx context.Context, connection <-chan struct{}) <-chan hypervisor.Event {
	s := &subscriber{out: make(chan hypervisor.Event), wake: make(chan struct{}, 1), quit: make(chan struct{})}
	m.subscribers[s] = struct{}{}
	go func() {
		defer close(s.out)
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.subscribers, s)
		}()
		for {
			e, ok := s.take()
			out := s.out
			if !ok {
				out = nil // nothing to send: wait for the rest
			}
			select {
			case out <- e:
				s.sent()
			case <-s.wake:
			case <-ctx.Done():
				return
			case <-connection:
				return
			case <-s.quit:
				return
			}
		}
	}()
	return s.out
}

func (s *subscriber) end() { s.once.Do(func() { close(s.quit) }) }

// take looks at the next event. It stays queued until sent, since an overflow
// may replace it meanwhile.
func (s *subscriber) take() (hypervisor.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return hypervisor.Event{}, false
	}
	return s.queue[0], true
}

// sent drops the event that take gave. If the queue overflowed in between, that event is a Resync:
// put queues two, so that one is left.
func (s *subscriber) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = s.queue[1:]
}

func (s *subscriber) put(e hypervisor.Event) {
	s.mu.Lock()
	if len(s.queue) >= maxQueued {
		resync := hypervisor.Event{At: e.At, Kind: hypervisor.Resync, Reason: "reader fell behind"}
		s.queue = append(s.queue[:0:0], resync, resync)
	} else {
		s.queue = append(s.queue, e)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// notify sends all readers an event of what happened to a VM at m.at.
func (m *machine) notify(kind hypervisor.EventKind, v *vm, reason string) {
	e := hypervisor.Event{Kind: kind, Name: v.spec.Name, Reason: reason}
	if !v.foreign {
		e.VM = v.spec.VM
	}
	if m.down() {
		return // a Resync will make up for it
	}
	if m.loseEvents > 0 {
		m.loseEvents--
		return
	}
	m.publish(e)
}

func (m *machine) publish(e hypervisor.Event) {
	if len(m.subscribers) == 0 {
		return
	}
	e.At = time.Unix(0, m.at).UTC()
	for s := range m.subscribers {
		s.put(e)
	}
}

// down says whether the machine's hypervisor is not reachable.
func (m *machine) down() bool { return m.absent || m.ended || m.off || m.disconnected }
