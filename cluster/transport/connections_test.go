package transport

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fake is a connection from an address that remembers whether it was closed.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.from))
}
func (f *fake) Close() error { f.closed = true; return nil }

// table of connections from fake addresses.
type table struct {
	*Connections
	entries map[*fake]*connection
}

func newTable(l Limits) *table { return &table{NewConnections(l), map[*fake]*connection{}} }

// shake hands from an address; the handshake does not end.
func (t *table) shake(from string) *fake {
	f := &fake{from: from}
	t.entries[f] = t.add(f)
	return f
}

// stranger is past its handshake.
func (t *table) stranger(from string) *fake {
	f := t.shake(from)
	t.enter(t.entries[f], f)
	return f
}

// client has authenticated, and uses its connection or does not.
func (t *table) client(from string, s http.ConnState) *fake {
	f := t.stranger(from)
	t.authenticated(t.entries[f])
	t.state(f, s)
	return f
}

// When the table is full, strangers go first, then connections that are not used, then the oldest of the address that has most.
func TestConnectionsMakeRoom(t *testing.T) {
	table := newTable(Limits{Connections: 8, PerAddress: 4, Handshakes: 8})
	alone := table.client("192.0.2.1:1", http.StateActive)
	rests := table.client("192.0.2.1:2", http.StateIdle)
	silent := table.stranger("192.0.2.3:1")
	var many []*fake
	for i := range 3 {
		many = append(many, table.client(fmt.Sprintf("192.0.2.4:%d", i+1), http.StateActive))
	}
	for i := range 2 {
		table.shake(fmt.Sprintf("192.0.2.%d:1", 10+i))
	}
	for i, want := range []*fake{silent, rests, many[0], many[1]} {
		if want.closed {
			t.Fatalf("connection %d was closed too early", i)
		}
		table.client(fmt.Sprintf("192.0.2.%d:1", 20+i), http.StateActive) // of three quarters that may be past their handshake
		if i == 0 && !silent.closed {
			t.Fatal("a stranger stays, and a client needs room")
		}
	}
	if !rests.closed || !many[0].closed {
		t.Errorf("not used: closed %t; of the address that has most: closed %t", rests.closed, many[0].closed)
	}
	if alone.closed {
		t.Error("the only connection of an address was closed, and others have several")
	}
}

// A client that floods an address with handshakes is its own victim, and not those from there who have just finished theirs;
// and the other way round.
func TestConnectionsOfOneAddress(t *testing.T) {
	table := newTable(Limits{Connections: 1000, PerAddress: 8, Handshakes: 100})
	fresh := table.stranger("192.0.2.1:1")
	for i := range 100 {
		table.shake(fmt.Sprintf("192.0.2.1:%d", i+2))
	}
	if fresh.closed {
		t.Error("handshakes of a flood pushed out a client of the same address")
	}
	table = newTable(Limits{Connections: 1000, PerAddress: 8, Handshakes: 100})
	member := table.shake("192.0.2.1:1")
	for i := range 100 {
		table.stranger(fmt.Sprintf("192.0.2.1:%d", i+2))
	}
	if member.closed {
		t.Error("idle strangers pushed out a handshake of the same address")
	}
	for i := range 100 {
		table.client(fmt.Sprintf("192.0.2.2:%d", i+1), http.StateActive)
	}
	if n := table.addresses[netip.MustParsePrefix("192.0.2.2/32")].len(); n > 32 {
		t.Errorf("%d connections of one address", n)
	}
}

// The limits hold after any history, members' handshakes find room, no connection is in the table twice, and none is left when
// all are closed.
func TestConnectionsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Connections: rapid.IntRange(2, 9).Draw(t, "connections"), PerAddress: rapid.IntRange(1, 4).Draw(t, "per address"), Handshakes: rapid.IntRange(1, 6).Draw(t, "handshakes")}
		table := newTable(l)
		var all []*fake
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pick := func() (*fake, *connection) {
				if len(all) == 0 {
					return nil, nil
				}
				f := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				return f, table.entries[f]
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				f := table.shake(fmt.Sprintf("192.0.2.%d:%d", rapid.IntRange(1, 3).Draw(t, "from"), len(all)+1))
				all = append(all, f)
				if f.closed {
					t.Fatal("a new connection found no room")
				}
			case 2:
				if f, c := pick(); f != nil && c.class == handshaking {
					table.enter(c, f)
				}
			case 3:
				if f, c := pick(); f != nil {
					table.authenticated(c)
				}
			case 4:
				if f, _ := pick(); f != nil {
					table.state(f, rapid.SampledFrom([]http.ConnState{http.StateActive, http.StateIdle}).Draw(t, "state"))
				}
			case 5:
				if f, c := pick(); f != nil {
					table.done(c)
				}
			}
			strangers, per := map[netip.Prefix]int{}, map[netip.Prefix]int{}
			n, established := 0, 0
			for f, c := range table.entries {
				if f.closed && !c.removed {
					t.Fatalf("%s was closed and is still counted", f.from)
				}
				if c.removed {
					continue
				}
				n++
				per[c.from]++
				if c.class != handshaking {
					established++
				}
				if c.class == unknown || c.class == handshaking {
					strangers[c.from]++
				}
			}
			if n > l.Connections || n != table.all.len() || table.all[handshaking].Len() > l.Handshakes || established > l.established() {
				t.Fatalf("%d connections, %d counted, %d handshakes, %d past them; limits %+v", n, table.all.len(), table.all[handshaking].Len(), established, l)
			}
			for from, n := range per {
				if strangers[from] > l.PerAddress || n > l.ofAddress() || table.addresses[from].len() != n {
					t.Fatalf("%d of %s, %d strangers, counted %d; limits %+v", n, from, strangers[from], table.addresses[from].len(), l)
				}
			}
		}
		for _, c := range table.entries {
			table.done(c)
		}
		if table.all.len() != 0 || len(table.addresses) != 0 || len(table.of) != 0 {
			t.Fatalf("%d connections, %d addresses and %d entries are left", table.all.len(), len(table.addresses), len(table.of))
		}
	})
}

// A connection on which no client authenticates ends in time, whatever it does. One on which a client has authenticated goes
// on.
func TestStrangersAreClosed(t *testing.T) {
	s := newSite(t)
	s.apis["s1"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			MarkAuthenticated(r.Context())
		}
		_, _ = io.WriteString(w, "hello")
	})
	m := s.member("s1", true, false, PeersOptions{Lead: none}, func(o *PortOptions) { o.Connections = NewConnections(Limits{Stranger: 300 * time.Millisecond}) })
	open := func(say string) net.Conn {
		conn, err := over(t, m.at, &tls.Config{NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, say)
		return conn
	}
	known := open("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(known), nil); err != nil {
		t.Fatal(err)
	}
	for what, say := range map[string]string{"nothing": "", "half a request": "GET / HTTP/1.1\r\nHo", "a request": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a body that never comes": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"} {
		conn := open(say)
		_ = conn.SetDeadline(time.Now().Add(waitLimit))
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _ = io.WriteString(known, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(known), nil); err != nil {
		t.Errorf("a client with a token: %v", err)
	}
}
