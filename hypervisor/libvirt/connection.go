package libvirt

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

const (
	keepaliveInterval = 3 // seconds between libvirt's probes of an idle connection
	keepaliveCount    = 3 // probes without an answer before the connection counts as lost
	firstBackoff      = 100 * time.Millisecond
	maxBackoff        = 3 * time.Second

	// settling is how long a daemon that was restarted takes to find its VMs again. A VM that
	// ends meanwhile is gone with no event, so readers are asked to list again afterwards.
	settling = 5 * time.Second
)

var eventLoop struct {
	sync.Mutex
	running bool
}

// startEventLoop starts the process's one libvirt event loop. It must run
// before the first connection is made, and for as long as there is one: else
// libvirt drops connections for want of keepalive answers.
func startEventLoop(log *slog.Logger) error {
	eventLoop.Lock()
	defer eventLoop.Unlock()
	if eventLoop.running {
		return nil
	}
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("register event loop: %w", err)
	}
	eventLoop.running = true
	go func() {
		for {
			if err := libvirt.EventRunDefaultImpl(); err != nil {
				log.Error("libvirt event loop", "error", err)
				time.Sleep(firstBackoff) // an error that stays must not burn a core
			}
		}
	}()
	return nil
}

// session is one connection. It counts its users and is closed only after the last
// of them has released it.
type session struct {
	conn   *libvirt.Connect
	closed chan struct{} // closed when libvirt says the connection is lost
	lost   sync.Once

	mu        sync.Mutex
	refs      int
	callbacks []int
}

func (s *session) acquire() {
	s.mu.Lock()
	s.refs++
	s.mu.Unlock()
}

func (s *session) release() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if last {
		_, _ = s.conn.Close()
	}
}

// alive is false once libvirt knows the connection to be broken.
func (s *session) alive() bool {
	select {
	case <-s.closed:
		return false
	default:
	}
	ok, err := s.conn.IsAlive()
	return ok && err == nil
}

// shut takes away the callbacks, which refer to the connection, too, and releases the session's own
// reference to it.
func (s *session) shut() {
	s.mu.Lock()
	ids := s.callbacks
	s.callbacks = nil
	s.mu.Unlock()
	for _, id := range ids {
		_ = s.conn.DomainEventDeregister(id) // fails on a dead connection, after letting go of it here
	}
	_ = s.conn.UnregisterCloseCallback()
	s.release()
}

// acquire is the present session, for the caller to release.
func (h *Host) acquire() (*session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return nil, fmt.Errorf("%w: %w", h.last, hypervisor.ErrUnavailable)
	}
	h.session.acquire()
	return h.session, nil
}

// connected says whether this host's own libvirt answers, as far as is known.
func (h *Host) connected() bool {
	s, err := h.acquire()
	if err != nil {
		return false
	}
	defer s.release()
	return s.alive()
}

func (h *Host) setSession(s *session, why error) {
	h.mu.Lock()
	h.session, h.last = s, why
	if s != nil {
		h.caps = nil // the daemon may be a new one, with another QEMU
	}
	h.mu.Unlock()
}

// connect makes a connection with keepalive, callbacks and the names of our
// VMs known. A connection to a frozen daemon blocks: it is left to its
// goroutine and closed when it comes after all.
func (h *Host) connect(ctx context.Context) (*session, error) {
	type result struct {
		s   *session
		err error
	}
	done := make(chan result)
	ctx, cancel := context.WithTimeout(ctx, h.opts.CallTimeout)
	defer cancel()
	p := &pending{name: "virConnectOpen", object: h.opts.URI, since: time.Now()}
	go func() {
		s, err := h.dial(p)
		select {
		case done <- result{s, err}:
		case <-ctx.Done():
			if err == nil {
				s.shut()
			}
		}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ctx.Err(), h.calls.giveUp(p))
	}
}

func (h *Host) dial(p *pending) (*session, error) {
	conn, err := libvirt.NewConnect(h.opts.URI)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, hypervisor.ErrUnavailable)
	}
	p.becomes("the first call after virConnectOpen")
	s := &session{conn: conn, closed: make(chan struct{}), refs: 1}
	if err := h.prepare(s); err != nil {
		err = translate(s, err)
		s.shut()
		return nil, err
	}
	return s, nil
}

func (h *Host) prepare(s *session) error {
	if err := s.conn.RegisterCloseCallback(func(*libvirt.Connect, libvirt.ConnectCloseReason) {
		s.lost.Do(func() { close(s.closed) })
	}); err != nil {
		return err
	}
	// A driver inside this process (test:///) has no keepalive; all else has.
	if err := s.conn.SetKeepAlive(keepaliveInterval, keepaliveCount); err != nil && !isCode(err, libvirt.ERR_NO_SUPPORT) {
		return err
	}
	if err := h.registerEvents(s); err != nil {
		return err
	}
	return h.learnNames(s)
}

// keepConnected waits for the connection to break and makes a new one, until
// the Host is closed.
func (h *Host) keepConnected(s *session) {
	defer h.wg.Done()
	quiet := time.NewTimer(settling)
	defer quiet.Stop()
	quiet.Stop() // the first connection needs none
	for {
		select {
		case <-h.ctx.Done():
			h.setSession(nil, errClosed)
			s.shut()
			return
		case <-quiet.C:
			h.raw.put(rawEvent{kind: hypervisor.Resync, at: time.Now(), reason: "the daemon has settled"})
			continue
		case <-s.closed:
		}
		h.setSession(nil, errLost)
		h.log.Warn("libvirt connection lost")
		h.raw.put(rawEvent{kind: hypervisor.Disconnected, at: time.Now(), reason: "connection lost"})
		s.shut()
		backoff := firstBackoff
		for {
			timer := time.NewTimer(backoff)
			select {
			case <-h.ctx.Done():
				timer.Stop()
				h.setSession(nil, errClosed)
				return
			case <-timer.C:
			}
			next, err := h.connect(h.ctx)
			if err == nil {
				s = next
				break
			}
			h.setSession(nil, err)
			backoff = min(2*backoff, maxBackoff)
		}
		h.setSession(s, nil)
		h.log.Info("libvirt connected again")
		h.raw.put(rawEvent{kind: hypervisor.Resync, at: time.Now(), reason: "connected again"})
		quiet.Reset(settling)
	}
}

var (
	errLost   = fmt.Errorf("connection to libvirt lost")
	errClosed = fmt.Errorf("closed")
)
