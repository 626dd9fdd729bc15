package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// network between all members. What is sent over a cut link waits, as TCP has it, and may
// come long after; single messages may be lost and repeated as well.
type network struct {
	mu      sync.Mutex
	rng     *rand.Rand
	cut     map[[2]string]bool // from, to; "*" = every member
	frozen  map[string]bool    // members that stand still
	down    map[string]bool    // members that do not run
	changed chan struct{}
	ends    map[string]*endpoint
	conns   map[*conn]struct{}

	lose, repeat, slow float64 // chances of a message
	count              func(string)
}

func newNetwork(seed uint64, count func(string)) *network {
	return &network{rng: rand.New(rand.NewPCG(seed, 1)), cut: map[[2]string]bool{}, frozen: map[string]bool{}, down: map[string]bool{},
		changed: make(chan struct{}), ends: map[string]*endpoint{}, conns: map[*conn]struct{}{}, count: count}
}

var (
	errRefused = errors.New("connection refused")
	errLost    = errors.New("message lost")
)

func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *network) setCut(a, b string, on bool) {
	n.change(func() {
		if on {
			n.cut[[2]string{a, b}] = true
		} else {
			delete(n.cut, [2]string{a, b})
		}
	})
}

func (n *network) heal() {
	n.change(func() { clear(n.cut) })
}

func (n *network) freeze(name string, on bool) {
	n.change(func() { n.frozen[name] = on })
}

// fall ends all connections of a member, which is down from now on.
func (n *network) fall(name string) {
	n.change(func() {
		n.down[name] = true
		for c := range n.conns {
			if c.local == name || c.remote == name {
				c.in.end()
				c.out.end()
				delete(n.conns, c)
			}
		}
	})
}

func (n *network) rise(name string) {
	n.change(func() { delete(n.down, name) })
}

// blockedLocked says whether nothing gets through now.
func (n *network) blockedLocked(from, to string) bool {
	return n.frozen[from] || n.frozen[to] || n.cut[[2]string{from, to}] || n.cut[[2]string{from, "*"}] || n.cut[[2]string{"*", to}]
}

func (n *network) blocked(from, to string) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blockedLocked(from, to), n.changed
}

// latency of a message.
func (n *network) latency() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := 200*time.Microsecond + time.Duration(n.rng.Int64N(int64(3*time.Millisecond)))
	if n.rng.Float64() < n.slow {
		d += time.Duration(n.rng.Int64N(int64(4 * time.Second)))
		n.count("messages delayed")
	}
	return d
}

func (n *network) chance(p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.Float64() < p
}

// between two times, by chance.
func (n *network) between(a, b time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return a + time.Duration(n.rng.Int64N(int64(b-a)))
}

