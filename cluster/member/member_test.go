package member_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/control"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/memnet"
	"evenkeel/test/patience"
	testsite "evenkeel/test/site"
)

const mib = 1 << 20

// bubble runs a test beside others, in simulated time: what waits takes no time, and no limit depends on the machine.
func bubble(t *testing.T, hosts int, f func(t *testing.T, s *site)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, hosts)
		s.network = &memnet.Network{}
		f(t, s)
	})
}

// site is members on loopback, each with a simulated host, over real TLS and Raft on disk.
type site struct {
	t       *testing.T
	network *memnet.Network // in place of loopback; nil: loopback
	world   *simulated.World
	dirs    map[string]string
	at      map[string]string
	up      map[string]*member.Member
	log     *slog.Logger

	agentOnly bool // of the members that are started next
	lease     time.Duration
	pki       pki.Files                   // of the operator's own
	gossip    map[string]string           // addresses of the members that gossip
	now       map[string]func() time.Time // clocks of members, by name; nil: the machine's
}

func newSite(t *testing.T, hosts int) *site {
	w, err := simulated.New(simulated.Options{Hosts: hosts, CPU: 8, Memory: 16 << 30, Timing: &simulated.Timing{Boot: time.Millisecond, Timeout: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, world: w, dirs: map[string]string{}, at: map[string]string{}, up: map[string]*member.Member{}, log: slog.New(slog.DiscardHandler)}
	if os.Getenv("EVENKEEL_TEST_LOG") != "" {
		s.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	t.TempDir() // directories are removed after the members have ended, which write in them
	t.Cleanup(func() {
		for _, m := range s.up {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		_ = w.Close()
	})
	return s
}

// api answers joins, as the public API does.
func api(m *member.Member) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if here, address := m.Leader(); !here {
			m.Client().Forward(w, r, address)
			return
		}
		var q transport.JoinRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a, err := m.Admit(r.Context(), q)
		switch {
		case errors.Is(err, control.ErrNoLeader), errors.Is(err, control.ErrTimeout), errors.Is(err, node.ErrNotLeader), errors.Is(err, node.ErrRefused):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
		default:
			_ = json.NewEncoder(w).Encode(a)
		}
	})
}

func (s *site) listen(name string) net.Listener {
	s.t.Helper()
	address := s.at[name]
	if address == "" {
		address = "127.0.0.1:0"
		if host, _, err := net.SplitHostPort(s.gossip[name]); err == nil {
			address = net.JoinHostPort(host, "0") // members find each other's gossip at the host of the port
		}
	}
	l, err := s.listenAt(address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.at[name] = l.Addr().String()
	if s.dirs[name] == "" {
		s.dirs[name] = s.t.TempDir()
	}
	return l
}

func (s *site) listenAt(address string) (net.Listener, error) {
	if s.network != nil {
		return s.network.Listen(address)
	}
	return net.Listen("tcp", address)
}

// connect to a member's port, below TLS.
func (s *site) connect(ctx context.Context, address string) (net.Conn, error) {
	if s.network != nil {
		return s.network.Dial(ctx, "tcp", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func (s *site) start(name string, l net.Listener) *member.Member {
	s.t.Helper()
	var clock func() lease.Instant
	if s.network != nil {
		clock = testsite.Steady
	}
	m, err := member.Start(context.Background(), member.Options{Dir: s.dirs[name], Listener: l, Connect: s.connect, Advertise: s.at[name], API: api, Log: s.log, Gossip: s.gossip[name],
		GossipAdvertise: s.gossip[name], GossipRotation: member.GossipRotation{Spread: 500 * time.Millisecond, Keep: time.Second}, AgentOnly: s.agentOnly, Lease: s.lease, PKI: s.pki, Now: s.now[name],
		Settings: state.DefaultSettings(), Version: "test", IfRemoved: "leave it, or let " + name + " in", Timers: node.Timers{Heartbeat: 700 * time.Millisecond},
		Autopilot: node.Autopilot{Every: 100 * time.Millisecond, Stable: 200 * time.Millisecond},
		Agent: agent.Options{Clock: clock, Hypervisor: s.world.Host(name), Boot: "1", SampleEvery: 50 * time.Millisecond,
			Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:  func(hypervisor.Capacity) int64 { return 32 * mib }}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.up[name] = m
	return m
}

func (s *site) stop(name string) {
	s.t.Helper()
	if err := s.up[name].Close(); err != nil {
		s.t.Error(err)
	}
	delete(s.up, name)
}

// first makes the cluster on h1.
func (s *site) first() *member.Member {
	s.t.Helper()
	l := s.listen("h1")
	if _, err := member.Init(s.dirs["h1"], "h1", s.at["h1"], true); err != nil {
		s.t.Fatal(err)
	}
	m := s.start("h1", l)
	s.eventually("h1 leads", func() bool { here, _ := m.Leader(); return here })
	return m
}

// join adds a member through any that is up.
func (s *site) join(name string, server bool) *member.Member {
	s.t.Helper()
	return s.joinAs(name, state.JoinToken{Server: server, Agent: true})
}

// joinAs joins a member with the roles of the token. On a busy machine the leader may change meanwhile, and the token may have
// been used all the same.
func (s *site) joinAs(name string, row state.JoinToken) *member.Member {
	s.t.Helper()
	l := s.listen(name)
	s.eventually(name+" joins", func() bool {
		leader := s.leader()
		token, _, err := leader.NewToken(s.t.Context(), time.Hour, row)
		if err == nil {
			_, err = member.Join(s.t.Context(), s.dirs[name], name, s.at[name], token, leader.Servers(), member.JoinOptions{Connect: s.connect})
		}
		var said *transport.Problem
		switch {
		case err == nil:
			return true
		case errors.As(err, &said) && said.Status == http.StatusForbidden:
			s.t.Fatal(err)
		}
		row.For = name
		return false
	})
	return s.start(name, l)
}

func (s *site) leader() (found *member.Member) {
	s.t.Helper()
	s.eventually("a leader", func() bool {
		for _, m := range s.up {
			if m.Identity().Server {
				if here, _ := m.Leader(); here {
					found = m
					return true
				}
			}
		}
		return false
	})
	return found
}

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	patience.Eventually(s.t, patience.Stall, what, s.doing, ok)
}

// doing is what the members do.
func (s *site) doing() any {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.up)) {
		m := s.up[name]
		if !m.Identity().Server {
			continue
		}
		here, address := m.Leader()
		out = append(out, fmt.Sprintf("%s leads: %t, follows %q", name, here, address))
		if here {
			nodes, _ := m.Nodes()
			for _, n := range nodes {
				out = append(out, fmt.Sprintf("%s votes: %t, healthy: %t", n.ID, n.Voter, n.Healthy))
			}
			if v, err := m.View(context.Background(), true); err == nil {
				out = append(out, testsite.Doing(v))
			}
		}
	}
	return out
}

// hosts that are ready, as the leader sees them.
func (s *site) ready() int {
	v, err := s.leader().View(s.t.Context(), false)
	if err != nil {
		return 0
	}
	n := 0
	for _, h := range v.Hosts() {
		if v.HostView(h).State == "ready" {
			n++
		}
	}
	return n
}

func (s *site) create(name string, count int, loss string) {
	s.t.Helper()
	vc := state.VC{Name: name, MinYield: -1, OnHostLoss: loss, Groups: []state.Group{{Name: "w", Count: count, CPU: 1, Memory: 512 * mib, Image: "tiny"}}}
	s.eventually(name+" is created", func() bool { // on a busy machine the leader may change meanwhile
		_, err := s.leader().Create(s.t.Context(), vc, control.Call{IdempotencyKey: name})
		if err != nil && !errors.Is(err, control.ErrNoLeader) && !errors.Is(err, control.ErrTimeout) {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

func (s *site) running(name string, count int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d VMs of %s run", count, name), func() bool {
		v, err := s.leader().View(s.t.Context(), false)
		if err != nil {
			return false
		}
		vc, _ := v.VCNamed(name)
		return v.VCView(vc).Count.Running == count
	})
}

// Three servers and a plain agent: VMs start on all, the leader goes, another one takes over, nothing of the VMs changes.
func TestCluster(t *testing.T) {
	bubble(t, 4, func(t *testing.T, s *site) {
		s.first()
		s.join("h2", true)
		s.join("h3", true)
		s.join("h4", false)
		s.eventually("three voters", func() bool {
			nodes, _ := s.leader().Nodes()
			n := 0
			for _, v := range nodes {
				if v.Voter {
					n++
				}
			}
			return n == 3
		})
		s.eventually("four hosts report", func() bool { return s.ready() == 4 })
		if _, _, err := s.leader().AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, control.Call{}); err != nil {
			t.Fatal(err)
		}
		s.create("a", 24, "keep")
		s.running("a", 24)

		old := s.leader().Identity().Name
		s.stop(old)
		s.eventually("another leader", func() bool { return s.leader().Identity().Name != old })
		s.create("b", 3, "keep")
		s.running("b", 3)
		s.start(old, s.listen(old))
		s.eventually("four hosts report again", func() bool { return s.ready() == 4 })
		s.create("c", 3, "keep")
		s.running("c", 3)
		if after := s.world.Audit(); len(after.Doubled) > 0 {
			t.Errorf("VMs in two places: %+v", after)
		}
		v, err := s.leader().View(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, vm := range v.VMs() {
			if vm.Generation != 1 {
				t.Errorf("VM %s was started again: %+v", vm.Name, vm)
			}
		}
		s.eventually("servers are registered as they are", func() bool {
			v, err := s.leader().View(t.Context(), false)
			if err != nil {
				return false
			}
			for _, row := range v.Members() {
				if row.Server && (row.Version != "test" || row.Format != state.FormatVersion || len(row.Serials) == 0) {
					return false
				}
			}
			return true
		})
	})
}

// A token works once; a removed member is not heard any more.
func TestJoinAndRemove(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		m := s.first()
		token, _, err := m.NewJoinToken(t.Context(), false, true, false, time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		l := s.listen("h2")
		if _, err := member.Join(t.Context(), s.dirs["h2"], "h2", s.at["h2"], token, m.Servers(), member.JoinOptions{Connect: s.connect}); err != nil {
			t.Fatal(err)
		}
		if _, err := member.Join(t.Context(), t.TempDir(), "h3", "127.0.0.1:1", token, m.Servers(), member.JoinOptions{Connect: s.connect}); err == nil {
			t.Error("a token let in two members")
		}
		s.start("h2", l)
		s.eventually("two hosts report", func() bool { return s.ready() == 2 })
		if err := m.Remove(t.Context(), "h2", false); err != nil {
			t.Fatal(err)
		}
		s.eventually("the refusal is an event", func() bool {
			for _, e := range m.State.Snapshot().EventsAfter(0, 0) {
				if e.Kind == "connection-refused" {
					return true
				}
			}
			return false
		})
		if _, ok := m.State.Snapshot().Host("h2"); ok {
			t.Error("the host of a removed member came back")
		}
	})
}

// A server without a vote follows the log and takes requests, however healthy it is.
func TestNonVotingServer(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		m := s.first()
		s.joinAs("h2", state.JoinToken{Server: true, Agent: true, NoVote: true})
		s.join("h3", true)
		s.eventually("h3 has its vote", func() bool {
			votes := map[string]bool{}
			nodes, _ := s.leader().Nodes()
			for _, n := range nodes {
				votes[n.ID] = n.Voter
			}
			if votes["h2"] {
				t.Fatal("h2 was given a vote")
			}
			return votes["h3"]
		})
		s.eventually("h2 follows", func() bool { return s.up["h2"].Index() >= m.Index() && m.Index() > 0 })
	})
}

// A server whose disk is full runs its agent alone: the host reports, and keeps its lease.
func TestAgentOnly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		s.first()
		s.join("h2", true)
		s.join("h3", true)
		s.eventually("three hosts report", func() bool { return s.ready() == 3 })
		s.eventually("three voters", func() bool { // or h2 would take the quorum with it
			nodes, _ := s.leader().Nodes()
			return !slices.ContainsFunc(nodes, func(n node.Server) bool { return !n.Voter }) && len(nodes) == 3
		})
		s.leader() // h2 may lead: then another one takes over
		s.stop("h2")
		s.agentOnly = true
		m := s.start("h2", s.listen("h2"))
		if m.State != nil {
			t.Error("the server runs")
		}
		s.eventually("h2 holds a lease", func() bool {
			v, err := s.leader().View(t.Context(), false)
			if err != nil {
				return false
			}
			h, _ := v.Host("h2")
			view := v.HostView(h)
			return view.State == "ready" && view.Lease == "held" && view.Heard >= 0 && view.Heard < time.Second
		})
	})
}

