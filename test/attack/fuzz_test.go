package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"evenkeel/test/site"
)

const (
	checkEvery   = 500      // inputs, after which goroutines are counted and both servers are asked whether they live
	moreRoutines = 100      // goroutines that may be there besides those of two quiet servers: idle connections between them
	maxInput     = 64 << 10 // bytes

	// fuzzDir names, for the processes that try inputs, a directory that the process that started them removes: they are killed.
	fuzzDir = "EVENKEEL_ATTACK_FUZZ_DIR"
)

// listeners are two real servers in this process, one of which leads. All inputs of a process go to them.
type listeners struct {
	once     sync.Once
	err      error
	site     *site.Site
	dir      string
	to       [2]string // addresses: of the leader, of the follower
	sessions tls.ClientSessionCache
	routines int // when nothing is under way
	inputs   int
	panics   panics
}

// panics are what was logged of any. A slog.Handler.
type panics struct {
	mu   sync.Mutex
	said []string
}

func (p *panics) Enabled(context.Context, slog.Level) bool { return true }
func (p *panics) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p *panics) WithGroup(string) slog.Handler            { return p }

func (p *panics) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += "\n" + a.String(); return true })
		p.mu.Lock()
		p.said = append(p.said, text)
		p.mu.Unlock()
	}
	return nil
}

func (l *listeners) start() {
	l.once.Do(func() {
		if l.dir, l.err = os.MkdirTemp(os.Getenv(fuzzDir), "servers"); l.err != nil {
			return
		}
		l.site, l.err = site.New(site.Options{Dir: l.dir, Hosts: 2, Log: slog.New(&l.panics)})
		if l.err == nil {
			l.err = l.site.Servers(context.Background(), 2)
		}
		if l.err != nil {
			return
		}
		l.to = [2]string{l.site.Address(l.site.Leader()), l.site.Address(l.site.Follower())}
		l.sessions = tls.NewLRUClientSessionCache(16)
		if l.err = l.awaitLife(); l.err == nil {
			l.routines = runtime.NumGoroutine()
		}
	})
}

func (l *listeners) close() {
	if l.site != nil {
		_ = l.site.Close()
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
}

// lives is nil when both servers answer.
func (l *listeners) lives() error {
	for _, to := range l.to {
		k := &talk{ctx: context.Background(), from: place(), to: to}
		a := k.ask("GET", plain("GET", "/livez", "Connection: close\r\n", ""))
		k.close()
		if a.status != 200 {
			return fmt.Errorf("%s: /livez: %s", to, a)
		}
	}
	return nil
}

// awaitLife is nil when both answer in the end: the fuzzer's processes may wait long for a CPU.
func (l *listeners) awaitLife() error {
	return awaitFor(context.Background(), awaitMax, "both servers answer", func(context.Context) error { return l.lives() })
}

// awaitQuiet is nil when no more goroutines are left than there were.
func (l *listeners) awaitQuiet() error {
	return awaitFor(context.Background(), awaitMax, "the goroutines of inputs end", func(context.Context) error {
		if n := runtime.NumGoroutine(); n > l.routines+moreRoutines {
			return fmt.Errorf("%d goroutines, %d before the first input", n, l.routines)
		}
		return nil
	})
}

// The lowest bits of an input's first argument.
const (
	overHTTP2 = 1 << iota
	toFollower
	awaitAnswer // before the input's end is announced: what is under way is cut off by it
)

// try one input.
func (l *listeners) try(how byte, data []byte) error {
	protocol, to := "http/1.1", l.to[0]
	if how&overHTTP2 != 0 {
		protocol = "h2"
	}
	if how&toFollower != 0 {
		to = l.to[1]
	}
	conn, err := dialWithin(context.Background(), awaitMax, fmt.Sprintf("127.78.0.%d", l.inputs%200+1), to, &tls.Config{NextProtos: []string{protocol}, ClientSessionCache: l.sessions})
	if err != nil {
		return fmt.Errorf("no connection: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the server ended it, or hangs
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = conn.Write(data[:min(len(data), maxInput)]) // what the server does not read is not written
	}()
	b := make([]byte, 4096)
	if how&awaitAnswer != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = conn.Read(b)
	}
	_ = conn.SetDeadline(time.Now().Add(awaitMax))
	go func() { <-wrote; _ = conn.CloseWrite() }()
	for err == nil {
		_, err = conn.Read(b)
	}
	<-wrote
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the connection neither ends nor answers within %s of its end", awaitMax)
	}
	return nil
}

