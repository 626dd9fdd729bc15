package member_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
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
		case errors.Is(err, leader.ErrNoLeader), errors.Is(err, leader.ErrTimeout), errors.Is(err, leader.ErrConflict), errors.Is(err, node.ErrNotLeader), errors.Is(err, node.ErrRefused):
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
			_, err = member.Join(s.t.Context(), s.dirs[name], name, s.at[name], member.JoinOptions{Token: token, Addresses: leader.Servers(), Connect: s.connect})
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
	return testsite.Ready(v)
}

func (s *site) create(name string, count int, loss string) {
	s.t.Helper()
	vc := state.VC{Name: name, MinYield: -1, OnHostLoss: loss, Groups: []state.Group{{Name: "w", Count: count, CPU: 1, Memory: 512 * mib, Image: "tiny"}}}
	s.eventually(name+" is created", func() bool { // on a busy machine the leader may change meanwhile
		_, err := s.leader().Create(s.t.Context(), vc, leader.Call{IdempotencyKey: name})
		if err != nil && !errors.Is(err, leader.ErrNoLeader) && !errors.Is(err, leader.ErrTimeout) {
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