// A thief with the certificate of a server that was removed cannot pose as the leader to an agent that is lured to it, also not
// to one that has just been started and knows of no revocation yet. The cluster records the attempt.
func TestRemovedServerIsNoLeader(t *testing.T) {
	bubble(t, 4, func(t *testing.T, s *site) {
		m := s.first()
		s.joinAs("h2", state.JoinToken{Server: true, Agent: true, NoVote: true})
		s.join("h3", false)
		s.eventually("three hosts report", func() bool { return s.ready() == 3 })
		stolen, err := tls.LoadX509KeyPair(filepath.Join(s.dirs["h2"], "pki", "member.pem"), filepath.Join(s.dirs["h2"], "pki", "member.key"))
		if err != nil {
			t.Fatal(err)
		}
		s.stop("h2")
		if err := m.Remove(t.Context(), "h2", true); err != nil {
			t.Fatal(err)
		}
		serial := pki.SerialOf(stolen.Leaf)
		for _, name := range []string{"h1", "h3"} {
			s.eventually(name+" has the serial on disk", func() bool {
				list, err := pki.OpenRevoked(filepath.Join(s.dirs[name], "revoked.json"))
				return err == nil && list.Has(serial)
			})
		}
		s.join("h4", false)
		if list, err := pki.OpenRevoked(filepath.Join(s.dirs["h4"], "revoked.json")); err != nil || !list.Has(serial) {
			t.Errorf("a member that joined since does not know it: %v", err)
		}
		s.stop("h4")
		s.stop("h3")
		s.stop("h1")

		lure, err := s.listenAt("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var came, stayed atomic.Int32
		var thief sync.WaitGroup
		thief.Go(func() {
			for {
				c, err := lure.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{stolen}, NextProtos: []string{transport.ProtocolPeer}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13})
				if conn.HandshakeContext(t.Context()) == nil {
					if _, err := conn.Read(make([]byte, 1)); err == nil { // a client that takes it for a server asks it something
						stayed.Add(1)
					}
				}
				_ = c.Close()
			}
		})
		t.Cleanup(func() { _ = lure.Close(); thief.Wait() })
		servers, err := json.Marshal([]string{lure.Addr().String(), s.at["h1"]})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dirs["h3"], "servers.json"), servers, 0o600); err != nil {
			t.Fatal(err)
		}
		s.start("h3", s.listen("h3"))
		s.eventually("h3 comes to the thief", func() bool { return came.Load() > 0 })
		m = s.start("h1", s.listen("h1"))
		s.eventually("the cluster hears of it", func() bool {
			for _, e := range m.State.Snapshot().EventsAfter(0, 0) {
				if e.Kind == "connection-refused" && strings.Contains(e.Text, "by agent h3: ") && strings.Contains(e.Text, string(pki.Revoked)) && strings.Contains(e.Text, serial) {
					return true
				}
			}
			return false
		})
		if n := stayed.Load(); n > 0 {
			t.Errorf("it was taken for a server %d times", n)
		}
	})
}

