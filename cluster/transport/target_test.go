package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/cluster/pki"
)

// targets that are not a path.
var targets = []string{
	"x:https://a/v1/about", "https:v1/about", "https://a/v1/about", "http://127.0.0.1/v1/about", "https://user:secret@a/v1/about", "*", "a:443",
	"x:/v1/about", "x:*",
}

// A request whose target is not a path is refused by the API, by the server of calls and by that of forwarded requests.
func TestTargets(t *testing.T) {
	s := newSite(t)
	var reached atomic.Int32
	s.apis["s1"] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	m := s.member("s1", true, true, PeersOptions{Lead: none, About: func() any { reached.Add(1); return 1 }})
	server := s.dialer(s.certificates(nil, "s2", true, false, time.Now(), time.Hour))
	for _, protocol := range []string{"http/1.1", ProtocolPeer, ProtocolForward} {
		for _, target := range targets {
			for _, method := range []string{"GET", "POST", "OPTIONS", "CONNECT"} {
				ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
				var conn *tls.Conn
				var err error
				if protocol == "http/1.1" {
					conn, err = over(t, m.at, &tls.Config{NextProtos: []string{protocol}})
				} else {
					conn, err = server.Dial(ctx, m.at, protocol, pki.Want{Server: true})
				}
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(waitLimit))
				if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, target); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("%s %s over %s: %v", method, target, protocol, err)
				}
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s %s over %s: %d", method, target, protocol, resp.StatusCode)
				}
				_ = conn.Close()
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}

// What a server forwards reaches the API of the leader, whatever its path, and never the calls between members.
func TestForwardedReachesTheAPIAlone(t *testing.T) {
	s := newSite(t)
	var calls atomic.Int32
	paths := make(chan string, 16)
	s.apis["s1"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.URL.EscapedPath() + " from " + r.RemoteAddr
		w.WriteHeader(http.StatusTeapot)
	})
	leader := s.member("s1", true, true, PeersOptions{Lead: none, About: func() any { calls.Add(1); return 1 }})
	follower := s.member("s2", true, false, PeersOptions{Lead: none})
	base, client := forwarding(t, follower, func() string { return leader.at })
	for _, path := range []string{"/v1/about", "//a/v1/about", "/%2e%2e/v1/about", "/v1/certificate", "/v1/hosts/s1/desired"} {
		conn, err := client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(waitLimit))
		// The client's address cannot be struck out, nor chosen.
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close, %s\r\n%s: 192.0.2.7:9\r\n\r\n", path, headerClient, headerClient)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusTeapot {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
		if got, want := <-paths, path+" from "+conn.LocalAddr().String(); got != want {
			t.Errorf("the API saw %q, want %q", got, want)
		}
		_ = conn.Close()
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d forwarded requests became calls between members", n)
	}
	agent := s.dialer(s.certificates(nil, "h9", false, true, time.Now(), time.Hour))
	if conn, err := agent.Dial(t.Context(), leader.at, ProtocolForward, pki.Want{Server: true}); err == nil {
		unanswered(t, conn, "GET /v1/vms HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	s.heard("the refusal of an agent that forwards", refusal(pki.NoRole))
}

// TestForwarderRefused: a leader that refuses the server that forwards does not refuse the client, which may ask another server; what the
// leader's API forbids the client is asked to it.
func TestForwarderRefused(t *testing.T) {
	s := newSite(t)
	s.apis["s1"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, kindForbidden, "the token may only read")
	})
	leader := s.member("s1", true, false, PeersOptions{})
	follower := s.member("s2", true, false, PeersOptions{})
	base, client := forwarding(t, follower, func() string { return leader.at })
	ask := func() (p Problem) {
		t.Helper()
		resp, err := client.Post(base+"/v1/images", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Status != resp.StatusCode {
			t.Fatalf("%d %+v: %v", resp.StatusCode, p, err)
		}
		return p
	}
	if p := ask(); p.Type != kindForbidden || p.Detail != "the token may only read" {
		t.Errorf("forbidden by the API: %+v", p)
	}
	s.revoke(pki.SerialOf(follower.certificates.Leaf()))
	if p := ask(); p.Type != kindNoLeader || !strings.Contains(p.Detail, "it refuses this server: certificate refused (revoked)") {
		t.Errorf("refused because of the server that forwards: %+v", p)
	}
	s.heard("the revocation", refusal(pki.Revoked))
}
