package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"evenkeel/cluster/pki"
)

func none() Leading { return Leading{} }

// unanswered checks that a connection ends without a byte of application data, whatever is sent.
func unanswered(t *testing.T, conn net.Conn, say string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	_, _ = io.WriteString(conn, say)
	got, err := io.ReadAll(conn)
	if len(got) != 0 {
		t.Errorf("the port said %q", got)
	}
	if errors.Is(err, context.DeadlineExceeded) || (err != nil && errors.As(err, new(net.Error)) && err.(net.Error).Timeout()) {
		t.Errorf("the port left the connection open: %v", err)
	}
}

func TestPortRefusesStrangers(t *testing.T) {
	s := newSite(t)
	m := s.member("s1", true, true, PeersOptions{Lead: none})
	other, err := pki.NewCA(clusterID, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	revoked := s.certificates(nil, "h3", true, true, now, time.Hour)
	s.revoke(pki.SerialOf(revoked.Leaf()))
	for _, c := range []struct {
		what         string
		protocol     string
		certificates *pki.CertificateStore
		reason       pki.Reason
	}{
		{"no certificate, peer", ProtocolPeer, nil, pki.NoCertificate},
		{"no certificate, raft", ProtocolRaft, nil, pki.NoCertificate},
		{"wrong CA, peer", ProtocolPeer, s.certificates(other, "h1", true, true, now, time.Hour), pki.WrongCA},
		{"wrong CA, raft", ProtocolRaft, s.certificates(other, "h1", true, true, now, time.Hour), pki.WrongCA},
		{"expired", ProtocolPeer, s.certificates(nil, "h2", true, true, now.Add(-30*time.Minute), time.Minute), pki.Expired},
		{"not yet valid", ProtocolPeer, s.certificates(nil, "h2", true, true, now.Add(3*time.Hour), time.Hour), pki.NotYetValid},
		{"revoked, peer", ProtocolPeer, revoked, pki.Revoked},
		{"revoked, raft", ProtocolRaft, revoked, pki.Revoked},
		{"an agent as a server", ProtocolRaft, s.certificates(nil, "h4", false, true, now, time.Hour), pki.NoRole},
	} {
		t.Run(c.what, func(t *testing.T) {
			s.mu.Lock()
			s.refused = nil
			s.mu.Unlock()
			conf := &tls.Config{NextProtos: []string{c.protocol, "h2"}}
			if c.certificates != nil {
				conf.GetClientCertificate = c.certificates.GetClientCertificate
			}
			if conn, err := over(t, m.at, conf); err == nil { // in TLS 1.3 the client is done before the server
				unanswered(t, conn, "GET /v1/hosts/h1/desired HTTP/1.1\r\nHost: x\r\n\r\n")
			}
			s.heard("the refusal", refusal(c.reason))
		})
	}
	t.Run("a protocol of later times", func(t *testing.T) {
		if _, err := over(t, m.at, &tls.Config{NextProtos: []string{"ek-raft/9"}, GetClientCertificate: m.certificates.GetClientCertificate}); err == nil {
			t.Error("a connection without a protocol that is known")
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		if _, err := over(t, m.at, &tls.Config{NextProtos: []string{ProtocolPeer}, MaxVersion: tls.VersionTLS12, GetClientCertificate: m.certificates.GetClientCertificate}); err == nil {
			t.Error("members speak TLS 1.3")
		}
	})
	for what, say := range map[string]string{"plain HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "garbage": string(bytes.Repeat([]byte{0x16, 3, 1, 0xff}, 5000))} {
		t.Run(what, func(t *testing.T) {
			conn, err := net.Dial("tcp", m.at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(waitLimit))
			_, _ = io.WriteString(conn, say)
			got, _ := io.ReadAll(conn)
			if bytes.Contains(got, []byte("HTTP/1.1 200")) || len(got) > 7 && got[0] != 0x15 { // an alert is all that TLS says
				t.Errorf("the port said %q", got)
			}
		})
	}
}

func TestPortAPI(t *testing.T) {
	s := newSite(t)
	m := s.member("s1", true, false, PeersOptions{Lead: none})
	roots := m.certificates.Roots()
	for _, h2 := range []bool{false, true} {
		protocols := &http.Protocols{}
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: protocols}, Timeout: waitLimit}
		resp, err := client.Get("https://" + m.at + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := map[bool]string{false: "api over HTTP/1.1", true: "api over HTTP/2.0"}[h2]; string(body) != want {
			t.Errorf("got %q, want %q", body, want)
		}
		client.CloseIdleConnections()
	}
	conn, err := over(t, m.at, &tls.Config{MaxVersion: tls.VersionTLS12}) // no ALPN at all
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	if got, _ := io.ReadAll(conn); !bytes.Contains(got, []byte("api over HTTP/1.0")) {
		t.Errorf("got %q", got)
	}
	agent := s.member("h1", false, true, PeersOptions{})
	if _, err := over(t, agent.at, &tls.Config{NextProtos: []string{"http/1.1"}}); err == nil {
		t.Error("an agent that is no server has an API")
	}
}

func TestStreams(t *testing.T) {
	s := newSite(t)
	one, two := s.member("s1", true, false, PeersOptions{Lead: none}), s.member("s2", true, true, PeersOptions{Lead: none})
	out, err := one.port.Raft().Dial(two.at, waitLimit)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := two.port.Raft().Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if two.port.Raft().Addr().String() != two.at {
		t.Errorf("address %s", two.port.Raft().Addr())
	}
	if _, err := io.WriteString(out, "vote"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "vote" {
		t.Fatal(string(got), err)
	}
	// A removed server's streams end, on both sides' initiative.
	s.revoke(pki.SerialOf(one.certificates.Leaf()))
	two.port.Recheck()
	if _, err := io.ReadFull(in, got); err == nil {
		t.Error("the stream of a removed server goes on")
	}
	s.heard("the revocation", refusal(pki.Revoked))
	if conn, err := one.port.Raft().Dial(two.at, waitLimit); err == nil {
		unanswered(t, conn, "vote")
	}
	two.stop()
	if _, err := two.port.Raft().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed, but: %v", err)
	}
	if _, err := one.port.Raft().Dial(two.at, waitLimit); err == nil {
		t.Error("dialed what is closed")
	}
}

func TestDialRefusesOtherMembers(t *testing.T) {
	s := newSite(t)
	server, agent := s.member("s1", true, false, PeersOptions{Lead: none}), s.member("h1", false, true, PeersOptions{})
	d := s.dialer(s.certificates(nil, "s2", true, false, time.Now(), time.Hour))
	dial := func(at string, want pki.Want) error {
		conn, err := d.Dial(context.Background(), at, ProtocolPeer, want)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	for what, c := range map[string]struct {
		at     string
		want   pki.Want
		reason pki.Reason
	}{
		"right":                {server.at, pki.Want{Server: true, Name: "s1"}, ""},
		"an agent as a server": {agent.at, pki.Want{Server: true}, pki.NoRole},
		"another server":       {server.at, pki.Want{Server: true, Name: "s3"}, pki.WrongName},
	} {
		err := dial(c.at, c.want)
		if (c.reason == "" && err != nil) || (c.reason != "" && !refusal(c.reason)(err)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.revoke(pki.SerialOf(server.certificates.Leaf()))
	if err := dial(server.at, pki.Want{Server: true}); !refusal(pki.Revoked)(err) {
		t.Errorf("a revoked server: %v", err)
	}
	strange := newSite(t)
	foreign := strange.member("s1", true, false, PeersOptions{Lead: none})
	if err := dial(foreign.at, pki.Want{Server: true}); !refusal(pki.WrongCA)(err) {
		t.Errorf("a server of another cluster: %v", err)
	}
}

// A client that does not finish a handshake is cut off after a time; of too many the oldest at once. Neither keeps a member
// out.
func TestSlowHandshakes(t *testing.T) {
	s := newSite(t)
	m := s.member("s1", true, false, PeersOptions{Lead: none}, func(o *PortOptions) {
		o.Connections = NewConnections(Limits{Handshakes: 4})
	})
	var slow []net.Conn
	for range 8 {
		conn, err := net.Dial("tcp", m.at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		slow = append(slow, conn)
		s.eventually("the connection", func() bool {
			m.port.conns.mu.Lock()
			defer m.port.conns.mu.Unlock()
			last := m.port.conns.all[handshaking].Back()
			return last != nil && last.Value.(*connection).below.RemoteAddr().String() == conn.LocalAddr().String()
		})
	}
	for _, conn := range slow[:4] {
		unanswered(t, conn, "")
	}
	client := s.dialer(s.certificates(nil, "s2", true, false, time.Now(), time.Hour))
	conn, err := client.Dial(context.Background(), m.at, ProtocolRaft, pki.Want{Server: true})
	if err != nil {
		t.Fatalf("a member among those who never finish: %v", err)
	}
	_ = conn.Close()

	quick := s.member("s3", true, false, PeersOptions{Lead: none}, func(o *PortOptions) { o.HandshakeTimeout = 50 * time.Millisecond })
	late, err := net.Dial("tcp", quick.at)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	unanswered(t, late, "\x16")
	s.heard("the time-out", func(err error) bool { return errors.Is(err, context.DeadlineExceeded) })
}

// A renewed certificate is shown from then on, and what is open goes on.
func TestRenewalKeepsConnections(t *testing.T) {
	s := newSite(t)
	one, two := s.member("s1", true, false, PeersOptions{Lead: none}), s.member("s2", true, false, PeersOptions{Lead: none})
	out, err := one.port.Raft().Dial(two.at, waitLimit)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := two.port.Raft().Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, m := range []*member{one, two} {
		if err := m.certificates.Replace(s.material(s.ca, m.certificates.Identity().Name, true, false, time.Now(), time.Hour), time.Now()); err != nil {
			t.Fatal(err)
		}
		m.port.Recheck()
	}
	if _, err := io.WriteString(in, "still"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(out, got); err != nil || string(got) != "still" {
		t.Fatal(string(got), err)
	}
	again, err := one.dialer.Dial(context.Background(), two.at, ProtocolPeer, pki.Want{Server: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.ConnectionState().PeerCertificates[0].Equal(two.certificates.Leaf()) {
		t.Error("the old certificate is shown")
	}
}
