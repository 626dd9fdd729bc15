package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// smuggled is a second request that a server must not take for one of another client.
const smuggled = "GET /v1/vms HTTP/1.1\r\nHost: a\r\n\r\n"

// malformed are requests that break HTTP/1.1, or that two servers may read differently.
func malformed() map[string]string {
	post := "POST /livez HTTP/1.1\r\nHost: a\r\n"
	get := "GET /livez HTTP/1.1\r\nHost: a\r\n"
	return map[string]string{
		"length and chunks":                post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths":                      post + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + smuggled,
		"two lengths in one":               post + "Content-Length: 0, 44\r\n\r\n" + smuggled,
		"length with a plus":               post + "Content-Length: +5\r\n\r\nabcde" + smuggled,
		"length below 0":                   post + "Content-Length: -1\r\n\r\n" + smuggled,
		"length in hexadecimal":            post + "Content-Length: 0x10\r\n\r\n" + smuggled,
		"length beyond 64 bits":            post + "Content-Length: 99999999999999999999\r\n\r\n" + smuggled,
		"another encoding":                 post + "Transfer-Encoding: xchunked\r\n\r\n" + smuggled,
		"two encodings":                    post + "Transfer-Encoding: chunked, identity\r\n\r\n" + smuggled,
		"two headers of encoding":          post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"encoding before a space":          post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"encoding after a vertical tab":    post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"encoding of HTTP/1.0":             "POST /livez HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"chunk beyond 64 bits":             post + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n" + smuggled,
		"chunk below 0":                    post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + smuggled,
		"chunk with a long extension":      post + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 70_000) + "\r\na\r\n0\r\n\r\n" + smuggled,
		"chunk without its end":            post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX0\r\n\r\n" + smuggled,
		"trailers":                         post + "Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n0\r\nAuthorization: Bearer x\r\nContent-Length: 9\r\n\r\n" + smuggled,
		"many trailers":                    post + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 20_000) + "\r\n" + smuggled,
		"a folded first header":            "GET /livez HTTP/1.1\r\n Host: a\r\n\r\n" + smuggled,
		"a folded header":                  get + "X: a\r\n b\r\n\r\n" + smuggled,
		"line feeds alone":                 "GET /livez HTTP/1.1\nHost: a\n\n" + smuggled,
		"carriage returns alone":           "GET /livez HTTP/1.1\rHost: a\r\r" + smuggled,
		"two hosts":                        get + "Host: b\r\n\r\n" + smuggled,
		"no host":                          "GET /livez HTTP/1.1\r\n\r\n" + smuggled,
		"HTTP/0.9":                         "GET /livez\r\n\r\n" + smuggled,
		"HTTP/9.9":                         "GET /livez HTTP/9.9\r\nHost: a\r\n\r\n" + smuggled,
		"two spaces":                       "GET  /livez HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"a method of 40 kB":                strings.Repeat("A", 40_000) + " /livez HTTP/1.1\r\nHost: a\r\n\r\n",
		"a method with a slash":            "G/ET /livez HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"a NUL in a header":                get + "X: a\x00b\r\n\r\n" + smuggled,
		"a NUL in the path":                "GET /livez\x00 HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"a space in a header's name":       get + "X y: a\r\n\r\n" + smuggled,
		"a header without a name":          get + ": a\r\n\r\n" + smuggled,
		"a header of 40 kB":                get + "X: " + strings.Repeat("a", 40_000) + "\r\n\r\n",
		"a path of 40 kB":                  "GET /" + strings.Repeat("a", 40_000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"9,000 headers":                    get + strings.Repeat("A: b\r\n", 9000) + "\r\n",
		"the preface of HTTP/2":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a hello of TLS":                   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"1,000 NULs":                       strings.Repeat("\x00", 1000),
		"a token that is to be struck out": "GET /v1/vms HTTP/1.1\r\nHost: a\r\nConnection: Authorization\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n",
		"upgrade to h2c":                   get + "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + smuggled,
		"upgrade to a console":             "GET /v1/host/vms/x/console HTTP/1.1\r\nHost: a\r\nUpgrade: ek-console/1\r\nConnection: Upgrade\r\n\r\n" + smuggled,
		"upgrade to WebSocket":             "GET /v1/vms/x/console HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + smuggled,
		"another expectation":              get + "Expect: 200-ok\r\n\r\n" + smuggled,
		"a host with a path":               "GET /livez HTTP/1.1\r\nHost: a@b/../c\r\n\r\n" + smuggled,
	}
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d)(\d\d) `)

// exchange sends bytes over TLS and returns what comes until the server ends the connection or says nothing more.
func exchange(ctx context.Context, from, to, protocol string, send []byte) ([]byte, error) {
	conn, err := dialALPN(ctx, from, to, protocol)
	if err != nil {
		return nil, err
	}
	defer conn.Close()                      //nolint:errcheck // nothing is kept in it
	go func() { _, _ = conn.Write(send) }() // what the server does not read is not written
	var got bytes.Buffer
	b := make([]byte, 32<<10)
	for got.Len() < 1<<20 {
		wait := answerMax
		if got.Len() > 0 {
			wait = time.Second // for another answer to the same bytes
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(b)
		got.Write(b[:n])
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && got.Len() == 0 {
				return nil, err
			}
			break
		}
	}
	return got.Bytes(), nil
}

func TestMalformedHTTP(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	y := &tally{}
	var group sync.WaitGroup
	leader, followers := c.roles(t)
	slots := make(chan struct{}, 16)
	for _, s := range []*server{leader, followers[0], c.dev} {
		at := c.role(t, s)
		for what, send := range malformed() {
			group.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				got, err := exchange(t.Context(), place(), s.address, "http/1.1", []byte(send))
				good, bad := 0, 0 // answers; only /livez may be answered well
				for _, m := range statusLine.FindAllSubmatch(got, -1) {
					switch m[1][0] {
					case '2':
						good++
					case '1', '5':
						bad++
					}
				}
				if strings.Contains(string(got), "HTTP/1.1 505 ") && bad > 0 {
					bad-- // a version that is not spoken
				}
				if strings.Contains(string(got), "HTTP/1.1 501 ") && bad > 0 {
					bad-- // an encoding that is not known
				}
				let := answer{body: string(got)}.data() || bad > 0 || good > strings.Count(send, "GET /livez")
				y.add(let, true, "%s, %s: %.200q %v", at, what, got, err)
			})
		}
	}
	group.Wait()
	y.report(t, "malformed HTTP/1.1")
}

// Two servers that read one request differently would take the rest of a body for a request of another client.
func TestSmugglingThroughAFollower(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	_, followers := c.roles(t)
	y := &tally{}
	for what, send := range malformed() {
		if !strings.HasPrefix(send, "POST /livez HTTP/1.1\r\nHost: a\r\n") {
			continue
		}
		send = strings.Replace(send, "POST /livez HTTP/1.1\r\nHost: a\r\n", "POST /v1/virtual-clusters?dryRun=true HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer "+c.token+"\r\n", 1)
		got, err := exchange(t.Context(), place(), followers[0].address, "http/1.1", []byte(send))
		y.add(answer{body: string(got)}.data() || strings.Contains(string(got), "HTTP/1.1 2"), true, "%s: %.200q %v", what, got, err)
	}
	y.report(t, "requests with a token that servers may read differently")
	// No other client gets now as its answer what was on the connection between the servers.
	for range 20 {
		if a := c.ask(t, followers[0], "GET", "/v1/hosts/nothing", c.token, ""); a.status != 404 {
			t.Errorf("a later request: %s", a)
		}
	}
}

// What strangers send stands in the log as one line each, without control characters.
func TestLogInjection(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	leader, followers := c.roles(t)
	const mark = "level=ERROR msg=injected"
	for _, s := range []*server{leader, followers[0], c.dev} {
		before, err := os.ReadFile(s.log)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"id":"a\n%s","secret":"b\u001b[31m","name":"c\r\n%s","address":"\u001b]0;x\u0007:1","request":"\u202e"}`, mark, mark)
		for i, request := range []string{
			"GET /a%0a" + strings.ReplaceAll(mark, " ", "%20") + "%1b%5b31m%07%e2%80%ae HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\x1b[31m\r\nUser-Agent: \x1b[31m\r\nEvenkeel-Client: 1.2.3.4:5%0a" + mark + "\r\n\r\n",
			"GET /a?x=%0a" + strings.ReplaceAll(mark, " ", "%20") + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \x1b[31m\r\n\r\n",
			string(plain("POST", "/v1/cluster/join", "", body)),
		} {
			if _, err := exchange(t.Context(), place(), s.address, "http/1.1", []byte(request)); err != nil {
				t.Errorf("%s, request %d: %v", s.name, i, err)
			}
		}
		conn, err := connect(t.Context(), place(), s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "\n"+mark+"\n\x1b[31m\n")
		_ = conn.SetDeadline(time.Now().Add(answerMax))
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		all, err := os.ReadFile(s.log)
		if err != nil {
			t.Fatal(err)
		}
		said := all[len(before):]
		for line := range bytes.Lines(said) {
			if bytes.Contains(line, []byte(mark)) && !bytes.HasPrefix(line, []byte("time=")) || bytes.HasPrefix(line, []byte("level=")) || bytes.ContainsAny(bytes.TrimSuffix(line, []byte("\n")), "\x00\x07\x1b\r\u202e") {
				t.Errorf("%s: the log says %q", s.name, line)
			}
		}
		if !bytes.Contains(said, []byte("injected")) {
			t.Errorf("%s: the log has nothing of it, so the test proves nothing", s.name)
		}
	}
}
