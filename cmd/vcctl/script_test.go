package main

import (
	"context"
	"io"
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
	"evenkeel/cluster/control"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// The scripts run vcctl, in a process of its own, against a whole cluster in
// this one: log on disk, control loop, agents of two simulated hosts with
// 4 cores and 8 GiB for VMs each, and the API over TLS.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vcctl": main})
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
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": wantStatus},
	})
}

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
	var wg sync.WaitGroup
	var closers []io.Closer
	env.Defer(func() {
		cancel()
		wg.Wait()
		for _, c := range closers {
			_ = c.Close()
		}
	})
	quiet := slog.New(slog.DiscardHandler)
	store := state.New()
	n, err := node.Open(node.Options{Dir: filepath.Join(dir, "raft"), ID: "n1", State: store, Log: quiet})
	if err != nil {
		return "", "", err
	}
	closers = append(closers, n)
	if err := n.Lead(ctx); err != nil {
		return "", "", err
	}
	world, err := simulated.New(simulated.Options{Hosts: 2, CPU: 5, Memory: 9 << 30, Timing: &simulated.Timing{Beat: 20 * time.Millisecond}})
	if err != nil {
		return "", "", err
	}
	closers = append(closers, world)
	ctl, err := control.New(ctx, control.Options{
		State: store, Log: n, Hosts: world.Hosts(), Logger: quiet,
		Settings: state.Settings{MinYield: 0.5, OnFull: state.Queue, Image: "tiny", Pool: "default", MinMemory: 64 << 20, MaxVMs: 4096},
		Console: func(ctx context.Context, host, vm string) (io.ReadWriteCloser, error) {
			return world.Host(host).Console(ctx, vm)
		},
		Inspect: func(img state.Image) (state.Image, error) { return img, nil },
	})
	if err != nil {
		return "", "", err
	}
	if _, err := ctl.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/boot/tiny"}, false); err != nil {
		return "", "", err
	}
	wg.Go(func() { ctl.Run(ctx) })
	for _, name := range world.Hosts() {
		wg.Go(func() {
			_ = agent.Run(ctx, agent.Options{Host: name, Hypervisor: world.Host(name), Leader: ctl, Log: quiet, SampleEvery: 50 * time.Millisecond,
				Allowance: func(hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: 4, Memory: 8 << 30} },
				Overhead:  func(hypervisor.Capacity) int64 { return 0 }})
		})
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
	api := server.New(ctl, server.Options{Tokens: []server.TokenHash{hash}, Version: "test", Logger: quiet})
	wg.Go(func() { _ = api.Serve(ctx, listener, certs.TLS()) })
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ctl.Ready() != nil && time.Now().Before(end); {
		<-tick.C
	}
	return "https://" + listener.Addr().String(), dir, ctl.Ready()
}
