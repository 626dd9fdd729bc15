package transport

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
	"evenkeel/test/patience"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(benchEnv); dir != "" {
		if err := leaderProcess(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const clusterID = "01TESTCLUSTER"

// waitLimit bounds calls that are answered in a moment.
var waitLimit = patience.Within(patience.Stall)

// site is a cluster's CA, and what every member of it shares.
type site struct {
	t   testing.TB
	ca  *pki.CA
	net *memory // nil: TCP on loopback
	// apis are the public APIs of members, by name; others have one that says by which protocol it was asked.
	apis map[string]http.Handler

	mu      sync.Mutex
	revoked map[string]bool
	refused []error
}

func newSite(t testing.TB) *site {
	ca, err := pki.NewCA(clusterID, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, ca: ca, apis: map[string]http.Handler{}, revoked: map[string]bool{}}
}

func (s *site) isRevoked(serial string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked[serial]
}

func (s *site) revoke(serial string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked[serial] = true
}

func (s *site) hear(_ net.Addr, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, why)
}

// heard waits for a refusal that is wanted.
func (s *site) heard(what string, want func(error) bool) {
	s.t.Helper()
	s.eventually(what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.refused, want)
	})
}

func refusal(reason pki.Reason) func(error) bool {
	return func(err error) bool {
		var r *pki.Refusal
		return errors.As(err, &r) && r.Reason == reason
	}
}

// eventually polls, for what no event reports.
func (s *site) eventually(what string, satisfied func() bool) {
	s.t.Helper()
	patience.Eventually(s.t, patience.Stall, what, func() any {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprintf("refused: %v", s.refused)
	}, satisfied)
}

// certificates of a new certificate by a CA, nil: the site's own.
func (s *site) certificates(ca *pki.CA, name string, server, ag bool, now time.Time, life time.Duration) *pki.CertificateStore {
	s.t.Helper()
	if ca == nil {
		ca = s.ca
	}
	files := pki.FilesIn(s.t.TempDir())
	if err := files.Write(s.material(ca, name, server, ag, now, life)); err != nil {
		s.t.Fatal(err)
	}
	k, err := pki.OpenStore(files, false, now)
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (s *site) material(ca *pki.CA, name string, server, ag bool, now time.Time, life time.Duration) pki.Material {
	s.t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	names, err := pki.NamesOf("127.0.0.1:0", "localhost:0")
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := ca.Issue(&key.PublicKey, pki.Identity{Cluster: clusterID, Name: name, Server: server, Agent: ag}, names, now, life, rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := pki.EncodeKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return pki.Material{Cert: pki.EncodeCertificates(cert), Key: text, CA: ca.CertPEM()}
}

func (s *site) security(k *pki.CertificateStore) Security {
	return Security{Certificates: k, Revoked: s.isRevoked, Refused: s.hear}
}

// dialer of a member with that keeper.
func (s *site) dialer(k *pki.CertificateStore) *Dialer {
	d := &Dialer{Security: s.security(k), HandshakeTimeout: waitLimit}
	if s.net != nil {
		d.Connect = s.net.dial
	}
	s.t.Cleanup(d.Close)
	return d
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// member of a site, with its port open.
type member struct {
	*site
	certificates *pki.CertificateStore
	dialer       *Dialer
	port         *Port
	peers        *Peers
	client       *Client
	at           string
	stop         func()
}

func (s *site) listen(name string) (net.Listener, error) {
	if s.net != nil {
		return s.net.listen(name), nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// member starts one; nil functions of o are filled in.
func (s *site) member(name string, server, ag bool, o PeersOptions, change ...func(*PortOptions)) *member {
	s.t.Helper()
	k := s.certificates(nil, name, server, ag, time.Now(), time.Hour)
	m := &member{site: s, certificates: k, dialer: s.dialer(k)}
	listener, err := s.listen(name)
	if err != nil {
		s.t.Fatal(err)
	}
	m.at = listener.Addr().String()
	o.Security, o.Dialer, o.Log = s.security(k), m.dialer, quiet()
	if s.net == nil && o.Heartbeat == 0 { // real time is dear
		o.Heartbeat = 250 * time.Millisecond
	}
	po := PortOptions{Security: s.security(k), Listener: listener, Advertise: m.at, Dialer: m.dialer, Log: quiet(), HandshakeTimeout: waitLimit}
	for _, c := range change {
		c(&po)
	}
	m.port, m.peers = NewPort(po), NewPeers(o)
	m.client = NewClient(m.dialer, ClientOptions{Log: quiet()})
	var api http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("api over " + r.Proto))
	})
	if own := s.apis[name]; own != nil {
		api = own
	}
	forwarded := NewForwarded(ForwardedOptions{Security: o.Security, API: api, Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.port.Serve(ctx); err != nil {
			s.t.Error(err)
		}
	})
	wg.Go(func() {
		if err := m.peers.Serve(ctx, m.port.Peers()); err != nil {
			s.t.Error(err)
		}
	})
	wg.Go(func() {
		if err := forwarded.Serve(ctx, m.port.Forwarded()); err != nil {
			s.t.Error(err)
		}
	})
	wg.Go(func() { _ = ServeAPI(ctx, api, m.port.API(), quiet()) })
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			m.client.Close()
			wg.Wait()
			m.dialer.Close()
		})
	}
	s.t.Cleanup(m.stop)
	return m
}

