package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/pki"
	"evenkeel/test/patience"
	"evenkeel/test/site"
)

// The scripts in testdata/members run against three servers that are agents too: h1, h2, h3.
// $LEADER and $FOLLOWER are two of them, $OTHER is the third. h2 has a fence device that says that the power
// is on and cannot turn it off. A vcd that belongs to no cluster answers on $SOCKET.

func TestMemberScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/members",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup:         startSite,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": wantStatus, "until": until,
			"stop": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(ts.Value(siteKey{}).(*site.Site).Stop(args[0]))
			}},
	})
}

// until runs vcctl until it prints what matches, as an answer or an error: until PATTERN ARGUMENTS... A leader that was just elected
// knows no host's state until the host renews its lease, and a machine that stands still for seconds brings an election. It only waits: the
// script runs the command again, for its exit status and where it prints what.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN ARGUMENTS...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var printed string
	ts.Check(patience.Until(context.Background(), patience.Stall, args[0], func() any { return printed }, func() bool {
		_ = ts.Exec("vcctl", args[1:]...) // what it prints says how it ended
		printed = ts.ReadFile("stdout") + ts.ReadFile("stderr")
		return want.MatchString(printed)
	}))
}

type siteKey struct{}

// stubborn is a fence device that can be asked and does nothing.
type stubborn struct{}

func (stubborn) Has(host string) bool                         { return host == "h2" }
func (stubborn) Test(context.Context, string) (string, error) { return "the power is on", nil }
func (stubborn) Off(context.Context, string) (string, error) {
	return "", errors.New("the outlet is stuck")
}

func startSite(env *testscript.Env) error {
	ctx, cancel := context.WithCancel(context.Background())
	s, err := site.New(site.Options{Dir: filepath.Join(env.WorkDir, ".site"), Hosts: 4, Fence: stubborn{}, Lease: 4 * time.Second})
	if err != nil {
		cancel()
		return err
	}
	var wg sync.WaitGroup
	env.Defer(func() {
		cancel()
		wg.Wait()
		_ = s.Close()
	})
	if err := s.Servers(ctx, 3); err != nil {
		return err
	}
	env.Values[siteKey{}] = s
	leader, follower := s.Leader(), s.Follower()
	for _, name := range s.Up() {
		if name != leader && name != follower {
			env.Setenv("OTHER", name)
		}
		env.Setenv("ADDRESS_"+name, s.Address(name))
	}
	// The socket's name must be short: the kernel allows 107 bytes.
	dir, err := os.MkdirTemp("", "vcctl")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(dir) })
	local := &outside{name: "h4", dir: filepath.Join(dir, "h4")}
	socket := filepath.Join(dir, "vcd.sock")
	wg.Go(func() { _ = server.ServeSetup(ctx, socket, local, (*audit.Log)(nil), slog.New(slog.DiscardHandler)) })
	if err := s.Await(ctx, "the local socket", func() bool { _, err := os.Stat(socket); return err == nil }); err != nil {
		return err
	}
	env.Setenv("SOCKET", socket)
	env.Setenv("LEADER", leader)
	env.Setenv("FOLLOWER", follower)
	env.Setenv("EVENKEEL_ADDRESS", s.Address(follower))
	env.Setenv("EVENKEEL_CACERT", s.CAFile())
	env.Setenv("EVENKEEL_TOKEN", site.Token)
	env.Setenv("HOME", env.WorkDir)
	endAtOnce(env)
	return nil
}

// outside stands in for the vcd of a host that belongs to no cluster until a request makes it a member.
type outside struct {
	mu        sync.Mutex
	name, dir string
	connect   func(ctx context.Context, address string) (net.Conn, error) // nil: as usual
}

func (o *outside) State() v1.SetupState {
	return v1.SetupState{Name: o.name, Address: "127.0.0.1:7480", Version: "test", Member: member.HasIdentity(o.dir)}
}

func (o *outside) entered(err error) error {
	if errors.Is(err, member.ErrMember) {
		return &leader.Exists{Field: "member", Text: err.Error()}
	}
	if errors.Is(err, pki.ErrToken) {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: "token", Text: err.Error()}}}
	}
	return err
}

func (o *outside) Init(context.Context, v1.SetupInit) (v1.SetupAnswer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, err := member.Init(o.dir, o.name, "127.0.0.1:7480", true)
	if err != nil {
		return v1.SetupAnswer{}, o.entered(err)
	}
	ca, err := os.ReadFile(filepath.Join(o.dir, "pki", "ca.pem"))
	a := v1.SetupAnswer{SetupState: o.State(), AdminToken: "ekt_of-h4", CA: string(ca)}
	a.Cluster = id
	return a, err
}

func (o *outside) Join(ctx context.Context, q v1.SetupJoin) (v1.SetupAnswer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, err := member.Join(ctx, o.dir, o.name, "127.0.0.1:7480", member.JoinOptions{Token: q.Token, Addresses: q.Addresses, Connect: o.connect})
	a := v1.SetupAnswer{SetupState: o.State()}
	a.Cluster, a.Roles = id.Cluster, id.String()
	return a, o.entered(err)
}
