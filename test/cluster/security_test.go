package cluster

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/pki"
	"evenkeel/test/patience"
)

// desk is a vcd beside the hosts: an agent with a simulated hypervisor, on the hosts' network.
type desk struct {
	dir string
	s   *site
}

func newDesk(t *testing.T, s *site, name string, port int) *desk {
	t.Helper()
	d := &desk{dir: t.TempDir(), s: s}
	conf := fmt.Sprintf("name: %s\nagent: true\nlisten: %s:%d\ngossip: %s:%d\nhypervisor: simulated\ndataDir: %s/data\nsocket: %s/vcd.sock\n",
		name, s.lab.Desk(), port, s.lab.Desk(), port+1, d.dir, d.dir)
	if err := os.WriteFile(filepath.Join(d.dir, "vcd.yaml"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(d.dir, "vcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.lab.Command(context.Background(), filepath.Join(s.bin, "vcd"), "run", "--config", filepath.Join(d.dir, "vcd.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ends is not what is tested
		_ = log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", name, said[max(0, len(said)-2000):])
		}
	})
	eventually(t, 20*time.Second, name+" listens on its local socket", func(context.Context) error {
		_, err := os.Stat(filepath.Join(d.dir, "vcd.sock"))
		return err
	})
	return d
}

func (d *desk) join(ctx context.Context, at *host, token string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.s.bin, "vcctl"), "cluster", "join", "--socket", filepath.Join(d.dir, "vcd.sock"), at.Port())
	cmd.Stdin = strings.NewReader(token)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// certificate of the member at the desk.
func (d *desk) certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	f := pki.FilesIn(filepath.Join(d.dir, "data", "pki"))
	c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// issue a certificate of a CA, as a thief of its key would, or as another cluster.
