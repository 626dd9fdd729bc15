package transport

import (
	"context"
	"net"
	"sync"
	"time"

	"evenkeel/cluster/pki"
)

const (
	waiting    = 64              // connections that wait for their listener
	acceptTime = 5 * time.Second // for which they do
)

// queue is a net.Listener of connections that another listener accepted.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	table *Connections // that connections of the public API are counted in; nil for members'
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn, waiting), done: make(chan struct{})}
}

// put puts a connection in; false if the queue is closed, or no caller accepts the connection within acceptTime.
func (q *queue) put(c net.Conn) bool {
	select { // of two that are ready, select takes any
	case <-q.done:
		return false
	default:
	}
	timer := time.NewTimer(acceptTime)
	defer timer.Stop()
	select {
	case q.conns <- c:
		select {
		case <-q.done: // closed meanwhile: the side that finds the connection closes it
			q.drain()
		default:
		}
		return true
	case <-q.done:
	case <-timer.C:
	}
	return false
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case <-q.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It closes the connections that wait, too.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	q.drain()
	return nil
}

func (q *queue) drain() {
	for {
		select {
		case c := <-q.conns:
			_ = c.Close()
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.addr }

// named is an address that has only a name.
type named struct{ network, address string }

func (n named) Network() string { return n.network }
func (n named) String() string  { return n.address }

// watched reports when a connection is closed.
type watched struct {
	net.Conn
	closed func() // set before any other code has the connection
	once   sync.Once
}

func (w *watched) Close() error {
	err := w.Conn.Close()
	if w.closed != nil {
		w.once.Do(w.closed)
	}
	return err
}

// Streams are the connections of ek-raft/1: a net.Listener for those that other servers open, and Dial for those to them. Addr
// is the advertised address.
type Streams struct {
	*queue
	dialer  *Dialer
	members members // whose streams were accepted
}

// Close implements net.Listener. It ends the streams that were accepted, too: their readers would not notice otherwise.
func (s *Streams) Close() error {
	err := s.queue.Close()
	s.members.closeAll()
	return err
}

// Dial opens a stream to a server of this cluster.
func (s *Streams) Dial(address string, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	conn, err := s.dialer.Dial(ctx, address, ProtocolRaft, pki.Want{Server: true})
	if err != nil {
		return nil, err
	}
	return conn, nil
}