// A host that is dead for good, with VMs that were deleted since, can be removed once an operator confirms that it is dead.
func TestRemoveDeadHost(t *testing.T) {
	bubble(t, 2, func(t *testing.T, s *site) {
		s.lease = 3 * time.Second
		m := s.first()
		s.join("h2", false)
		s.eventually("two hosts report", func() bool { return s.ready() == 2 })
		if _, _, err := m.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, control.Call{}); err != nil {
			t.Fatal(err)
		}
		s.create("a", 12, "keep")
		s.running("a", 12)
		s.stop("h2")
		if _, err := m.Delete(t.Context(), "a", control.Call{}); err != nil {
			t.Fatal(err)
		}
		s.eventually("what h1 had is gone", func() bool { return len(m.State.Snapshot().VMsOn("h1")) == 0 })
		if n := len(m.State.Snapshot().VMsOn("h2")); n == 0 {
			t.Fatal("h2 had no VM")
		}
		if err := m.Remove(t.Context(), "h2", false); !errors.Is(err, control.ErrConflict) || !strings.Contains(err.Error(), "confirm-dead h2") {
			t.Errorf("h2 may be alive: %v", err)
		}
		s.eventually("h2 is confirmed dead", func() bool { return m.ConfirmDead(t.Context(), "h2", "a test", "", false) == nil })
		if err := m.Remove(t.Context(), "h2", false); err != nil {
			t.Fatal(err)
		}
		if left := m.State.Snapshot(); len(left.VMs()) != 0 || len(left.VCs()) != 0 {
			t.Errorf("left: %+v, %+v", left.VMs(), left.VCs())
		}
	})
}