// pass takes a message over a link, with its delay.
func (n *network) pass(ctx context.Context, from, to string) error {
	if err := wait(ctx, n.latency()); err != nil {
		return err
	}
	for {
		blocked, changed := n.blocked(from, to)
		if !blocked {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// message is pass for one that may be lost.
func (n *network) message(ctx context.Context, from, to string) error {
	if blocked, _ := n.blocked(from, to); n.chance(n.lose) || blocked && n.chance(0.5) {
		n.count("messages lost")
		return errLost
	}
	return n.pass(ctx, from, to)
}

// longest that a message waits anywhere.
const longest = 90 * time.Second

// call asks a member; f is what it does. Question and answer may each be lost, late, or come twice.
// life bounds what goes on after the caller has given up.
func call[T any](ctx, life context.Context, n *network, from, to string, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		is  T
		err error
	}
	answers := make(chan answer, 2)
	copies := 1
	if from[0] == 'h' && n.chance(n.repeat) { // a client's request is one connection's
		copies = 2
		n.count("messages repeated")
	}
	for i := range copies {
		go func() {
			ctx, cancel := context.WithTimeout(life, longest)
			defer cancel()
			if i > 0 && wait(ctx, 10*n.latency()) != nil {
				return
			}
			if n.message(ctx, from, to) != nil {
				return
			}
			var a answer
			a.is, a.err = f(ctx)
			if n.message(ctx, to, from) == nil {
				answers <- a
			}
		}()
	}
	select {
	case a := <-answers:
		return a.is, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// endpoint of a server is its node.Stream.
type endpoint struct {
	of     *network
	name   string
	accept chan net.Conn
	stop   chan struct{}
	once   sync.Once
}

func (n *network) listen(name string) *endpoint {
	e := &endpoint{of: n, name: name, accept: make(chan net.Conn), stop: make(chan struct{})}
	n.change(func() { n.ends[name] = e })
	return e
}

type address string

func (address) Network() string  { return "simulated" }
func (a address) String() string { return string(a) }

// Accept implements net.Listener.
func (e *endpoint) Accept() (net.Conn, error) {
	select {
	case c := <-e.accept:
		return c, nil
	case <-e.stop:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (e *endpoint) Close() error {
	e.once.Do(func() { close(e.stop) })
	return nil
}

// Addr implements net.Listener.
func (e *endpoint) Addr() net.Addr { return address(e.name) }

// Dial implements node.Stream.
func (e *endpoint) Dial(to string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := e.of.pass(ctx, e.name, to); err != nil {
		return nil, err
	}
	a, b := newQueue(), newQueue()
	near := &conn{n: e.of, local: e.name, remote: to, in: a, out: b}
	far := &conn{n: e.of, local: to, remote: e.name, in: b, out: a}
	e.of.mu.Lock()
	peer := e.of.ends[to]
	up := peer != nil && !e.of.down[to] && !e.of.down[e.name]
	if up {
		e.of.conns[near] = struct{}{} // in one step with the check of which members are up: see fall
	}
	e.of.mu.Unlock()
	if !up {
		return nil, errRefused
	}
	select {
	case peer.accept <- far:
		return near, nil
	case <-peer.stop:
	case <-e.stop:
	case <-ctx.Done():
	}
	_ = near.Close()
	return nil, errRefused
}

// queue is one direction of a connection.
type queue struct {
	mu     sync.Mutex
	chunks []chunk
	ended  bool
	wake   chan struct{} // holds one if there is news
}

type chunk struct {
	at   time.Time // when it arrives, if the link is not cut
	data []byte
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.poke()
}

// conn carries bytes in order, with delay, and holds them while the link is cut.
type conn struct {
	n             *network
	local, remote string
	in, out       *queue

	mu       sync.Mutex
	deadline time.Time // of reads
}

// Read implements net.Conn. One goroutine reads at a time.
func (c *conn) Read(b []byte) (int, error) {
	for {
		blocked, changed := c.n.blocked(c.remote, c.local)
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		now := time.Now()
		if !deadline.IsZero() && !now.Before(deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		var next time.Duration = -1
		c.in.mu.Lock()
		switch {
		case c.in.ended:
			c.in.mu.Unlock()
			return 0, net.ErrClosed
		case len(c.in.chunks) == 0 || blocked:
		case c.in.chunks[0].at.After(now):
			next = c.in.chunks[0].at.Sub(now)
		default:
			head := &c.in.chunks[0]
			k := copy(b, head.data)
			if head.data = head.data[k:]; len(head.data) == 0 {
				c.in.chunks = c.in.chunks[1:]
			}
			c.in.mu.Unlock()
			return k, nil
		}
		c.in.mu.Unlock()
		if left := deadline.Sub(now); !deadline.IsZero() && (next < 0 || left < next) {
			next = left
		}
		if !blocked {
			changed = nil
			if next < 0 {
				<-c.in.wake
				continue
			}
		}
		var due <-chan time.Time
		var timer *time.Timer
		if next >= 0 {
			timer = time.NewTimer(next)
			due = timer.C
		}
		select {
		case <-c.in.wake:
		case <-due:
		case <-changed:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	at := time.Now().Add(c.n.latency())
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.ended {
		return 0, net.ErrClosed
	}
	if k := len(c.out.chunks); k > 0 && c.out.chunks[k-1].at.After(at) {
		at = c.out.chunks[k-1].at
	}
	c.out.chunks = append(c.out.chunks, chunk{at, append([]byte(nil), b...)})
	c.out.poke()
	return len(b), nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.in.end()
	c.out.end()
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address(c.local) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.remote) }

// SetDeadline implements net.Conn. Writes never wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	c.in.poke()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
