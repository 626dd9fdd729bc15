package libvirt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// maxPending is how many events wait for one reader before they are replaced
// by a Resync.
const maxPending = 1024

// rawEvent is an event as a callback saw it. Callbacks run in the event loop and
// must not call libvirt, so naming the VM is left to dispatch.
type rawEvent struct {
	kind     hypervisor.EventKind
	at       time.Time
	uuid     string
	name     string
	reason   string
	incoming bool // Started by a migration that has yet to finish
	moved    bool // Resumed by the end of a migration
	inferred bool // not from libvirt: to be dropped if libvirt reported it after all
}

// rawQueue hands events from the event loop to dispatch without ever blocking the loop.
type rawQueue struct {
	mu    sync.Mutex
	items []rawEvent
	wake  chan struct{}
}

func (q *rawQueue) put(e rawEvent) {
	q.mu.Lock()
	q.items = append(q.items, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *rawQueue) take() []rawEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

func (h *Host) registerEvents(s *session) error {
	lifecycle, err := s.conn.DomainEventLifecycleRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
		if r, ok := lifecycleEvent(e); ok {
			h.putFor(d, r)
		}
	})
	if err != nil {
		return err
	}
	s.callbacks = append(s.callbacks, lifecycle)
	balloon, err := s.conn.DomainEventBalloonChangeRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventBalloonChange) {
		h.putFor(d, rawEvent{kind: hypervisor.BalloonMoved})
	})
	if err != nil {
		return err
	}
	s.callbacks = append(s.callbacks, balloon)
	job, err := s.conn.DomainEventJobCompletedRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, e *libvirt.DomainEventJobCompleted) {
		if uuid, err := d.GetUUIDString(); err == nil {
			h.jobCompleted(uuid, &e.Info)
		}
	})
	if err != nil {
		return err
	}
	s.callbacks = append(s.callbacks, job)
	return nil
}

func (h *Host) putFor(d *libvirt.Domain, r rawEvent) {
	r.at = time.Now()
	r.uuid, _ = d.GetUUIDString() // both are in the domain object: no call of the daemon
	r.name, _ = d.GetName()
	h.raw.put(r)
}

