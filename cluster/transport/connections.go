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

// Limits bound the connections on which no member has shown its certificate.
type Limits struct {
	// Connections in all: handshakes under way and connections of the public API, of which at most three quarters are past
	// their handshake, so that members' handshakes always find room. 0: half of the descriptors that the process may open, so
	// that members, the log and gossip have the other half.
	Connections int
	// Tables that share the process's descriptors, where Connections is 0. 0: 1.
	Tables int
	// PerAddress bounds the connections of one address (of a /64 for IPv6) on which no client has authenticated, and a quarter
	// of all connections of that address. 0: 256.
	PerAddress int
	// Handshakes bounds those under way. 0: 1,024.
	Handshakes int
	// Stranger is how long a connection lives on which no client authenticates. 0: 15 s.
	Stranger time.Duration
}

const (
	defaultPerAddress = 256
	defaultHandshakes = 1024
	defaultStranger   = 15 * time.Second
	// strangerExtra is what a request that is under way gets on top of Limits.Stranger.
	strangerExtra = 3 * time.Second
	// sweepEvery is how often the ages of connections are checked.
	sweepEvery = time.Second
)

func (l Limits) withDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = 1024
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
			l.Connections = int(min(files.Cur/2, 1<<20)) / max(1, l.Tables)
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

// established bounds the connections that are past their handshake.
func (l Limits) established() int { return max(1, l.Connections*3/4) }

// ofAddress bounds all connections of one address.
func (l Limits) ofAddress() int { return 4 * l.PerAddress }

// class is the class of a connection.
type class int

const (
	unknown     class = iota // past its handshake; no client has authenticated on it
	handshaking              // a member, perhaps
	idle                     // a client has authenticated; no request is under way
	busy                     // a client has authenticated; a request is under way
	classes
)

// Connections are the connections on which no member has shown its certificate. When a limit is reached, the oldest connection
// of the client that causes it is closed: see victim. Several ports may share them.
type Connections struct {
	limits Limits
	now    func() time.Time

	mu        sync.Mutex
	all       lists
	addresses map[netip.Prefix]*lists
	of        map[net.Conn]*connection // by the connection above TLS
}

// lists are the connections by class, the oldest first.
type lists [classes]list.List

func (l *lists) len() int {
	n := 0
	for i := range l {
		n += l[i].Len()
	}
	return n
}

// strangers counts the connections on which no client has authenticated.
func (l *lists) strangers() int { return l[unknown].Len() + l[handshaking].Len() }

// stranger returns the oldest of the larger of the two classes of strangers. So a flood closes its own connections, whether they never
// finish their handshake or finish it and then send nothing.
func (l *lists) stranger() *connection {
	if l[handshaking].Len() > l[unknown].Len() {
		return first(&l[handshaking])
	}
	return oldest(&l[unknown], &l[handshaking])
}

// connection is one connection of the table.
type connection struct {
	below   net.Conn // what is closed
	from    netip.Prefix
	class   class
	since   time.Time // of the end of the handshake
	active  bool      // a request is under way
	inAll   *list.Element
	inAddr  *list.Element
	above   net.Conn // nil until the handshake is over
	removed bool
}

// NewConnections makes an empty table with those limits.
func NewConnections(l Limits) *Connections {
	return &Connections{limits: l.withDefaults(), now: time.Now, addresses: map[netip.Prefix]*lists{}, of: map[net.Conn]*connection{}}
}

// SourceOf returns the part of an address that counts as one client: an IPv4 address, or the /64 of an IPv6 address, of which a
// client has as many as it likes. An unknown address gives the zero prefix.
func SourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // no error: bits fit
	return p
}

// sourceOf returns the source of the other side of a connection.
func sourceOf(remote net.Addr) netip.Prefix {
	at, _ := netip.ParseAddrPort(remote.String()) // else the zero address, whose source is not known
	return SourceOf(at.Addr())
}

