package node

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Stream carries Raft between servers: accepted connections are from servers, Dial
// reaches the server at an address.
type Stream interface {
	net.Listener
	Dial(address string, timeout time.Duration) (net.Conn, error)
}

// layer is a Stream as raft wants it. It knows its connections, so that they can be ended, and the address under which others
// reach it.
type layer struct {
	Stream
	advertise string

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

type conn struct {
	net.Conn
	of *layer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *layer) track(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	tracked := &conn{Conn: c, of: l}
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

// Accept implements net.Listener.
func (l *layer) Accept() (net.Conn, error) { return l.track(l.Stream.Accept()) }

// Dial implements raft.StreamLayer. raft would wait for a dead host as long as for a slow disk.
func (l *layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return l.track(l.Stream.Dial(string(to), min(timeout, 2*time.Second)))
}

// Addr implements net.Listener: raft sends it to others.
func (l *layer) Addr() net.Addr { return address(l.advertise) }

type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// drop ends all connections; forGood: new connections are closed, too.
func (l *layer) drop(forGood bool) {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.closed = map[*conn]struct{}{}, l.closed || forGood
	l.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close() // its user finds out by itself
	}
}

// preVoter is the interface that all transports of raft's own implement.
type preVoter interface {
	raft.Transport
	raft.WithPreVote
}

// wire is a transport that remembers which servers answered what was sent when. It
// outlives raft instances: they do not close it.
type wire struct {
	preVoter
	layer *layer // nil: not over a Stream

	mu   sync.Mutex
	seq  uint64 // counts messages and checks
	acks map[raft.ServerID]ack
	news chan struct{} // closed at the next answer, if a caller waits
	cut  chan struct{} // closed when raft ends: no error is delayed any more

	requests chan raft.RPC                        // of other servers
	servers  atomic.Pointer[func() []raft.Server] // by this server's log; nil: raft never ran
	stop     chan struct{}                        // closed when the transport ends
}

// ack is the last message to which a server is known to have agreed.
type ack struct {
	term uint64    // of the leader it follows
	sent uint64    // number of the last message that it answered
	at   time.Time // of the answer
}

// AppendEntriesPipeline implements raft.Transport: there are none. With entries under way when a server answers no (it was
// restarted, its disk was full), raft 1.7.3 waits for ever to write to a pipeline whose answers no goroutine reads any more:
// the server gets heartbeats but no entry for as long as the leader leads, and that raft never ends.
func (w *wire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func newWire(t preVoter, l *layer) *wire {
	return &wire{preVoter: t, layer: l, acks: map[raft.ServerID]ack{}, cut: make(chan struct{}), requests: make(chan raft.RPC), stop: make(chan struct{})}
}

// Consumer implements raft.Transport.
func (w *wire) Consumer() <-chan raft.RPC { return w.requests }

// pass hands requests of other servers to raft, until the transport is closed.
func (w *wire) pass() {
	for {
		select {
		case rpc := <-w.preVoter.Consumer():
			rpc.Command = w.vouch(rpc.Command)
			select {
			case w.requests <- rpc:
			case <-w.stop:
				return
			}
		case <-w.stop:
			return
		}
	}
}

// vouch has raft judge a server that is to get its vote by term and log alone, as Raft's paper does (Ongaro and Ousterhout 2014, section 5.2). Raft 1.7.3
// refuses a candidate that is no voter by this server's own log, which may lack the entry that made it one: if the leader is lost then, the candidate
// gets no majority, and the log of this server is too short to lead. It goes on refusing servers that its log does not name at all: those that were removed,
// or were lost with a quorum.
func (w *wire) vouch(command any) any {
	switch r := command.(type) {
	case *raft.RequestVoteRequest:
		q := *r // the sender may use its own for others
		q.ID = w.voter(q.ID)
		return &q
	case *raft.RequestPreVoteRequest:
		q := *r
		q.ID = w.voter(q.ID)
		return &q
	}
	return command
}

// voter is the id by which raft judges the candidate: its own, or that of a voter if this server's log names it as one without a vote.
func (w *wire) voter(candidate []byte) []byte {
	known := w.servers.Load()
	if known == nil {
		return candidate
	}
	id, named := candidate, false
	for _, s := range (*known)() {
		switch {
		case s.Suffrage == raft.Voter && s.ID == raft.ServerID(candidate):
			return candidate
		case s.Suffrage == raft.Voter:
			id = []byte(s.ID)
		case s.ID == raft.ServerID(candidate):
			named = true
		}
	}
	if !named {
		return candidate
	}
	return id
}

func (w *wire) number() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	return w.seq
}

// AppendEntries implements raft.Transport.
func (w *wire) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	sent, term := w.number(), args.Term
	if err := w.preVoter.AppendEntries(id, to, args, resp); err != nil {
		if len(args.Entries) > 0 || args.PrevLogEntry > 0 { // no heartbeat
			w.delay(id, cut)
		}
		return err
	}
	if !resp.Success || resp.Term != term {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.acks[id]
	if term > old.term || term == old.term && sent > old.sent {
		w.acks[id] = ack{term: term, sent: sent, at: time.Now()}
	}
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
	return nil
}

// delayFor is how long an error of a message with entries is held back at most.
const delayFor = time.Second

// delay delays the error that a message with entries did not get through, until the server answers heartbeats again. Raft waits
// twice as long after each such error, up to ten seconds, and sends nothing meanwhile: a server that was away for some seconds
// would get no entries for as long again once it is back.
func (w *wire) delay(id raft.ServerID, cut <-chan struct{}) {
	before := w.contact(id)
	timer := time.NewTimer(delayFor)
	defer timer.Stop()
	for {
		w.mu.Lock()
		heard := w.acks[id].at.After(before)
		if w.news == nil {
			w.news = make(chan struct{})
		}
		news := w.news
		w.mu.Unlock()
		if heard {
			return
		}
		select {
		case <-news:
		case <-cut:
			return
		case <-timer.C:
			return
		}
	}
}

// agreed says whether a majority of the voters, among them this server, answered in the term to a
// message sent after the given number; if not, news is closed at the next answer.
func (w *wire) agreed(self raft.ServerID, voters []raft.ServerID, term, after uint64) (yes bool, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, v := range voters {
		if a := w.acks[v]; v == self || a.term == term && a.sent > after {
			n++
		}
	}
	if 2*n > len(voters) {
		return true, nil
	}
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return false, w.news
}

// contact is when the server last answered this one; zero if it never did.
func (w *wire) contact(id raft.ServerID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acks[id].at
}

// Close implements raft.WithClose for an instance of raft that ends.
func (w *wire) Close() error { return nil }

// close ends the transport, once.
func (w *wire) close() error {
	var err error
	if c, ok := w.preVoter.(io.Closer); ok {
		err = c.Close()
	}
	w.interrupt(true)
	close(w.stop)
	return err
}

// interrupt ends what is under way to and from other servers.
func (w *wire) interrupt(forGood bool) {
	w.mu.Lock()
	close(w.cut)
	w.cut = make(chan struct{})
	w.mu.Unlock()
	if w.layer != nil {
		w.layer.drop(forGood)
	}
}

// refuse answers all incoming messages with an error until the returned function is called: no raft runs that could answer.
func (w *wire) refuse(why error) (end func()) {
	w.SetHeartbeatHandler(nil)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case rpc := <-w.Consumer():
				rpc.Respond(nil, why)
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-done }
}