// agent of a host that is connected to those servers.
func (s *site) agent(k *pki.CertificateStore, servers ...string) *Agent {
	return s.agentWith(k, func(*AgentOptions) {}, servers...)
}

// agentWith other options.
func (s *site) agentWith(k *pki.CertificateStore, change func(*AgentOptions), servers ...string) *Agent {
	d := s.dialer(k)
	o := AgentOptions{Host: k.Identity().Name, Dialer: d, Servers: servers, Rand: mathrand.New(mathrand.NewPCG(1, 2)), Log: quiet()}
	if s.net == nil { // real time is dear, but a machine that stands still for seconds must not end a stream
		o.Silence, o.FirstBackoff, o.LastBackoff = waitLimit, 5*time.Millisecond, 50*time.Millisecond
	}
	change(&o)
	a := NewAgent(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	s.t.Cleanup(func() { cancel(); <-done; d.Close() })
	return a
}

// brain is a leader's side of agents, in memory.
type brain struct {
	mu      sync.Mutex
	desired map[string]agent.Desired
	watch   map[string]chan struct{}
	reports []agent.Report
	renewed []agent.Renewal
	fail    error
}

func newBrain() *brain {
	return &brain{desired: map[string]agent.Desired{}, watch: map[string]chan struct{}{}}
}

func (b *brain) set(host string, d agent.Desired) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.desired[host] = d
	if c := b.watch[host]; c != nil {
		close(c)
		delete(b.watch, host)
	}
}

func (b *brain) Desired(_ context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch[host] == nil {
		b.watch[host] = make(chan struct{})
	}
	return b.desired[host], b.watch[host], b.fail
}

func (b *brain) Report(_ context.Context, r agent.Report) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail == nil {
		b.reports = append(b.reports, r)
	}
	return b.fail
}

func (b *brain) Renew(_ context.Context, r agent.Renewal) (agent.Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renewed = append(b.renewed, r)
	return agent.Grant{Epoch: 1, Term: 2, Index: 3, Lease: 20 * time.Second, Enforce: r.Enforcing}, b.fail
}

func (b *brain) Permit(_ context.Context, q agent.PermitRequest) (agent.Permit, error) {
	return agent.Permit{Epoch: 1, Term: 2, Granted: q.Starts}, nil
}

func (b *brain) taken() []agent.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reports)
}

func (b *brain) renewals() []agent.Renewal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.renewed)
}

// lead says which server leads, as one server knows it.
type lead struct {
	mu  sync.Mutex
	now Leading
}

func (l *lead) set(here bool, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if here != l.now.Here {
		l.now.Term++
	}
	l.now.Here, l.now.Address = here, address
}

func (l *lead) ask() Leading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// over dials a port as any client might.
func over(t testing.TB, address string, conf *tls.Config) (*tls.Conn, error) {
	t.Helper()
	conf.InsecureSkipVerify = true
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: waitLimit}, "tcp", address, conf)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(waitLimit))
	}
	return conn, err
}