// add adds a connection that was accepted.
func (t *Connections) add(below net.Conn) *connection {
	c := &connection{below: below, from: sourceOf(below.RemoteAddr()), class: handshaking}
	t.mu.Lock()
	var victims []*connection
	evict := func(v *connection) {
		if v != nil {
			t.remove(v)
			victims = append(victims, v)
		}
	}
	if t.all[handshaking].Len() >= t.limits.Handshakes {
		evict(first(&t.all[handshaking]))
	}
	if at := t.addresses[c.from]; at != nil && at.strangers() >= t.limits.PerAddress {
		evict(at.stranger())
	}
	if at := t.addresses[c.from]; at != nil && at.len() >= t.limits.ofAddress() {
		evict(oldest(&at[unknown], &at[handshaking], &at[idle], &at[busy]))
	}
	if t.all.len() >= t.limits.Connections {
		evict(t.victim())
	}
	t.put(c)
	t.mu.Unlock()
	for _, v := range victims {
		_ = v.below.Close()
	}
	return c
}

// victim returns the connection to close when the table is full: the oldest stranger, or else the oldest that is not used, or
// else the oldest of the address that has most. The lock is held.
func (t *Connections) victim() *connection {
	if v := t.all.stranger(); v != nil {
		return v
	}
	return t.known()
}

// known is the victim among the connections on which a client has authenticated. The lock is held.
func (t *Connections) known() *connection {
	if v := first(&t.all[idle]); v != nil {
		return v
	}
	var greedy *lists
	for _, at := range t.addresses {
		if greedy == nil || at[busy].Len() > greedy[busy].Len() {
			greedy = at
		}
	}
	if greedy == nil {
		return nil
	}
	return first(&greedy[busy])
}

// put adds a connection to the lists of its class. The lock is held.
func (t *Connections) put(c *connection) {
	at := t.addresses[c.from]
	if at == nil {
		at = &lists{}
		t.addresses[c.from] = at
	}
	c.inAll, c.inAddr = t.all[c.class].PushBack(c), at[c.class].PushBack(c)
}

// take takes a connection out of the lists of its class. The lock is held.
func (t *Connections) take(c *connection) {
	at := t.addresses[c.from]
	t.all[c.class].Remove(c.inAll)
	at[c.class].Remove(c.inAddr)
	if at.len() == 0 {
		delete(t.addresses, c.from)
	}
}

func first(l *list.List) *connection {
	if e := l.Front(); e != nil {
		return e.Value.(*connection)
	}
	return nil
}

// oldest returns the oldest connection of the first list that has any.
func oldest(lists ...*list.List) *connection {
	for _, l := range lists {
		if c := first(l); c != nil {
			return c
		}
	}
	return nil
}

// enter says that the handshake of a connection of the public API is over. false: the connection was closed meanwhile.
func (t *Connections) enter(c *connection, above net.Conn) bool {
	t.mu.Lock()
	if c.removed {
		t.mu.Unlock()
		return false
	}
	var v *connection
	if t.all.len()-t.all[handshaking].Len() >= t.limits.established() {
		if v = first(&t.all[unknown]); v == nil {
			v = t.known()
		}
		t.remove(v)
	}
	c.above, c.since = above, t.now()
	t.of[above] = c
	t.move(c, unknown)
	t.mu.Unlock()
	if v != nil {
		_ = v.below.Close()
	}
	return true
}

// authenticated notes that a client has shown a token on a connection.
func (t *Connections) authenticated(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.removed && c.class == unknown {
		t.move(c, busy)
	}
}

// state notes the state of a connection, from the HTTP server.
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

// move moves a connection to the end of another class. The lock is held.
func (t *Connections) move(c *connection, to class) {
	t.take(c)
	c.class = to
	t.put(c)
}

// done says that a connection is closed, or a member's.
func (t *Connections) done(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// remove removes a connection. The lock is held.
func (t *Connections) remove(c *connection) {
	if c.removed {
		return
	}
	c.removed = true
	t.take(c)
	if c.above != nil {
		delete(t.of, c.above)
	}
}

// sweep closes the connections on which no client has authenticated in time.
func (t *Connections) sweep() {
	t.mu.Lock()
	now := t.now()
	var old []*connection
	for e := t.all[unknown].Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		age := now.Sub(c.since)
		if age < t.limits.Stranger {
			break // the later ones are younger
		}
		if !c.active || age >= t.limits.Stranger+strangerExtra {
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