// lifecycleEvent translates libvirt's event; false for those that say nothing
// about a VM's running.
func lifecycleEvent(e *libvirt.DomainEventLifecycle) (rawEvent, bool) {
	switch e.Event {
	case libvirt.DOMAIN_EVENT_STARTED:
		switch libvirt.DomainEventStartedDetailType(e.Detail) {
		case libvirt.DOMAIN_EVENT_STARTED_MIGRATED:
			return rawEvent{kind: hypervisor.Started, reason: "migrated", incoming: true}, true
		case libvirt.DOMAIN_EVENT_STARTED_RESTORED, libvirt.DOMAIN_EVENT_STARTED_FROM_SNAPSHOT:
			return rawEvent{kind: hypervisor.Started, reason: "restored"}, true
		}
		return rawEvent{kind: hypervisor.Started, reason: "booted"}, true
	case libvirt.DOMAIN_EVENT_SUSPENDED:
		reasons := map[libvirt.DomainEventSuspendedDetailType]string{
			libvirt.DOMAIN_EVENT_SUSPENDED_PAUSED:          "paused",
			libvirt.DOMAIN_EVENT_SUSPENDED_MIGRATED:        "migrating",
			libvirt.DOMAIN_EVENT_SUSPENDED_IOERROR:         "I/O error",
			libvirt.DOMAIN_EVENT_SUSPENDED_WATCHDOG:        "watchdog",
			libvirt.DOMAIN_EVENT_SUSPENDED_POSTCOPY:        "post-copy",
			libvirt.DOMAIN_EVENT_SUSPENDED_POSTCOPY_FAILED: "post-copy failed",
		}
		return rawEvent{kind: hypervisor.Suspended, reason: reasons[libvirt.DomainEventSuspendedDetailType(e.Detail)]}, true
	case libvirt.DOMAIN_EVENT_PMSUSPENDED:
		return rawEvent{kind: hypervisor.Suspended, reason: "guest suspended itself"}, true
	case libvirt.DOMAIN_EVENT_RESUMED:
		d := libvirt.DomainEventResumedDetailType(e.Detail)
		if d == libvirt.DOMAIN_EVENT_RESUMED_UNPAUSED {
			return rawEvent{kind: hypervisor.Resumed, reason: "unpaused"}, true
		}
		moved := d == libvirt.DOMAIN_EVENT_RESUMED_MIGRATED || d == libvirt.DOMAIN_EVENT_RESUMED_POSTCOPY
		return rawEvent{kind: hypervisor.Resumed, reason: "migrated", moved: moved}, true
	case libvirt.DOMAIN_EVENT_STOPPED:
		d := libvirt.DomainEventStoppedDetailType(e.Detail)
		if d == libvirt.DOMAIN_EVENT_STOPPED_MIGRATED {
			return rawEvent{kind: hypervisor.MovedOut, reason: "migrated"}, true
		}
		reasons := map[libvirt.DomainEventStoppedDetailType]string{
			libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:      "shutdown",
			libvirt.DOMAIN_EVENT_STOPPED_DESTROYED:     "destroyed",
			libvirt.DOMAIN_EVENT_STOPPED_CRASHED:       "crashed",
			libvirt.DOMAIN_EVENT_STOPPED_SAVED:         "saved",
			libvirt.DOMAIN_EVENT_STOPPED_FAILED:        "failed",
			libvirt.DOMAIN_EVENT_STOPPED_FROM_SNAPSHOT: "snapshot restored",
		}
		return rawEvent{kind: hypervisor.Stopped, reason: reasons[d]}, true
	}
	return rawEvent{}, false
}

// dispatch names the VMs of raw events and passes them on, in order.
func (h *Host) dispatch() {
	defer h.wg.Done()
	defer h.subs.closeAll()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.raw.wake:
		}
		for _, r := range h.raw.take() {
			if e, ok := h.resolve(r); ok {
				h.subs.publish(e)
			}
		}
	}
}

// resolve turns a raw event of libvirt into a hypervisor.Event; false if readers do not need it.
func (h *Host) resolve(r rawEvent) (hypervisor.Event, bool) {
	e := hypervisor.Event{At: r.at, Kind: r.kind, Name: r.name, Reason: r.reason}
	if r.uuid == "" {
		return e, true
	}
	vm, ok := h.lookupKnown(r.uuid)
	if !ok && r.kind == hypervisor.Started {
		vm, ok = h.learn(r.uuid)
	}
	if r.inferred {
		if !ok {
			return e, false
		}
		e.Name = vm.name
	}
	if r.kind == hypervisor.Resumed && r.moved && ok && vm.incoming {
		e.Kind = hypervisor.MovedIn
	}
	if ok {
		e.VM = vm.VM
		h.mu.Lock()
		switch e.Kind {
		case hypervisor.Stopped, hypervisor.MovedOut:
			delete(h.known, r.uuid)
			delete(h.stats, r.uuid)
		default:
			if now, still := h.known[r.uuid]; still {
				now.incoming = r.incoming || now.incoming && e.Kind != hypervisor.MovedIn
				h.known[r.uuid] = now
			}
		}
		h.mu.Unlock()
	}
	// A VM that begins to arrive does not run here yet: MovedIn says when it does.
	return e, !r.incoming
}

func (h *Host) lookupKnown(uuid string) (knownVM, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	vm, ok := h.known[uuid]
	return vm, ok
}

// learn asks libvirt whether the domain of that UUID is ours.
func (h *Host) learn(uuid string) (knownVM, bool) {
	vm, err := call(calling(h.ctx, "virDomainLookupByUUID", "", uuid), h, h.opts.CallTimeout, func(c *libvirt.Connect) (knownVM, error) {
		dom, err := c.LookupDomainByUUIDString(uuid)
		if err != nil {
			return knownVM{}, err
		}
		defer dom.Free()
		return nameOf(dom)
	})
	if err != nil {
		return knownVM{}, false
	}
	h.remember(uuid, vm)
	return vm, true
}