// FuzzListener sends bytes after the handshake of TLS to a leader and to a follower: they never panic, always end the
// connection, leave no goroutine, and go on to answer.
func FuzzListener(f *testing.F) {
	for _, s := range http1Seeds() {
		f.Add(byte(toFollower), s)
		f.Add(byte(awaitAnswer), s)
	}
	for _, s := range http2Seeds() {
		f.Add(byte(overHTTP2|toFollower), s)
		f.Add(byte(overHTTP2|awaitAnswer), s)
	}
	if os.Getenv(fuzzDir) == "" {
		dir, err := os.MkdirTemp("", "evenkeel-attack-fuzz-")
		if err != nil {
			f.Fatal(err)
		}
		f.Setenv(fuzzDir, dir)
		f.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	l := &listeners{}
	f.Cleanup(l.close)
	f.Fuzz(func(t *testing.T, how byte, data []byte) {
		l.start()
		if l.err != nil {
			t.Fatal(l.err)
		}
		l.inputs++
		if err := l.try(how, data); err != nil {
			t.Error(err)
		}
		if l.inputs%checkEvery == 0 {
			if err := errors.Join(l.awaitLife(), l.awaitQuiet()); err != nil {
				t.Error(err)
			}
		}
		l.panics.mu.Lock()
		defer l.panics.mu.Unlock()
		if len(l.panics.said) > 0 {
			t.Errorf("panics: %s", l.panics.said)
			l.panics.said = nil
		}
	})
}

func http1Seeds() [][]byte {
	var out [][]byte
	for i, g := range targets() {
		if i%6 == 0 {
			out = append(out, []byte("GET "+g.text+" HTTP/1.1\r\nHost: a\r\n\r\n"))
		}
	}
	token := "Authorization: Bearer " + site.Token + "\r\n"
	for _, method := range attackMethods {
		out = append(out, plain(method, "/v1/virtual-clusters?dryRun=true", token, `{"name":"a","groups":[{"name":"g","cpu":1,"memory":"64MiB"}]}`))
	}
	for _, path := range []string{"/v1/vms", "/v1/events", "/v1/events?follow=false", "/v1/operations/x?wait=1s", "/metrics", "/openapi.json", "/v1/vms/x/console", "/v1/cluster/status?consistency=stale"} {
		out = append(out, plain("GET", path, token, ""))
	}
	out = append(out, plain("POST", "/v1/cluster/join", "", `{"id":"0123456789abcdef","secret":"x","name":"h9","address":"127.0.0.1:9","request":"-----BEGIN CERTIFICATE REQUEST-----"}`),
		plain("PUT", "/v1/hosts/h1/cordon?dryRun=true", token+"Evenkeel-Caller: evenkeel://c/server/h1 00\r\nConnection: Evenkeel-Client\r\nEvenkeel-Client: 127.0.0.1:1\r\n", `{"reason":"x"}`))
	all := malformed()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if s := all[name]; len(s) < 4096 {
			out = append(out, []byte(s))
		}
	}
	return out
}