// A server whose certificate comes from a PKI of the operator's own goes on with what it has, also where members no longer
// believe the CA with which the cluster was made.
func TestOwnPKI(t *testing.T) {
	bubble(t, 1, func(t *testing.T, s *site) {
		m := s.first()
		principal := m.Identity()
		s.stop("h1")
		own, err := pki.NewCA("own", time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		names, err := pki.NamesOf("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := own.Issue(key.Public(), principal, names, time.Now(), time.Hour, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keyPEM, err := pki.EncodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s.pki = pki.FilesIn(t.TempDir())
		if err := s.pki.Write(pki.Material{Cert: pki.EncodeCertificates(cert), Key: keyPEM, CA: own.CertPEM()}); err != nil {
			t.Fatal(err)
		}
		m = s.start("h1", s.listen("h1"))
		s.eventually("h1 leads again, and its host reports", func() bool { return s.ready() == 1 })
		text, _, err := m.NewToken(t.Context(), time.Hour, state.JoinToken{Agent: true})
		if err != nil {
			t.Fatal(err)
		}
		token, err := pki.ParseJoinToken(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Admit(t.Context(), transport.JoinRequest{ID: token.ID, Secret: token.Secret, Name: "h2", Address: "127.0.0.1:1"}); !errors.Is(err, member.ErrNoCA) {
			t.Errorf("a certificate from a CA that is not believed: %v", err)
		}
	})
}