func nameOf(dom *libvirt.Domain) (knownVM, error) {
	m, err := markOf(dom)
	if err != nil {
		return knownVM{}, err
	}
	name, err := dom.GetName()
	return knownVM{Identity: m.identity(), name: name}, err
}

func (h *Host) remember(uuid string, vm knownVM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	vm.incoming, vm.noShare = vm.incoming || h.known[uuid].incoming, h.known[uuid].noShare
	h.known[uuid] = vm
}

func (h *Host) forget(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, uuid)
	delete(h.stats, uuid)
}

// learnNames fills in the names of the VMs that run when a connection is
// made, and forgets those that went unseen.
func (h *Host) learnNames(s *session) error {
	doms, err := s.conn.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	if err != nil {
		return err
	}
	found := map[string]knownVM{}
	for i := range doms {
		if vm, err := nameOf(&doms[i]); err == nil {
			if uuid, err := doms[i].GetUUIDString(); err == nil {
				found[uuid] = vm
			}
		}
		_ = doms[i].Free()
	}
	h.mu.Lock()
	h.known = found
	for uuid := range h.stats {
		if _, runs := found[uuid]; !runs {
			delete(h.stats, uuid)
		}
	}
	h.mu.Unlock()
	return nil
}

// Events says what happens on the host until ctx ends or the Host is closed.
func (h *Host) Events(ctx context.Context) (<-chan hypervisor.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.ctx.Err() != nil {
		return nil, fmt.Errorf("events: %w: %w", errClosed, hypervisor.ErrUnavailable)
	}
	sub := h.subs.add()
	go func() {
		sub.pump(ctx)
		h.subs.remove(sub)
	}()
	return sub.out, nil
}

// subscribers are the readers of a Host's events.
type subscribers struct {
	mu     sync.Mutex
	all    map[*subscriber]struct{}
	closed bool
}

type subscriber struct {
	out chan hypervisor.Event

	mu      sync.Mutex
	pending []hypervisor.Event
	done    bool
	wake    chan struct{}
}

func (s *subscribers) add() *subscriber {
	sub := &subscriber{out: make(chan hypervisor.Event), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*subscriber]struct{}{}
	}
	s.all[sub] = struct{}{}
	sub.done = s.closed
	if s.closed {
		sub.wake <- struct{}{}
	}
	return sub
}

func (s *subscribers) remove(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sub)
}

func (s *subscribers) publish(e hypervisor.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.all {
		sub.put(e)
	}
}

func (s *subscribers) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for sub := range s.all {
		sub.finish()
	}
}

func (s *subscriber) put(e hypervisor.Event) {
	s.mu.Lock()
	if len(s.pending) >= maxPending {
		s.pending = append(s.pending[:0], hypervisor.Event{At: e.At, Kind: hypervisor.Resync, Reason: "reader fell behind"})
	} else {
		s.pending = append(s.pending, e)
	}
	s.mu.Unlock()
	s.poke()
}

func (s *subscriber) finish() {
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.poke()
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pump sends what is pending until ctx ends or the host is closed; then it
// closes the channel.
func (s *subscriber) pump(ctx context.Context) {
	defer close(s.out)
	for {
		s.mu.Lock()
		var next hypervisor.Event
		have, done := len(s.pending) > 0, s.done
		if have {
			next = s.pending[0]
			s.pending = s.pending[1:]
		}
		s.mu.Unlock()
		switch {
		case have && done: // the reader may have gone: do not wait for it
			select {
			case s.out <- next:
			case <-ctx.Done():
				return
			default:
				return
			}
		case have:
			select {
			case s.out <- next:
			case <-ctx.Done():
				return
			}
		case done:
			return
		default:
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}
