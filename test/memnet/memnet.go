// Package memnet is a network within a process, for tests in a bubble of testing/synctest. A goroutine that waits for a connection in
// it waits durably, so simulated time goes on. Connections have buffers and deadlines, as TCP's have, and addresses of the form of
// TCP's.
package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes a connection takes in one direction before its reader has read any.
const window = 256 << 10

// Loopback is the address from which Dial connects.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Network of listeners. The zero value is empty and ready. Safe for concurrent use.
type Network struct {
	mu   sync.Mutex
	at   map[netip.AddrPort]*listener
	port uint16 // that was given last
}

// Listen at an address and port; port 0: one that is free.
func (n *Network) Listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.free())
	}
	if n.at[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: syscall.EADDRINUSE}
	}
	if n.at == nil {
		n.at = map[netip.AddrPort]*listener{}
	}
	l := &listener{of: n, at: at, accept: make(chan net.Conn, 128), closed: make(chan struct{})}
	n.at[at] = l
	return l, nil
}

// free is a port that was not given out before. The caller holds the lock.
func (n *Network) free() uint16 {
	n.port = max(n.port, 10_000) + 1
	return n.port
}

// Dial connects from Loopback; network is not used.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.From(Loopback)(ctx, network, address)
}

// From is Dial from another address.
func (n *Network) From(from netip.Addr) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		l, port := n.at[to], n.free()
		n.mu.Unlock()
		refused := &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: syscall.ECONNREFUSED}
		if l == nil {
			return nil, refused
		}
		near, far := pair(netip.AddrPortFrom(from, port), to)
		select {
		case l.accept <- far:
			return near, nil
		case <-l.closed:
			return nil, refused
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: context.Cause(ctx)}
		}
	}
}

type listener struct {
	of     *Network
	at     netip.AddrPort
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends connections that were not accepted, too.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = nil
		l.of.mu.Lock()
		delete(l.of.at, l.at)
		l.of.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.accept:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return err
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// stream is one direction of a connection.
type stream struct {
	mu         sync.Mutex
	moved      *sync.Cond
	buffer     []byte
	ended      bool // nothing more is written
	unread     bool // nothing more is read
	reset      bool // something was written nevertheless
	read       deadline
	write      deadline
	readerGone bool // this end of the reader is closed
	writerGone bool
}

// deadline of one side of a stream, guarded by its lock.
type deadline struct {
	over  bool
	timer *time.Timer
	count int // of settings, so that an earlier timer does nothing
}

func newStream() *stream {
	s := &stream{}
	s.moved = sync.NewCond(&s.mu)
	return s
}

func (s *stream) set(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.count++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.over = false
	if t.IsZero() {
		return
	}
	if left := time.Until(t); left > 0 {
		count := d.count
		d.timer = time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.count == count {
				d.over = true
				s.moved.Broadcast()
			}
		})
		return
	}
	d.over = true
	s.moved.Broadcast()
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerGone:
			return 0, net.ErrClosed
		case s.read.over:
			return 0, os.ErrDeadlineExceeded
		case len(s.buffer) > 0:
			n := copy(p, s.buffer)
			s.buffer = s.buffer[n:]
			s.moved.Broadcast()
			return n, nil
		case s.ended:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		s.moved.Wait()
	}
}

func (s *stream) Write(p []byte) (written int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writerGone:
			return written, net.ErrClosed
		case s.unread && !s.reset: // TCP, too, learns only from the answer that no process reads
			s.reset = len(p) > 0
			return written + len(p), nil
		case s.unread:
			return written, syscall.EPIPE
		case s.write.over:
			return written, os.ErrDeadlineExceeded
		case len(p) == 0:
			return written, nil
		}
		if n := min(window-len(s.buffer), len(p)); n > 0 {
			s.buffer = append(s.buffer, p[:n]...)
			p, written = p[n:], written+n
			s.moved.Broadcast()
			continue
		}
		s.moved.Wait()
	}
}

// conn is one end of a connection.
type conn struct {
	in, out       *stream
	local, remote netip.AddrPort
}

func pair(from, to netip.AddrPort) (near, far *conn) {
	a, b := newStream(), newStream()
	return &conn{in: a, out: b, local: from, remote: to}, &conn{in: b, out: a, local: to, remote: from}
}

func (c *conn) op(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	return n, c.op("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	return n, c.op("write", err)
}

// CloseWrite has the other side read to an end.
func (c *conn) CloseWrite() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.ended = true
	c.out.moved.Broadcast()
	return nil
}

func (c *conn) Close() error {
	_ = c.SetDeadline(time.Time{}) // no timer is left
	c.in.mu.Lock()
	was := c.in.readerGone
	c.in.readerGone, c.in.unread, c.in.buffer = true, true, nil
	c.in.moved.Broadcast()
	c.in.mu.Unlock()
	c.out.mu.Lock()
	c.out.writerGone, c.out.ended = true, true
	c.out.moved.Broadcast()
	c.out.mu.Unlock()
	if was {
		return c.op("close", net.ErrClosed)
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) SetReadDeadline(t time.Time) error  { c.in.set(&c.in.read, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.set(&c.out.write, t); return nil }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