func issue(t *testing.T, ca *pki.CA, id pki.Identity, at time.Time, life time.Duration) *tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ca.Issue(key.Public(), id, pki.Names{}, at, life, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

// network is a place to connect from: the desk or a host.
type network interface {
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// knock speaks a protocol of members to a host, with a certificate or none, and asks for a path. It
// returns the status of the answer, or why there is none.
func knock(from network, h *host, protocol string, cert *tls.Certificate, path string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.Within(patience.Stall))
	defer cancel()
	raw, err := from.Dial(ctx, "tcp", h.Port())
	if err != nil {
		return 0, fmt.Errorf("not even connected: %w", err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience.Within(patience.Stall)))
	conf := &tls.Config{NextProtos: []string{protocol}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // it is the other side that is to verify
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	c := tls.Client(raw, conf)
	if err := c.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, h.Port()); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// strangers are what was refused, for strangersReported.
type strangers struct {
	door  *host // where
	after uint64
	said  [][2]string // kinds of events that there are to be, and parts of their texts
}

// A client without a right is refused over the real network. What one address is refused within a minute is one event at its
// end: strangersReported looks at the events when other tests have used that minute.
func strangersRefused(t *testing.T, s *site, tab *table) {
	door := s.leader(t) // which alone knows of the refusals until the minute is over
	refused := 0
	must403 := func(what string, status int, err error) {
		t.Helper()
		if err != nil || status != http.StatusForbidden {
			t.Errorf("%s: status %d, %v; want it forbidden", what, status, err)
		}
		refused++
	}
	shut := func(what string, status int, err error) {
		t.Helper()
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "not even connected") {
			t.Errorf("%s: status %d, %v; want the connection ended", what, status, err)
		}
		refused++
	}
	s.strangers = &strangers{door: door, after: s.lastEvent(t)}
	said := func(kind, part string) { s.strangers.said = append(s.strangers.said, [2]string{kind, part}) }

	// Strangers: no TLS, no certificate, that of another cluster, of another CA, one that is over.
	raw, err := s.lab.Dial(t.Context(), "tcp", door.Port())
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.SetDeadline(time.Now().Add(patience.Within(patience.Stall)))
	_, _ = raw.Write([]byte("GET /v1/vms HTTP/1.1\r\nHost: h\r\n\r\n"))
	b := make([]byte, 4096)
	n, err := raw.Read(b)
	if strings.HasPrefix(string(b[:n]), "HTTP/1.1 2") || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without TLS it says %q, %v", b[:n], err)
	}
	_ = raw.Close()
	refused++
	caPEM, err1 := os.ReadFile(filepath.Join(s.hosts[0].State(), "pki", "ca.pem"))
	caKey, err2 := os.ReadFile(filepath.Join(s.hosts[0].State(), "ca.key"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(caPEM, caKey)
	if err != nil {
		t.Fatal(err)
	}
	cluster := must(t, s, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) }).ID
	if id, err := pki.IdentityOf(func() *tls.Certificate {
		c, err := tls.LoadX509KeyPair(filepath.Join(door.State(), "pki", "member.pem"), filepath.Join(door.State(), "pki", "member.key"))
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}().Leaf); err == nil {
		cluster = id.Cluster
	}
	own, err := pki.NewCA(cluster, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h1 := pki.Identity{Cluster: cluster, Name: "h1", Server: true, Agent: true}
	for _, protocol := range []string{"ek-raft/1", "ek-peer/1"} {
		status, err := knock(s.lab, door, protocol, nil, "/v1/about")
		shut(protocol+" without a certificate", status, err)
		status, err = knock(s.lab, door, protocol, issue(t, own, h1, time.Now(), time.Hour), "/v1/about")
		shut(protocol+" with a certificate of another CA", status, err)
		status, err = knock(s.lab, door, protocol, issue(t, ca, h1, time.Now().Add(-2*time.Hour), time.Hour), "/v1/about")
		shut(protocol+" with a certificate that is over", status, err)
		elsewhere := h1
		elsewhere.Cluster = "elsewhere"
		status, err = knock(s.lab, door, protocol, issue(t, ca, elsewhere, time.Now(), time.Hour), "/v1/about")
		shut(protocol+" with a certificate of another cluster", status, err)
	}
	for _, reason := range []pki.Reason{pki.NoCertificate, pki.WrongCA, pki.Expired, pki.WrongCluster} {
		said("connection-refused", string(reason))
	}
	// A client that knows another CA does not talk to the server at all; one without a token gets no data.
	wrong := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(wrong, own.CertPEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client(t, door, "ekt_guess", wrong).VMs(t.Context(), "", ""); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client with a wrong CA: %v", err)
	}
	refused++
	if _, err := s.client(t, door, "ekt_guess", filepath.Join(door.Config(), "root", "evenkeel", "ca.pem")).VMs(t.Context(), "", ""); !client.IsProblem(err, v1.ProblemUnauthorized) {
		t.Errorf("a client with a wrong token: %v", err)
	}
	refused++
	// Gossip sends nothing to a program that does not have its key.
	gossip, err := s.lab.Dial(t.Context(), "udp", door.Address()+":7481")
	if err != nil {
		t.Fatal(err)
	}
	for _, packet := range []string{"\x00ping", "\x05hello", strings.Repeat("x", 200)} {
		_, _ = gossip.Write([]byte(packet))
	}
	_ = gossip.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := gossip.Read(b); err == nil {
		t.Errorf("gossip answers a stranger with %q", b[:n])
	}
	_ = gossip.Close()
	refused++

	// A token lets one in, once.
	token := s.leader(t).vcctl(t, "", "cluster", "join-token", "--agent", "--ttl", "5m")
	member, thief := newDesk(t, s, "desk", 7480), newDesk(t, s, "thief", 7490)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := member.join(ctx, door, token); err != nil {
		t.Fatal(err)
	}
	if err := thief.join(ctx, door, token); err == nil {
		t.Error("a join token let two members in")
	} else {
		t.Logf("the second use of a join token: %v", err)
	}
	refused++
	said("join-refused", "")

	// An agent is no server, and no other host. From addresses of which nothing was refused so far: an event has room for some
	// of the reasons only.
	cert, from := member.certificate(t), s.others(door)
	status, err := knock(from[0], door, "ek-raft/1", cert, "/v1/about")
	shut("an agent's certificate for Raft", status, err)
	said("connection-refused", string(pki.NoRole))
	status, err = knock(from[1], door, "ek-peer/1", cert, "/v1/hosts/h2/desired")
	must403("an agent's certificate for another host", status, err)
	said("connection-refused", "speak for host")
	if status, err := knock(s.lab, door, "ek-peer/1", cert, "/v1/nothing"); err != nil || status != http.StatusNotFound {
		t.Errorf("an agent's certificate is good for nothing: %d, %v", status, err) // or the rest would prove nothing
	}

	// No server accepts any more what a removed member had.
	s.leader(t).vcctl(t, "", "cluster", "remove", "desk")
	for _, h := range s.hosts {
		eventually(t, 10*time.Second, h.Name+" refuses the removed member", func(context.Context) error {
			switch status, err := knock(s.others(h)[0], h, "ek-peer/1", cert, "/v1/hosts/desk/desired"); {
			case err == nil:
				return fmt.Errorf("status %d", status)
			case strings.Contains(err.Error(), "not even connected"):
				return err
			}
			return nil
		})
		refused++
	}
	said("connection-refused", string(pki.Revoked))
	tab.add("strangers, thieves and removed members at the port", "%d attempts, all refused", refused)
}

// spared is a host, not the given one, that need not report strangers yet.
func (s *site) spared(not *host) *host {
	if s.strangers != nil {
		return s.others(not, s.strangers.door)[0]
	}
	return s.others(not)[0]
}

// strangersReported: the events say what strangersRefused was refused.
func strangersReported(t *testing.T, s *site, tab *table) {
	if s.strangers == nil {
		t.Skip("StrangersRefused did not run")
	}
	for _, x := range s.strangers.said {
		e := s.event(t, 90*time.Second, s.strangers.after, x[0], "", x[1])
		t.Logf("event %s of %s: %s", e.Kind, e.Name, e.Text)
	}
	tab.add("their refusals", "%d kinds of them in the events", len(s.strangers.said))
}
