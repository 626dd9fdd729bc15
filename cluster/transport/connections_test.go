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

// When a limit is reached, the oldest connection on which nobody has authenticated is closed, then the oldest handshake, then
// the oldest connection that is not used; one with a request of an authenticated caller never.
func TestConnectionsMakeRoom(t *testing.T) {
	table := NewConnections(Limits{Connections: 4, PerAddress: 3, Handshakes: 4})
	entries := map[*fake]*connection{}
	add := func(from string) *fake {
		f := &fake{from: from}
		entries[f] = table.add(f)
		return f
	}
	enter := func(from string) *fake {
		f := add(from)
		table.enter(entries[f], f)
		return f
	}
	used := enter("192.0.2.1:1")
	table.authenticated(entries[used])
	table.state(used, http.StateActive)
	rests := enter("192.0.2.1:2")
	table.authenticated(entries[rests])
	table.state(rests, http.StateIdle)
	shakes := add("192.0.2.2:1")
	silent := enter("192.0.2.3:1")
	for i, want := range []*fake{silent, shakes} {
		last := add(fmt.Sprintf("192.0.2.4:%d", i+1))
		if !want.closed || last.closed {
			t.Fatalf("connection %d: closed %t, new one %t", i, want.closed, last.closed)
		}
	}
	for i := range 2 { // now the handshakes of before
		add(fmt.Sprintf("192.0.2.5:%d", i+1))
	}
	if rests.closed || used.closed {
		t.Error("a connection of a caller that has authenticated was closed for a handshake")
	}
	for range 3 {
		f := enter("192.0.2.6:1")
		table.authenticated(entries[f])
		table.state(f, http.StateActive)
	}
	if !rests.closed || used.closed {
		t.Errorf("not used: closed %t, used: closed %t", rests.closed, used.closed)
	}
	if f := add("192.0.2.7:1"); entries[f] != nil {
		t.Error("a connection more than there is room for, with requests under way on all others")
	}
}

// The limits hold after any history, no connection is in the table twice, and none is left when all are closed.
func TestConnectionsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Connections: rapid.IntRange(1, 8).Draw(t, "connections"), PerAddress: rapid.IntRange(1, 4).Draw(t, "per address"), Handshakes: rapid.IntRange(1, 6).Draw(t, "handshakes")}
		table := NewConnections(l)
		var all []*fake
		entries := map[*fake]*connection{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pick := func() (*fake, *connection) {
				if len(all) == 0 {
					return nil, nil
				}
				f := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				return f, entries[f]
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				f := &fake{from: fmt.Sprintf("192.0.2.%d:%d", rapid.IntRange(1, 3).Draw(t, "from"), len(all)+1)}
				if c := table.add(f); c != nil {
					all, entries[f] = append(all, f), c
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
			per := map[netip.Prefix]int{}
			n := 0
			for f, c := range entries {
				if f.closed && !c.gone {
					t.Fatalf("%s was closed and is still counted", f.from)
				}
				if c.gone {
					continue
				}
				n++
				if c.class == unknown || c.class == handshaking {
					per[c.from]++
				}
			}
			if n > l.Connections || n != table.len() || table.classes[handshaking].Len() > l.Handshakes {
				t.Fatalf("%d connections, %d counted, %d handshakes; limits %+v", n, table.len(), table.classes[handshaking].Len(), l)
			}
			for from, n := range per {
				if n > l.PerAddress || table.addresses[from].len() != n {
					t.Fatalf("%d of %s, counted %d; limits %+v", n, from, table.addresses[from].len(), l)
				}
			}
		}
		for _, c := range entries {
			table.done(c)
		}
		if table.len() != 0 || len(table.addresses) != 0 || len(table.of) != 0 {
			t.Fatalf("%d connections, %d addresses and %d entries are left", table.len(), len(table.addresses), len(table.of))
		}
	})
}

// A connection on which nobody authenticates ends in time, whatever it does; one on which somebody has goes on.
func TestStrangersAreClosed(t *testing.T) {
	s := newSite(t)
	s.apis["s1"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			MarkAuthenticated(r.Context())
		}
		_, _ = io.WriteString(w, "hello")
	})
	m := s.member("s1", true, false, PeersOptions{Lead: nobody}, func(o *PortOptions) { o.Connections = NewConnections(Limits{Stranger: 300 * time.Millisecond}) })
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
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _ = io.WriteString(known, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(known), nil); err != nil {
		t.Errorf("a client with a token: %v", err)
	}
}
