package attack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// answerMax is how long a test waits for one answer before it counts as none.
const answerMax = 20 * time.Second

var places atomic.Uint32

// place is an address on loopback that no other test connects from, so that limits by address do not mix tests up.
func place() string {
	n := places.Add(1)
	return fmt.Sprintf("127.77.%d.%d", n/250, n%250+1)
}

// connect to a server from an address, below TLS.
func connect(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: answerMax}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.DialContext(ctx, "tcp", to)
}

// dial a server with a configuration of TLS; the certificate of the server is not what is tested.
func dial(ctx context.Context, from, to string, conf *tls.Config) (*tls.Conn, error) {
	return dialWithin(ctx, answerMax, from, to, conf)
}

func dialWithin(ctx context.Context, within time.Duration, from, to string, conf *tls.Config) (*tls.Conn, error) {
	raw, err := connect(ctx, from, to)
	if err != nil {
		return nil, err
	}
	conf = conf.Clone()
	conf.InsecureSkipVerify = true
	conn := tls.Client(raw, conf)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func dialALPN(ctx context.Context, from, to string, protocols ...string) (*tls.Conn, error) {
	return dial(ctx, from, to, &tls.Config{NextProtos: protocols})
}

// answer of a server to one request.
type answer struct {
	status int    // 0: none
	body   string // its first bytes
	header http.Header
	reset  bool  // by RST_STREAM
	err    error // why there is none: the connection ended, or the stream was reset
}

func (a answer) String() string {
	if a.status == 0 {
		return fmt.Sprintf("no answer (%v)", a.err)
	}
	return fmt.Sprintf("%d %.120q", a.status, a.body)
}

// data that only a client with a token may read. Problem documents have none of it.
func (a answer) data() bool {
	for _, part := range []string{`"items"`, `"stats"`, `"servers"`, "BEGIN CERTIFICATE", `"session"`, `"head"`, "evenkeel_", `"openapi"`} {
		if strings.Contains(a.body, part) {
			return true
		}
	}
	return false
}

// talk is a connection over which requests are written byte by byte, made again when the server ends it.
type talk struct {
	ctx      context.Context
	from, to string
	max      int64 // bytes of an answer that are kept; 0: 64 KiB
	conn     *tls.Conn
	in       *bufio.Reader
}

func (k *talk) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// ask with the bytes of one HTTP/1.1 request, and read one answer to a request with that method.
func (k *talk) ask(method string, request []byte) answer {
	fresh := k.conn == nil
	a := k.once(method, request)
	if a.status == 0 && !fresh { // the server may have ended the connection meanwhile
		a = k.once(method, request)
	}
	return a
}

func (k *talk) once(method string, request []byte) answer {
	if k.conn == nil {
		conn, err := dialALPN(k.ctx, k.from, k.to, "http/1.1")
		if err != nil {
			return answer{err: err}
		}
		k.conn, k.in = conn, bufio.NewReader(conn)
	}
	_ = k.conn.SetDeadline(time.Now().Add(answerMax))
	_, wrote := k.conn.Write(request)
	resp, err := http.ReadResponse(k.in, &http.Request{Method: method})
	if err != nil {
		k.close()
		return answer{err: errors.Join(wrote, err)}
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	var body bytes.Buffer
	_, err = io.Copy(&body, io.LimitReader(resp.Body, cmp.Or(k.max, 64<<10)))
	a.body = body.String()
	if resp.Close || err != nil || wrote != nil || resp.StatusCode < 200 {
		k.close()
	}
	return a
}

// frames speaks HTTP/2 frame by frame, so that any pseudo-header can be sent.
type frames struct {
	conn *tls.Conn
	fr   *http2.Framer
	enc  *hpack.Encoder
	buf  bytes.Buffer
	next uint32
}

// newFrames connects and sends the preface with these settings.
func newFrames(ctx context.Context, from, to string, settings ...http2.Setting) (*frames, error) {
	conn, err := dialALPN(ctx, from, to, "h2")
	if err != nil {
		return nil, err
	}
	f := headerBlocks()
	f.conn, f.fr = conn, http2.NewFramer(conn, conn)
	f.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.fr.AllowIllegalWrites = true
	_ = conn.SetDeadline(time.Now().Add(answerMax))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := f.fr.WriteSettings(settings...); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return f, nil
}

// headerBlocks makes blocks of headers, before there is a connection.
func headerBlocks() *frames {
	f := &frames{next: 1}
	f.enc = hpack.NewEncoder(&f.buf)
	return f
}

// block is the header block of a request.
func (f *frames) block(fields [][2]string) []byte {
	f.buf.Reset()
	for _, h := range fields {
		_ = f.enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
	}
	return bytes.Clone(f.buf.Bytes())
}

// request sends a request with these fields and this body, and returns its stream.
func (f *frames) request(fields [][2]string, body []byte) (uint32, error) {
	id := f.next
	f.next += 2
	err := f.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block(fields), EndHeaders: true, EndStream: len(body) == 0})
	if err == nil && len(body) > 0 {
		err = f.fr.WriteData(id, true, body)
	}
	return id, err
}

// answers of all streams; those that were reset, and all that came after the server stopped reading, have none.
func (f *frames) answers() map[uint32]answer {
	_ = f.conn.SetDeadline(time.Now().Add(answerMax))
	out, open := map[uint32]answer{}, map[uint32]bool{}
	for id := uint32(1); id < f.next; id += 2 {
		open[id] = true
	}
	for len(open) > 0 {
		frame, err := f.fr.ReadFrame()
		if streamError := (http2.StreamError{}); errors.As(err, &streamError) {
			continue
		}
		if err != nil {
			for id := range open {
				a := out[id]
				a.err = err
				out[id] = a
			}
			return out
		}
		id := frame.Header().StreamID
		a := out[id]
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			a.header = http.Header{}
			for _, h := range frame.Fields {
				a.header.Add(h.Name, h.Value)
			}
			a.status, _ = strconv.Atoi(frame.PseudoValue("status"))
			if frame.StreamEnded() {
				delete(open, id)
			}
		case *http2.DataFrame:
			if len(a.body) < 64<<10 {
				a.body += string(frame.Data())
			}
			if frame.StreamEnded() {
				delete(open, id)
			}
		case *http2.RSTStreamFrame:
			a.reset, a.err = true, fmt.Errorf("reset: %v", frame.ErrCode)
			delete(open, id)
		case *http2.GoAwayFrame:
			for id := range open {
				if id > frame.LastStreamID {
					delete(open, id)
				}
			}
			continue
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.fr.WriteSettingsAck()
			}
			continue
		case *http2.PingFrame:
			_ = f.fr.WritePing(true, frame.Data)
			continue
		default:
			continue
		}
		out[id] = a
	}
	return out
}
