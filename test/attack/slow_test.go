package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// closedWithin is the longest time that a connection without authentication stays open.
const closedWithin = 20 * time.Second

// slow is a way to keep a connection without a token.
type slow struct {
	name    string
	alpn    string                // "" for none but TCP
	first   func(io.Writer) error // what is sent at once
	trickle func(io.Writer) error // what is sent every second; nil: nothing
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// preface of HTTP/2 with these settings, then what next writes.
func preface(next func(*http2.Framer, *frames) error, settings ...http2.Setting) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, err := io.WriteString(w, http2.ClientPreface); err != nil {
			return err
		}
		f := headerBlocks()
		f.fr = http2.NewFramer(w, nil)
		f.fr.AllowIllegalWrites = true
		if err := f.fr.WriteSettings(settings...); err != nil || next == nil {
			return err
		}
		return next(f.fr, f)
	}
}

func onFrames(write func(*http2.Framer) error) func(io.Writer) error {
	return func(w io.Writer) error { return write(http2.NewFramer(w, nil)) }
}

func slowAttacks() []slow {
	get := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", "/livez"}}
	send := func(method, path string) [][2]string {
		return [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "a"}, {":path", path}, {"content-type", "application/json"}, {"content-length", "100000"}}
	}
	headers := func(fields [][2]string, endHeaders, endStream bool) func(*http2.Framer, *frames) error {
		return func(fr *http2.Framer, f *frames) error {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(fields), EndHeaders: endHeaders, EndStream: endStream})
		}
	}
	data := onFrames(func(fr *http2.Framer) error { return fr.WriteData(1, false, []byte("a")) })
	return []slow{
		{"body never sent", "http/1.1", text("POST /v1/vms HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"), nil},
		{"a byte a second of 16 MiB", "http/1.1", text("POST /v1/vms HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\n"), text("a")},
		{"chunks without an end", "http/1.1", text("POST /v1/vms HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), text("1\r\na\r\n")},
		{"slow headers", "http/1.1", text("GET /livez HTTP/1.1\r\nHost: a\r\n"), text("X: a\r\n")},
		{"slow body to /livez", "http/1.1", text("POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"), text("a")},
		{"slow body of a join", "http/1.1", text("POST /v1/cluster/join HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n"), text(" ")},
		{"no request", "http/1.1", text(""), nil},

		{"no TLS", "", text(""), nil},
		{"a slow handshake", "", text("\x16\x03\x01\x02\x00"), text("\x00")},
		{"idle after /livez", "http/1.1", text("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), nil},
		{"/livez for ever", "http/1.1", text("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), text("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"a body with Expect", "http/1.1", text("POST /v1/cluster/join HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10000\r\n\r\n"), text(" ")},

		{"HTTP/2: preface only", "h2", text(http2.ClientPreface), nil},
		{"HTTP/2: settings only", "h2", preface(nil), nil},
		{"HTTP/2: pings for ever", "h2", preface(nil), onFrames(func(fr *http2.Framer) error { return fr.WritePing(false, [8]byte{1}) })},
		{"HTTP/2: headers without an end", "h2", preface(headers(get, false, true)), onFrames(func(fr *http2.Framer) error { return fr.WriteContinuation(1, false, nil) })},
		{"HTTP/2: an answer that may not be sent", "h2", preface(headers(get, true, true), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), nil},
		{"HTTP/2: idle after /livez", "h2", preface(headers(get, true, true)), nil},
		{"HTTP/2: body never sent", "h2", preface(headers(send("POST", "/v1/vms"), true, false)), nil},
		{"HTTP/2: a byte a second", "h2", preface(headers(send("POST", "/v1/virtual-clusters"), true, false)), data},
		{"HTTP/2: slow body to /livez", "h2", preface(headers(send("POST", "/livez"), true, false)), data},
		{"HTTP/2: slow body of a join", "h2", preface(headers(send("POST", "/v1/cluster/join"), true, false)), data},
	}
}

// keepOpen a connection in a way until the server ends it, and return how long that took.
func (w slow) keepOpen(ctx context.Context, from, to string, limit time.Duration) (time.Duration, error) {
	begun := time.Now()
	var conn net.Conn
	var err error
	if w.alpn == "" {
		conn, err = connect(ctx, from, to)
	} else {
		conn, err = dialALPN(ctx, from, to, w.alpn)
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it is the server that ends it
	if err := w.first(conn); err != nil {
		return stalls.Ran(begun, time.Now()), nil //nolint:nilerr // the server ended it
	}
	b := make([]byte, 16<<10)
	for next := time.Now().Add(time.Second); stalls.Ran(begun, time.Now()) < limit; {
		_ = conn.SetReadDeadline(next)
		_, err := conn.Read(b)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			next = time.Now().Add(time.Second)
			if w.trickle != nil {
				_ = conn.SetWriteDeadline(next)
				if err := w.trickle(conn); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					return stalls.Ran(begun, time.Now()), nil //nolint:nilerr // the server ended it
				}
			}
		case err != nil:
			return stalls.Ran(begun, time.Now()), nil //nolint:nilerr // the server ended it
		}
	}
	return limit, os.ErrDeadlineExceeded
}

// Who has no token keeps no connection.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	y := &tally{}
	var longest time.Duration
	var mu sync.Mutex
	var group sync.WaitGroup
	patience := closedWithin + 4*time.Second
	if long() {
		patience = 4 * time.Minute
	}
	for _, s := range c.targets(t) {
		at := c.role(t, s)
		for _, w := range slowAttacks() {
			if s == c.dev && strings.Contains(w.name, "join") {
				continue // vcd dev has no members
			}
			from := place()
			group.Go(func() {
				took, err := w.keepOpen(t.Context(), from, s.address, patience)
				mu.Lock()
				longest = max(longest, took)
				mu.Unlock()
				left := fmt.Sprintf("closed after %.1f s", took.Seconds())
				if err != nil {
					left = fmt.Sprintf("%v after %.1f s", err, took.Seconds())
				}
				y.add(err != nil || took > closedWithin, true, "%s, %s: %s", at, w.name, left)
			})
		}
	}
	group.Wait()
	y.report(t, "slow clients")
	t.Logf("the longest was closed after %.1f s", longest.Seconds())
}
