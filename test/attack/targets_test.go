package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"sync"
	"testing"
)

// target of a request, as a stranger writes it.
type target struct {
	text string
	path bool // it is an absolute path; else every listener refuses it with 400
}

// targets in all forms of RFC 9112 section 3.2 and in forms that parsers disagree on.
func targets() []target {
	var out []target
	paths := []string{"/v1/about", "/v1/certificate", "/v1/hosts/s2/desired"}
	if long() {
		paths = append(paths, "/v1/hosts/s1/session", "/v1/host/vms/x/console", "/forwarded/v1/vms", "/v1/vms", "/v1/cluster/snapshot")
	}
	for _, path := range paths {
		for _, before := range []string{"x:https://a", "https://a", "http://a", "x:", "https:", "HTTPS://a@b", "ek-peer/1://a", "x://a", "https://a:b@c", "https:///", "x:y:", "https://[::1]"} {
			out = append(out, target{before + path, false})
		}
		out = append(out, target{path[1:], false}, target{`\` + path[1:], false}, target{"*" + path, false}, target{"?" + path, false}, target{"#" + path, false}, target{"../" + path, false})
		out = append(out, target{"//a" + path, true}, target{"///a" + path, true}, target{"/\\a" + path, true}, target{"/x:https://a" + path, true}, target{"/https://a" + path, true},
			target{"/forwarded" + path, true}, target{"/../forwarded" + path, true}, target{"/livez/.." + path, true}, target{"/livez/%2e%2e" + path, true}, target{"/livez%2f.." + path, true},
			target{"/livez;" + path, true}, target{"/livez/" + path, true}, target{path + "?consistency=stale", true}, target{"/./" + path, true}, target{"/%2f" + path, true}, target{"/@a" + path, true})
	}
	for _, text := range []string{"*", "https:a", "x:", ":", "a:1", "127.0.0.1:1", "[::1]:1", "a", "https://", "x:*", "x:/", "x://", "*forwarded", "*/forwarded", "x:*/v1/about", "https://a", "https://a?x", "mailto:a@b", "x:%2fv1%2fabout"} {
		out = append(out, target{text, false})
	}
	return out
}

// sent are the members' headers and what goes with them. A stranger may write any of them.
func memberHeaders(c *cluster) [][2]string {
	return [][2]string{{"evenkeel-caller", "evenkeel://" + c.id + "/server/s1 00"}, {"evenkeel-client", "127.0.0.1:1"}, {"evenkeel-session", "1"}, {"evenkeel-call", "1"}, {"evenkeel-straight", "yes"}}
}

// certificateRequest is the body with which a member asks for a certificate, for the stranger's own key.
func certificateRequest(t *testing.T) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]string{"request": signingRequest(t)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// signingRequest is a PKCS #10 request of a new key, PEM.
func signingRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "s9"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))
}

var attackMethods = []string{"GET", "POST", "PUT", "OPTIONS", "CONNECT"}

// tally counts what was tried and what was let through. It is safe for concurrent use.
type tally struct {
	mu          sync.Mutex
	tried       int
	through     []string // answers that no stranger may have
	differently []string // refused, but not as documented
}

func (y *tally) add(through, asDocumented bool, format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.tried++
	switch {
	case through:
		y.through = append(y.through, fmt.Sprintf(format, args...))
	case !asDocumented:
		y.differently = append(y.differently, fmt.Sprintf(format, args...))
	}
}

// report the row, and fail if anything was let through.
func (y *tally) report(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s: %d tried, %d let through, %d refused in another way than documented", what, y.tried, len(y.through), len(y.differently))
	for i, s := range y.through {
		if i == 12 {
			t.Errorf("... and %d more", len(y.through)-i)
			break
		}
		t.Errorf("LET THROUGH %s", s)
	}
	for i, s := range y.differently {
		if i == 6 {
			t.Errorf("... and %d more", len(y.differently)-i)
			break
		}
		t.Errorf("not as documented: %s", s)
	}
	if y.tried == 0 {
		t.Error("nothing was tried")
	}
}

// judge an answer to a request without a token. Every path gives the same answers: 401 or not found, never data.
func (y *tally) judge(at string, g target, method string, a answer, h2 bool) {
	let := a.data() || (a.status > 0 && a.status < 400) || a.status >= 500
	right := a.status == 400
	switch {
	case h2 && a.status == 0: // HTTP/2 refuses a malformed request by a reset of its stream, RFC 9113 section 8.1.1
		right = true
	case g.path && method != "CONNECT":
		right = a.status == 400 || a.status == 401 || a.status == 404 || a.status == 405
	case g.path: // CONNECT takes an authority, and a path is none
		right = a.status >= 400
	}
	y.add(let, right, "%s %s %q: %s", at, method, g.text, a)
}

func TestRequestTargets(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	certificate := certificateRequest(t)
	h1, h2 := &tally{}, &tally{}
	var group sync.WaitGroup
	for _, s := range c.targets(t) {
		at := c.role(t, s)
		group.Go(func() { attackHTTP1(t.Context(), h1, c, s, at, certificate) })
		group.Go(func() { attackHTTP2(t.Context(), h2, c, s, at, certificate) })
	}
	group.Wait()
	h1.report(t, "request targets, HTTP/1.1")
	h2.report(t, "request targets, HTTP/2")
	// The servers still answer what they should, or the rest proves nothing.
	for _, s := range c.targets(t) {
		k := &talk{ctx: t.Context(), from: place(), to: s.address}
		if a := k.ask("GET", []byte("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")); a.status != 200 {
			t.Errorf("%s: /livez: %s", s.name, a)
		}
		if a := k.ask("GET", []byte("GET /v1/about HTTP/1.1\r\nHost: a\r\n\r\n")); a.status != 401 {
			t.Errorf("%s: /v1/about: %s", s.name, a)
		}
		k.close()
	}
	c.eventually(t, "the cluster is healthy after it", c.healthy)
}

func attackHTTP1(ctx context.Context, y *tally, c *cluster, s *server, at string, certificate []byte) {
	k := &talk{ctx: ctx, from: place(), to: s.address}
	defer k.close()
	members := ""
	for _, h := range memberHeaders(c) {
		members += h[0] + ": " + h[1] + "\r\n"
	}
	all := append(targets(), target{"", false}, target{" ", false}, target{"\t/livez", false})
	for _, g := range all {
		for i, method := range attackMethods {
			headers, body := "", ""
			if i%2 == 1 {
				headers = members
			}
			if method == "POST" || method == "PUT" {
				body = string(certificate)
				headers += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
			}
			a := k.ask(method, []byte(method+" "+g.text+" HTTP/1.1\r\nHost: a\r\n"+headers+"\r\n"+body))
			y.judge(at+" HTTP/1.1", g, method, a, false)
		}
	}
}

func attackHTTP2(ctx context.Context, y *tally, c *cluster, s *server, at string, certificate []byte) {
	from := place()
	const batch = 50 // streams on one connection, fewer than a server allows at once
	type one struct {
		g      target
		method string
		fields [][2]string
		body   []byte
		loose  bool // what is bad is not the path: any refusal is right
	}
	var all []one
	for _, g := range append(targets(), target{"", false}, target{" /livez", false}, target{"/livez\r\nx: y", false}, target{"/livez HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/about", false}) {
		for i, method := range attackMethods {
			fields := [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "a"}, {":path", g.text}}
			var body []byte
			if i%2 == 1 {
				fields = append(fields, memberHeaders(c)...)
			}
			if method == "POST" || method == "PUT" {
				body = certificate
				fields = append(fields, [2]string{"content-type", "application/json"})
			}
			all = append(all, one{g, method, fields, body, false})
		}
		all = append(all,
			one{g, "GET", [][2]string{{":method", "GET"}, {":scheme", "x:https"}, {":authority", "a"}, {":path", g.text}}, nil, true},
			one{g, "GET", [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "u@a/v1/about?"}, {":path", g.text}}, nil, true},
			one{g, "CONNECT", [][2]string{{":method", "CONNECT"}, {":authority", g.text}}, nil, true},
			one{g, "CONNECT", [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "https"}, {":authority", "a"}, {":path", g.text}}, nil, true})
	}
	for len(all) > 0 {
		f, err := newFrames(ctx, from, s.address)
		if err != nil {
			y.add(true, false, "%s: no connection: %v", at, err)
			return
		}
		var left []one // which the connection's end left without an answer
		asked := map[uint32]one{}
		for i, q := range all[:min(batch, len(all))] {
			id, err := f.request(q.fields, q.body)
			if err != nil {
				left = append(left, all[i:min(batch, len(all))]...)
				break
			}
			asked[id] = q
		}
		got := f.answers()
		_ = f.conn.Close()
		for id := uint32(1); id < f.next; id += 2 {
			q, a := asked[id], got[id]
			switch {
			case q.fields == nil: // it was never sent
			case a.status == 0 && !a.reset && id > 1: // the first one was read, and ended the connection
				left = append(left, q)
			case q.loose:
				y.add(a.data() || (a.status > 0 && a.status < 400) || a.status >= 500, true, "%s HTTP/2 %v: %s", at, q.fields, a)
			default:
				y.judge(at+" HTTP/2", q.g, q.method, a, true)
			}
		}
		all = append(left, all[min(batch, len(all)):]...)
	}
}
