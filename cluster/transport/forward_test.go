package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
)

// forwarding serves an API on the public side of a member that hands everything on to an address.
func forwarding(t *testing.T, m *member, to func() string) (base string, client *http.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerRequest) == "" {
			w.Header().Set(headerRequest, "made-here")
		} else {
			w.Header().Set(headerRequest, r.Header.Get(headerRequest))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		m.client.Forward(w, r, to())
	})}
	done := make(chan struct{})
	go func() { _ = srv.Serve(listener); close(done) }()
	transport := &http.Transport{DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(func() { transport.CloseIdleConnections(); _ = srv.Close(); <-done })
	return "http://" + listener.Addr().String(), &http.Client{Transport: transport, Timeout: waitLimit}
}

func TestForward(t *testing.T) {
	s := newSite(t)
	type seen struct {
		Method, Path, Query, Body, By, Remote, Proto string
		Header                                       http.Header
	}
	more := make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/echo/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set(headerRequest, r.Header.Get(headerRequest))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Evenkeel-Index", "12")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), ForwardedBy(r.Context()), r.RemoteAddr, r.Proto, r.Header})
	})
	mux.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for line := range more {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/v1/socket", func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		kind, what, err := ws.Read(r.Context())
		if err == nil {
			_ = ws.Write(r.Context(), kind, append([]byte("heard "), what...))
		}
		_ = ws.Close(websocket.StatusNormalClosure, "")
	})
	var second *member // hands on what was handed on to it
	mux.HandleFunc("/v1/ball", func(w http.ResponseWriter, r *http.Request) { second.client.Forward(w, r, second.at) })
	s.apis["s1"], s.apis["s2"] = mux, mux
	leader := s.member("s1", true, false, PeersOptions{})
	second = s.member("s2", true, false, PeersOptions{})
	to := leader.at
	base, client := forwarding(t, second, func() string { return to })

	ask := func(method, path, body string, header http.Header) (*http.Response, seen) {
		t.Helper()
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range header {
			req.Header[name] = values
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var got seen
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%d %q: %v", resp.StatusCode, text, err)
		}
		return resp, got
	}
	for range 2 { // the second time over the connection of the first
		resp, got := ask("POST", "/v1/echo/a%2Fb?x=1&y=%20", `{"a":1}`, http.Header{"Authorization": {"Bearer t"}, "Idempotency-Key": {"k"}, "If-Match": {`"3"`},
			headerRequest: {"mine"}, headerCaller: {"evenkeel://c/agent/h1 00"}, headerClient: {"6.6.6.6:6"}})
		if got.Method != "POST" || got.Path != "/v1/echo/a%2Fb" || got.Query != "x=1&y=%20" || got.Body != `{"a":1}` || got.By != "s2" || got.Proto != "HTTP/1.1" {
			t.Errorf("%+v", got)
		}
		if h := got.Header; h.Get("Authorization") != "Bearer t" || h.Get("Idempotency-Key") != "k" || h.Get("If-Match") != `"3"` || h.Get(headerRequest) != "mine" || h.Get(headerCaller) != "" || h.Get(headerClient) != "" {
			t.Errorf("%+v", h)
		}
		if !strings.HasPrefix(got.Remote, "127.0.0.1:") {
			t.Errorf("client %s", got.Remote)
		}
		if h := resp.Header; resp.StatusCode != http.StatusAccepted || len(h.Values(headerRequest)) != 1 || h.Get(headerRequest) != "mine" || len(h.Values("X-Content-Type-Options")) != 1 || h.Get("Evenkeel-Index") != "12" {
			t.Errorf("%d %+v", resp.StatusCode, h)
		}
	}
	if resp, got := ask("GET", "/v1/echo/", "", nil); got.Header.Get(headerRequest) != "made-here" || resp.Header.Get(headerRequest) != "made-here" {
		t.Errorf("the request's id is lost: %+v %+v", got.Header, resp.Header)
	}

	t.Run("events", func(t *testing.T) {
		resp, err := client.Get(base + "/v1/events")
		if err == nil {
			t.Cleanup(func() { _ = resp.Body.Close() })
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		for _, want := range []string{"one", "two"} {
			more <- want
			if got, err := lines.ReadString('\n'); err != nil || got != "data: "+want+"\n" { // before the next is sent
				t.Fatalf("%q, %v", got, err)
			}
			_, _ = lines.ReadString('\n')
		}
		close(more)
		if _, err := io.ReadAll(lines); err != nil {
			t.Error(err)
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, base+"/v1/socket", &websocket.DialOptions{HTTPClient: &http.Client{Transport: client.Transport}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.Write(ctx, websocket.MessageBinary, []byte("me")); err != nil {
			t.Fatal(err)
		}
		if _, got, err := ws.Read(ctx); err != nil || string(got) != "heard me" {
			t.Errorf("%q, %v", got, err)
		}
		_ = ws.CloseNow()
	})
	problem := func(method, path, body string) Problem {
		t.Helper()
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.Header.Get("Content-Type") != problemMediaType {
			t.Fatal(err)
		}
		return p
	}
	if p := problem("POST", "/v1/ball", "{}"); p.Type != kindNoLeader || !strings.Contains(p.Detail, "s2") {
		t.Errorf("handed on twice: %+v", p)
	}
	to = ""
	if p := problem("GET", "/v1/echo/", ""); p.Type != kindNoLeader {
		t.Errorf("no server leads: %+v", p)
	}
	to = leader.at
	leader.stop()
	p := problem("POST", "/v1/echo/", "{}")
	if p.Type == kindTimeout { // over the connection that was open still: whether it arrived is unknown
		p = problem("POST", "/v1/echo/", "{}")
	}
	if p.Type != kindNoLeader {
		t.Errorf("the leader is gone: %+v", p)
	}
}

// The leader ends while it works on a request: the request's outcome is unknown.
func TestForwardLosesTheAnswer(t *testing.T) {
	s := newSite(t)
	api := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s.apis["s1"] = api
	leader := s.member("s1", true, false, PeersOptions{})
	second := s.member("s2", true, false, PeersOptions{})
	base, client := forwarding(t, second, func() string { return leader.at })
	for method, want := range map[string]int{"POST": http.StatusGatewayTimeout, "GET": http.StatusServiceUnavailable} {
		req, err := http.NewRequest(method, base+"/v1/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", method, resp.StatusCode, want)
		}
	}
}

// issuer gives what a CA does.
type issuer struct {
	ca     *pki.CA
	serial string // of the certificate that is renewed
	err    error  // of each renewal
}

func (i *issuer) Renew(_ context.Context, id pki.Identity, serial string, request []byte) (Certificate, error) {
	if i.serial = serial; i.err != nil {
		return Certificate{}, i.err
	}
	key, err := pki.KeyOfRequest(request)
	if err != nil {
		return Certificate{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	cert, err := i.ca.Issue(key, id, pki.Names{}, time.Now(), time.Hour, rand.Reader)
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{Cert: string(pki.EncodeCertificates(cert)), CA: string(i.ca.CertPEM())}, nil
}

func (i *issuer) Record(_ context.Context, _ pki.Identity, serial string, _ []byte) error {
	i.serial = serial
	return nil
}

func request(t *testing.T) (text, key []byte) {
	t.Helper()
	k, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = pki.NewRequest(k); err != nil {
		t.Fatal(err)
	}
	if key, err = pki.EncodeKey(k); err != nil {
		t.Fatal(err)
	}
	return text, key
}

// A member renews its certificate through a server that does not lead, and uses it at once.
func TestRenewCertificate(t *testing.T) {
	s := newSite(t)
	is := &issuer{ca: s.ca}
	leader := s.member("s1", true, false, PeersOptions{Issuer: is, Lead: func() Leading { return Leading{Here: true, Term: 1} }})
	second := s.member("s2", true, false, PeersOptions{Issuer: &issuer{}, Lead: func() Leading { return Leading{Address: leader.at} }})
	k := s.certificates(nil, "h1", false, true, time.Now(), time.Hour)
	client := NewClient(s.dialer(k), ClientOptions{Log: quiet()})
	defer client.Close()
	before := k.Leaf()
	text, key := request(t)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	got, err := client.RenewCertificate(ctx, second.at, text)
	if err != nil {
		t.Fatal(err)
	}
	if is.serial != pki.SerialOf(before) {
		t.Errorf("renewed %s, not %s", is.serial, pki.SerialOf(before))
	}
	if err := k.Replace(pki.Material{Cert: []byte(got.Cert), Key: key, CA: []byte(got.CA)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if k.Leaf().Equal(before) || k.Identity() != (pki.Identity{Cluster: clusterID, Name: "h1", Agent: true}) {
		t.Errorf("%v", k.Identity())
	}
	if _, err := client.RenewCertificate(ctx, second.at, []byte("x")); !errors.Is(err, ErrRefused) {
		t.Errorf("no request: %v", err)
	}
}

// The leader's refusals of a certificate reach the server that asked the member for the renewal: as things are, or too many. Another
// failure may be tried again.
func TestRenewNowRefused(t *testing.T) {
	s := newSite(t)
	is := &issuer{ca: s.ca}
	lead := s.member("s1", true, false, PeersOptions{Issuer: is, Lead: func() Leading { return Leading{Here: true, Term: 1} }})
	var member *member
	text, _ := request(t)
	member = s.member("h1", false, true, PeersOptions{RenewNow: func(ctx context.Context) (Renewed, error) {
		_, err := member.client.RenewCertificate(ctx, lead.at, text)
		return Renewed{}, err
	}})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for _, c := range []struct {
		err  error
		want Answer
	}{
		{fmt.Errorf("16 certificates: %w", state.ErrConflict), Conflict},
		{fmt.Errorf("three at once: %w", ErrThrottled), Busy},
		{errors.New("the disk is full"), NoAnswer},
	} {
		is.err = c.err
		_, err := lead.client.RenewNow(ctx, member.at, "h1")
		if said, detail := AnswerOf(err); err == nil || said != c.want || said != NoAnswer && !strings.Contains(detail, c.err.Error()) {
			t.Errorf("%v: %v, %v", c.err, said, err)
		}
	}
}

// Joining: the secret goes only to a server of the cluster with the token's CA.
func TestJoin(t *testing.T) {
	s := newSite(t)
	k := s.certificates(nil, "s1", true, true, time.Now(), time.Hour)
	var heard bytes.Buffer
	answer := func(w http.ResponseWriter, r *http.Request) {
		var ask JoinRequest
		if err := json.NewDecoder(io.TeeReader(r.Body, &heard)).Decode(&ask); err != nil || r.URL.Path != "/v1/cluster/join" || ask.Secret == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		cert, err := (&issuer{ca: s.ca}).Renew(r.Context(), pki.Identity{Cluster: clusterID, Name: ask.Name, Agent: true}, "", []byte(ask.Request))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(JoinAnswer{Cluster: clusterID, Certificate: cert, Servers: []string{"a:1"}})
	}
	serve := func(k *pki.CertificateStore) string {
		t.Helper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{GetCertificate: k.GetCertificate}}
		done := make(chan struct{})
		go func() { _ = srv.ServeTLS(listener, "", ""); close(done) }()
		t.Cleanup(func() { _ = srv.Close(); <-done })
		return listener.Addr().String()
	}
	token, err := pki.NewJoinToken(s.ca.Certificate(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, key := request(t)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	ask := JoinRequest{Name: "h9", Address: "h9:7480", Request: string(text)}
	got, err := Join(ctx, serve(k), token, ask, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := pki.FilesIn(t.TempDir())
	if err := files.Write(pki.Material{Cert: []byte(got.Cert), Key: key, CA: []byte(got.CA)}); err != nil {
		t.Fatal(err)
	}
	if joined, err := pki.OpenStore(files, false, time.Now()); err != nil || joined.Identity().Name != "h9" {
		t.Fatal(err)
	}
	if !strings.Contains(heard.String(), token.Secret) {
		t.Fatal("the secret did not arrive")
	}
	heard.Reset()
	other, err := pki.NewCA(clusterID, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	foreign := s.certificates(other, "s1", true, true, time.Now(), time.Hour)
	for what, at := range map[string]string{
		"another cluster":              serve(foreign),
		"an agent of the cluster":      serve(s.certificates(nil, "h1", false, true, time.Now(), time.Hour)),
		"one who shows our CA besides": serve(showing(t, foreign, s.ca)),
	} {
		if _, err := Join(ctx, at, token, ask, nil); !errors.As(err, new(*pki.Refusal)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if heard.Len() != 0 {
		t.Errorf("a stranger heard %q", heard.String())
	}
}

// showing a keeper's certificate with the CA of others at its end.
func showing(t *testing.T, k *pki.CertificateStore, ca *pki.CA) *pki.CertificateStore {
	t.Helper()
	pair, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	pair.Certificate = append(pair.Certificate[:1:1], ca.Certificate().Raw)
	return k
}
