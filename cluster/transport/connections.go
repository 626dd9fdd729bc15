package transport

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Limits of connections on which no member has shown its certificate.
type Limits struct {
	// Connections in all: handshakes under way and connections of the public API. 0: half of the descriptors that
	// the process may open, so that members, the log and gossip have the other half.
	Connections int
	// PerAddress bounds those of one address (of a /64 for IPv6) on which nobody has authenticated. 0: 256.
	PerAddress int
	// Handshakes bounds those under way. 0: 1,024.
	Handshakes int
	// Stranger is how long a connection lives on which nobody authenticates. 0: 15 s.
	Stranger time.Duration
}

const (
	defaultPerAddress = 256
	defaultHandshakes = 1024
	defaultStranger   = 15 * time.Second
	// strangerGrace is what a request that is under way gets on top of Limits.Stranger.
	strangerGrace = 3 * time.Second
	// sweepEvery is how often the ages of connections are checked.
	sweepEvery = time.Second
)

func (l Limits) withDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = 1024
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
			l.Connections = int(min(files.Cur/2, 1<<20))
		}
	}
	if l.PerAddress == 0 {
		l.PerAddress = defaultPerAddress
	}
	if l.Handshakes == 0 {
		l.Handshakes = defaultHandshakes
	}
	if l.Stranger == 0 {
		l.Stranger = defaultStranger
	}
	return l
}

// class of a connection, by what it costs to close it. When a limit is reached, the oldest of the lowest class goes.
type class int

const (
	unknown     class = iota // past its handshake; nobody has authenticated on it
	handshaking              // a member, perhaps
	idle                     // somebody has authenticated; no request is under way
	busy                     // somebody has authenticated; a request is under way
	classes
)

// Connections are those on which no member has shown its certificate. Several ports may share them.
type Connections struct {
	limits Limits
	now    func() time.Time

	mu        sync.Mutex
	classes   [classes]list.List // of *connection, the oldest first
	addresses map[netip.Prefix]*address
	of        map[net.Conn]*connection // by the connection above TLS
}

// address has the connections from it on which nobody has authenticated.
type address [2]list.List // by class: unknown, handshaking

func (a *address) len() int { return a[unknown].Len() + a[handshaking].Len() }

// connection is one of them.
type connection struct {
	below   net.Conn // what is closed
	from    netip.Prefix
	class   class
	since   time.Time // of the end of the handshake
	active  bool      // a request is under way
	inClass *list.Element
	inAddr  *list.Element // nil once somebody has authenticated
	above   net.Conn      // nil until the handshake is over
	gone    bool
}

// NewConnections makes an empty table with those limits.
func NewConnections(l Limits) *Connections {
	return &Connections{limits: l.withDefaults(), now: time.Now, addresses: map[netip.Prefix]*address{}, of: map[net.Conn]*connection{}}
}

// prefixOf the address of a client: all of an IPv4 address, the network part of an IPv6 address.
func prefixOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// add a connection that was accepted; nil if there is no room and none that may be closed for it.
func (t *Connections) add(below net.Conn) *connection {
	c := &connection{below: below, from: prefixOf(below.RemoteAddr()), class: handshaking}
	t.mu.Lock()
	var victims []*connection
	full := func(reached bool, oldest func() *connection) bool {
		if !reached {
			return false
		}
		v := oldest()
		if v == nil {
			return true
		}
		t.remove(v)
		victims = append(victims, v)
		return false
	}
	at := t.addresses[c.from]
	refused := full(t.classes[handshaking].Len() >= t.limits.Handshakes, func() *connection { return first(&t.classes[handshaking]) }) ||
		full(at != nil && at.len() >= t.limits.PerAddress, func() *connection { return oldest(&at[unknown], &at[handshaking]) }) ||
		full(t.len() >= t.limits.Connections, func() *connection { return oldest(&t.classes[unknown], &t.classes[handshaking], &t.classes[idle]) })
	if !refused {
		if at = t.addresses[c.from]; at == nil { // its last connection may have been the one that was removed
			at = &address{}
			t.addresses[c.from] = at
		}
		c.inClass, c.inAddr = t.classes[handshaking].PushBack(c), at[handshaking].PushBack(c)
	}
	t.mu.Unlock()
	for _, v := range victims {
		_ = v.below.Close()
	}
	if refused {
		return nil
	}
	return c
}