// http2Seeds are connections of HTTP/2 as attackers open them.
func http2Seeds() [][]byte {
	var out [][]byte
	conn := func(write func(*http2.Framer, *frames) error, settings ...http2.Setting) {
		var b bytes.Buffer
		if preface(write, settings...)(&b) == nil {
			out = append(out, b.Bytes())
		}
	}
	request := func(method, path string, more ...[2]string) [][2]string {
		return append([][2]string{{":method", method}, {":scheme", "https"}, {":authority", "a"}, {":path", path}}, more...)
	}
	token := [2]string{"authorization", "Bearer " + site.Token}
	send := func(fields [][2]string, body []byte) func(*http2.Framer, *frames) error {
		return func(fr *http2.Framer, f *frames) error {
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(fields), EndHeaders: true, EndStream: body == nil}); err != nil || body == nil {
				return err
			}
			return fr.WriteData(1, true, body)
		}
	}
	for i, g := range targets() {
		if i%9 == 0 {
			conn(send(request("GET", g.text), nil))
		}
	}
	for _, path := range []string{"/livez", "/v1/vms", "/v1/events", "/v1/operations/x?wait=1s", "/metrics"} {
		conn(send(request("GET", path, token), nil))
	}
	conn(send(request("POST", "/v1/virtual-clusters?dryRun=true", token, [2]string{"content-type", "application/json"}), []byte(`{"name":"a","groups":[{"name":"g","cpu":1,"memory":"64MiB"}]}`)))
	conn(send(request("POST", "/v1/cluster/join", [2]string{"content-type", "application/json"}), []byte(`{"id":"0123456789abcdef"}`)))
	conn(send([][2]string{{":method", "CONNECT"}, {":authority", "a:1"}}, nil))
	conn(send([][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "https"}, {":authority", "a"}, {":path", "/v1/vms/x/console"}, token}, nil))
	conn(send([][2]string{{":path", "/livez"}, {":path", "/v1/vms"}, {":method", "GET"}, {":scheme", "https"}}, nil))
	conn(send(request("GET", "/livez", [2]string{"Connection", "x"}, [2]string{"te", "gzip"}, [2]string{"transfer-encoding", "chunked"}, [2]string{"x\r\ny", "a\r\nb: c"}), nil))
	conn(send(request("GET", "/livez", [2]string{"x", strings.Repeat("a", 8000)}), nil))
	conn(send(request("POST", "/livez", [2]string{"content-length", "5"}), []byte("more than five")))
	conn(send(request("GET", "/v1/vms", token), nil), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0xffffffff})
	conn(nil, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0xffffffff}, http2.Setting{ID: 0xff, Val: 1})
	rounds := func(n int, write func(*http2.Framer, *frames, uint32) error) func(*http2.Framer, *frames) error {
		return func(fr *http2.Framer, f *frames) error {
			for i := range n {
				if err := write(fr, f, uint32(2*i+1)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	conn(rounds(50, func(fr *http2.Framer, f *frames, id uint32) error { // streams that are reset as soon as they begin
		err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block(request("GET", "/v1/vms")), EndHeaders: true, EndStream: true})
		return errors.Join(err, fr.WriteRSTStream(id, http2.ErrCodeCancel))
	}))
	conn(rounds(50, func(fr *http2.Framer, f *frames, id uint32) error {
		if id == 1 {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(request("GET", "/livez"))})
		}
		return fr.WriteContinuation(1, false, nil)
	}))
	conn(rounds(30, func(fr *http2.Framer, _ *frames, id uint32) error {
		return errors.Join(fr.WritePing(id%4 == 1, [8]byte{1}), fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: id}), fr.WriteSettingsAck())
	}))
	conn(func(fr *http2.Framer, f *frames) error {
		return errors.Join(fr.WriteWindowUpdate(0, 1<<31-1), fr.WriteWindowUpdate(0, 1<<31-1), fr.WriteWindowUpdate(1, 0))
	})
	conn(func(fr *http2.Framer, f *frames) error {
		return errors.Join(fr.WritePriority(1, http2.PriorityParam{StreamDep: 1}), fr.WriteData(3, true, []byte("x")), fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: f.block(request("GET", "/livez")), EndHeaders: true}))
	})
	conn(func(fr *http2.Framer, _ *frames) error {
		return errors.Join(fr.WriteGoAway(1, http2.ErrCodeNo, bytes.Repeat([]byte("x"), 2000)), fr.WriteRawFrame(0xfe, 0xff, 7, []byte("unknown")), fr.WriteRawFrame(http2.FrameHeaders, 0xff, 1, []byte{0xff, 0xff, 0xff, 0xff}))
	})
	for _, w := range slowAttacks() {
		var b bytes.Buffer
		if w.alpn == "h2" && errors.Join(w.first(&b), func() error {
			if w.trickle == nil {
				return nil
			}
			return w.trickle(&b)
		}()) == nil {
			out = append(out, b.Bytes())
		}
	}
	return append(out, []byte("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), []byte(http2.ClientPreface), nil)
}
