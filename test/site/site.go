// Package site is a cluster of many members in one process, for tests: real members, each with its log on disk and
// a TLS port on loopback, the public API on it, and a simulated host behind every agent.
// It is for tests of what stands on top of members, API and command line; it proves nothing about real hosts.
package site

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"evenkeel/api/server"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/memnet"
	"evenkeel/test/patience"
)

// Token is the admin token of every site, and TokenID its id.
const (
	Token   = "ekt_" + TokenID + ".c2l0ZSBvZiB0ZXN0cywgd2l0aG91dCBzZWNyZXRzISE"
	TokenID = "7e57517e7e57517e"
)

// Options of a site.
type Options struct {
	Dir   string // of the members' directories
	Hosts int    // that the world has: h1, h2, ...
	// CPU in cores and Memory in bytes of each host; 0 = 8 and 16 GiB. All of it may be used.
	CPU    float64
	Memory int64
	Lease  time.Duration
	Fence  leader.Fence
	// Backups of every server, into a directory of its own; 0 = none.
	Backups time.Duration
	// Network of the members and their clients; nil: TCP on loopback. In a bubble of testing/synctest it must be one in memory.
	Network *memnet.Network
	// Log of the members; nil: none.
	Log *slog.Logger
	// OpenID makes what verifies tokens of OpenID Connect on a server; nil: nothing does.
	OpenID func() server.OpenID
}

// heartbeat is the members' Raft timeout. A leader that does not hear of the others for half of it, because the
// machine is busy, leads no more. Tests of API and command line are not about that.
const heartbeat = 3 * time.Second

// Steady is a clock of leases for bubbles of testing/synctest: the usual one, CLOCK_BOOTTIME, goes on while simulated time stands still.
func Steady() lease.Instant { return lease.Instant(time.Now().UnixNano()) }

// Site is members on loopback. It is not safe for concurrent use.
type Site struct {
	o     Options
	World *simulated.World
	up    map[string]*member.Member
	at    map[string]string // addresses, kept over a stop

	trails map[string]*audit.Log // of those that are up
}

