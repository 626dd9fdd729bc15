package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"evenkeel/api/server"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/single"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// The scripts run vcctl, in a process of its own, against a whole cluster in
// this one: log on disk, control loop, agents of two simulated hosts with
// 4 cores and 8 GiB for VMs each, and the API over TLS.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vcctl": func() {
		leaderWait = 15 * time.Second                 // the site's members take up to 9 s to elect one, by their heartbeat
		now = func() time.Time { return time.Time{} } // every age is 0s
		main()
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			address, dir, err := startCluster(env)
			if err != nil {
				return err
			}
			env.Setenv("EVENKEEL_ADDRESS", address)
			env.Setenv("EVENKEEL_CACERT", filepath.Join(dir, "ca.pem"))
			env.Setenv("EVENKEEL_TOKEN_FILE", filepath.Join(dir, "admin.token"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DATA", dir)
			endAtOnce(env)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": wantStatus},
	})
}

// endAtOnce has vcctl end when it is done. Built with the race detector a program sleeps for a second first, unless it is asked not to:
// four of five parts of what a script takes.
func endAtOnce(env *testscript.Env) { env.Setenv("GORACE", "atexit_sleep_ms=0") }

// wantStatus runs vcctl and wants that exit status: status 3 vc create -f x.yaml.
func wantStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status NUMBER ARGUMENTS...")
	}
	err := ts.Exec("vcctl", args[1:]...)
	got := "0"
	if err != nil {
		got = err.Error()
	}
	want := "exit status " + args[0]
	if args[0] == "0" {
		want = "0"
	}
	if got != want {
		ts.Fatalf("%v: %s, want %s", args[1:], got, want)
	}
}

func startCluster(env *testscript.Env) (address, dir string, err error) {
	dir = filepath.Join(env.WorkDir, ".cluster")
	ctx, cancel := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	world, err := simulated.New(simulated.Options{Hosts: 2, CPU: 5, Memory: 9 << 30, Timing: &simulated.Timing{Beat: 20 * time.Millisecond}})
	if err != nil {
		cancel()
		return "", "", err
	}
	whole, err := single.Start(ctx, single.Options{Dir: dir, ID: "n1", Settings: state.DefaultSettings(), Logger: quiet,
		Open: func(context.Context) (map[string]hypervisor.Host, error) { return world.All(), nil },
		Agent: agent.Options{SampleEvery: 50 * time.Millisecond,
			Allowance: func(hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: 4, Memory: 8 << 30} },
			Overhead:  func(hypervisor.Capacity) int64 { return 0 }}})
	if err != nil {
		cancel()
		return "", "", errors.Join(err, world.Close())
	}
	var wg sync.WaitGroup
	env.Defer(func() {
		cancel()
		wg.Wait()
		_ = whole.Close()
		_ = world.Close()
	})
	if _, _, err := whole.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/boot/tiny"}, leader.Call{}); err != nil {
		return "", "", err
	}
	hash, err := server.EnsureAdminToken(filepath.Join(dir, "admin.token"))
	if err != nil {
		return "", "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	certs, err := server.EnsureCertificates(dir, listener.Addr().String())
	if err != nil {
		return "", "", err
	}
	trail, err := audit.Open(audit.Options{Path: filepath.Join(dir, "audit.log"), Server: "n1"})
	if err != nil {
		return "", "", err
	}
	env.Defer(func() { _ = trail.Close() })
	api := server.New(whole.Service, server.Options{Tokens: []server.TokenHash{hash}, Version: "test", Logger: quiet, Audit: trail})
	wg.Go(func() { _ = api.Serve(ctx, listener, certs.TLS()) })
	return "https://" + listener.Addr().String(), dir, whole.AwaitReady(ctx)
}