func first(l *list.List) *connection {
	if e := l.Front(); e != nil {
		return e.Value.(*connection)
	}
	return nil
}

// oldest of the first list that has any.
func oldest(lists ...*list.List) *connection {
	for _, l := range lists {
		if c := first(l); c != nil {
			return c
		}
	}
	return nil
}

func (t *Connections) len() int {
	n := 0
	for i := range t.classes {
		n += t.classes[i].Len()
	}
	return n
}

// enter says that the handshake of a connection of the public API is over. false: the connection was closed meanwhile.
func (t *Connections) enter(c *connection, above net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.gone {
		return false
	}
	c.above, c.since = above, t.now()
	t.of[above] = c
	t.move(c, unknown)
	return true
}

// authenticated says that somebody has shown a token on a connection.
func (t *Connections) authenticated(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.gone && c.class == unknown {
		t.move(c, busy)
	}
}

// state of a connection, by the HTTP server.
func (t *Connections) state(above net.Conn, s http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of[above]
	if c == nil {
		return
	}
	c.active = s == http.StateActive || s == http.StateHijacked
	switch {
	case c.class == idle && c.active:
		t.move(c, busy)
	case c.class == busy && !c.active:
		t.move(c, idle)
	}
}

// move a connection to the end of another class. The lock is held.
func (t *Connections) move(c *connection, to class) {
	t.classes[c.class].Remove(c.inClass)
	if at := t.addresses[c.from]; c.inAddr != nil && at != nil {
		at[c.class].Remove(c.inAddr)
		c.inAddr = nil
		if to == unknown || to == handshaking {
			c.inAddr = at[to].PushBack(c)
		}
		if at.len() == 0 {
			delete(t.addresses, c.from)
		}
	}
	c.class = to
	c.inClass = t.classes[to].PushBack(c)
}

// done says that a connection is closed, or a member's.
func (t *Connections) done(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// remove a connection. The lock is held.
func (t *Connections) remove(c *connection) {
	if c.gone {
		return
	}
	c.gone = true
	t.classes[c.class].Remove(c.inClass)
	if at := t.addresses[c.from]; c.inAddr != nil && at != nil {
		at[c.class].Remove(c.inAddr)
		if at.len() == 0 {
			delete(t.addresses, c.from)
		}
	}
	if c.above != nil {
		delete(t.of, c.above)
	}
}

// sweep closes the connections on which nobody has authenticated in time.
func (t *Connections) sweep() {
	t.mu.Lock()
	now := t.now()
	var old []*connection
	for e := t.classes[unknown].Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		age := now.Sub(c.since)
		if age < t.limits.Stranger {
			break // the later ones are younger
		}
		if !c.active || age >= t.limits.Stranger+strangerGrace {
			old = append(old, c)
		}
	}
	t.mu.Unlock()
	for _, c := range old {
		_ = c.below.Close()
	}
}

// run sweeps until ctx ends.
func (t *Connections) run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.sweep()
		}
	}
}

type connectionKey struct{}

// marker puts the table's entry of a connection into the context of its requests.
func (t *Connections) marker(ctx context.Context, above net.Conn) context.Context {
	t.mu.Lock()
	c := t.of[above]
	t.mu.Unlock()
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, func() { t.authenticated(c) })
}

// MarkAuthenticated says that the caller of a request has shown a token that counts: its connection is no stranger's any
// more, and is kept while it is used.
func MarkAuthenticated(ctx context.Context) {
	if mark, ok := ctx.Value(connectionKey{}).(func()); ok {
		mark()
	}
}