// New site without members.
func New(o Options) (*Site, error) {
	if o.CPU == 0 {
		o.CPU, o.Memory = 8, 16<<30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w, err := simulated.New(simulated.Options{Hosts: o.Hosts, CPU: o.CPU, Memory: o.Memory,
		Timing: &simulated.Timing{Boot: time.Millisecond, Timeout: 5 * time.Second, Beat: 20 * time.Millisecond}})
	if err != nil {
		return nil, err
	}
	return &Site{o: o, World: w, up: map[string]*member.Member{}, at: map[string]string{}, trails: map[string]*audit.Log{}}, nil
}

// Close everything.
func (s *Site) Close() error {
	var errs []error
	for name := range s.up {
		errs = append(errs, s.Stop(name))
	}
	return errors.Join(append(errs, s.World.Close())...)
}

// Dir of a member.
func (s *Site) Dir(name string) string { return filepath.Join(s.o.Dir, name) }

// CAFile of the cluster, as h1 has it.
func (s *Site) CAFile() string { return filepath.Join(s.Dir("h1"), "pki", "ca.pem") }

// Address of a member's port, host:port.
func (s *Site) Address(name string) string { return s.at[name] }

// Member that is up; nil if it is not.
func (s *Site) Member(name string) *member.Member { return s.up[name] }

// Up are the names of the members that are up.
func (s *Site) Up() []string {
	var out []string
	for name := range s.up {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (s *Site) listen(name string) (net.Listener, error) {
	address := s.at[name]
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := s.listenAt(address)
	if err != nil {
		return nil, err
	}
	s.at[name] = l.Addr().String()
	return l, os.MkdirAll(s.Dir(name), 0o700)
}

func (s *Site) listenAt(address string) (net.Listener, error) {
	if s.o.Network != nil {
		return s.o.Network.Listen(address)
	}
	return net.Listen("tcp", address)
}

// Connect to a member's port, below TLS.
func (s *Site) Connect(ctx context.Context, address string) (net.Conn, error) {
	return s.Dial(ctx, "tcp", address)
}

// Dial is Connect for clients that name a network.
func (s *Site) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.o.Network != nil {
		return s.o.Network.Dial(ctx, network, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

func (s *Site) start(name string, l net.Listener) error {
	trail, err := audit.Open(audit.Options{Path: filepath.Join(s.Dir(name), "audit.log"), Server: name, Log: s.o.Log})
	if err != nil {
		return err
	}
	o := member.Options{Dir: s.Dir(name), Audit: trail, Listener: l, Connect: s.Connect, Advertise: s.at[name], Log: s.o.Log, Settings: state.DefaultSettings(), Version: "test",
		Lease: s.o.Lease, Fence: s.o.Fence, Timers: node.Timers{Heartbeat: patience.Within(heartbeat)},
		Autopilot: node.Autopilot{Every: 100 * time.Millisecond, Stable: 200 * time.Millisecond},
		API: func(m *member.Member) http.Handler {
			o := server.Options{Members: m, Version: "test", Logger: s.o.Log.With("on", name), Audit: m.Trail()}
			if s.o.OpenID != nil {
				o.OpenID = s.o.OpenID()
			}
			return server.New(m, o)
		},
		Agent: agent.Options{Hypervisor: s.World.Host(name), Boot: "1", MigrateURI: name, SampleEvery: time.Second,
			Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:  func(hypervisor.Capacity) int64 { return 0 }}}
	if s.o.Network != nil {
		o.Agent.Clock = Steady
	}
	if s.o.Backups > 0 {
		o.Backups = member.Backups{Dir: filepath.Join(s.Dir(name), "snapshots"), Every: s.o.Backups, Latest: 3, Days: 1}
	}
	m, err := member.Start(context.Background(), o)
	if err != nil {
		return errors.Join(err, trail.Close())
	}
	s.up[name], s.trails[name] = m, trail
	return nil
}

// First makes the cluster on h1, with the admin token and an image "tiny", and waits until it leads.
func (s *Site) First(ctx context.Context) error {
	l, err := s.listen("h1")
	if err != nil {
		return err
	}
	if _, err := member.Init(s.Dir("h1"), "h1", s.at["h1"], true); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := s.start("h1", l); err != nil {
		return err
	}
	if err := s.Await(ctx, "h1 leads", func() bool { return s.Leader() == "h1" }); err != nil {
		return err
	}
	hash := server.HashToken(Token)
	m := s.Member("h1")
	var failed error // on a busy machine it may lead no more, for a moment
	err = s.Await(ctx, "the admin token and the image are there", func() bool {
		if _, failed = m.MakeToken(ctx, state.Token{ID: TokenID, Hash: hex.EncodeToString(hash[:]), Name: "site", Role: state.RoleAdmin}, false); errors.Is(failed, state.ErrConflict) {
			failed = nil // by the attempt before
		}
		if _, there := m.State.Snapshot().Image("tiny"); failed == nil && !there {
			_, _, failed = m.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{})
		}
		return failed == nil
	})
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}

// Join a member in these roles through the leader. On a busy machine the leader may change meanwhile: then it asks again,
// with a token for that name, because the join may have used the earlier token all the same.
func (s *Site) Join(ctx context.Context, name string, server, agent bool) error {
	l, err := s.listen(name)
	if err != nil {
		return err
	}
	row := state.JoinToken{Server: server, Agent: agent}
	var failed error
	err = s.Await(ctx, name+" joins", func() bool {
		leader := s.Member(s.Leader())
		if leader == nil {
			return false
		}
		var token string
		if token, _, failed = leader.NewToken(ctx, time.Hour, row); failed == nil {
			_, failed = member.Join(ctx, s.Dir(name), name, s.at[name], member.JoinOptions{Token: token, Addresses: leader.Servers(), Connect: s.Connect})
			row.For = name
		}
		said, _ := transport.AnswerOf(failed)
		return failed == nil || said == transport.Forbidden || said == transport.Malformed
	})
	if err := errors.Join(failed, err); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.start(name, l)
}

// Servers makes a cluster of so many servers that are agents too, and waits until all vote and all hosts are ready.
func (s *Site) Servers(ctx context.Context, n int) error {
	if err := s.First(ctx); err != nil {
		return err
	}
	for i := 2; i <= n; i++ {
		if err := s.Join(ctx, fmt.Sprintf("h%d", i), true, true); err != nil {
			return err
		}
	}
	if err := s.Await(ctx, fmt.Sprintf("%d servers vote", n), func() bool { return s.voters() == n }); err != nil {
		return err
	}
	if err := s.Await(ctx, fmt.Sprintf("%d servers have caught up", n), func() bool {
		return !slices.ContainsFunc(s.Up(), func(name string) bool { return !s.Member(name).CaughtUp() })
	}); err != nil {
		return err
	}
	return s.Await(ctx, fmt.Sprintf("%d hosts are ready", n), func() bool { return s.ready(ctx) == n })
}

func (s *Site) voters() int {
	m := s.Member(s.Leader())
	if m == nil {
		return 0
	}
	nodes, _ := m.Nodes()
	n := 0
	for _, v := range nodes {
		if v.Voter && v.Healthy {
			n++
		}
	}
	return n
}

func (s *Site) ready(ctx context.Context) int {
	m := s.Member(s.Leader())
	if m == nil {
		return 0
	}
	v, err := m.View(ctx, false)
	if err != nil {
		return 0
	}
	return Ready(v)
}

// Leader is the name of the server that leads, "" if none does now.
func (s *Site) Leader() string {
	for name, m := range s.up {
		if !m.Identity().Server {
			continue
		}
		if here, _ := m.Leader(); here {
			return name
		}
	}
	return ""
}

// Follower is the first server by name that knows a leader and is not it.
func (s *Site) Follower() string {
	for _, name := range s.Up() {
		m := s.up[name]
		if !m.Identity().Server {
			continue
		}
		if here, address := m.Leader(); !here && address != "" {
			return name
		}
	}
	return ""
}

// Stop a member: its streams end, its port closes. Its host runs on.
func (s *Site) Stop(name string) error {
	m := s.up[name]
	if m == nil {
		return fmt.Errorf("member %s is not up", name)
	}
	delete(s.up, name)
	return errors.Join(m.Close(), s.trails[name].Close())
}

// Start a member again on what it had.
func (s *Site) Start(name string) error {
	l, err := s.listen(name)
	if err != nil {
		return err
	}
	return s.start(name, l)
}
