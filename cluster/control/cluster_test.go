package control_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/control"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// settings of the clusters in these tests.
var settings = state.Settings{MinYield: 0.5, OnFull: state.Queue, Image: "tiny", Pool: "default", MinMemory: 64 << 20, MaxVMs: 4096}

// testCluster is a whole cluster in this process: Raft on disk, the leader's
// service, an agent per simulated host.
type testCluster struct {
	*control.Control
	t     *testing.T
	world *simulated.World
	state *state.Store
	node  *node.Node
	stop  func()
}

// newWorld of n hosts with 4 cores and 8 GiB each, quick but not instant.
func newWorld(t *testing.T, n int) *simulated.World {
	t.Helper()
	w, err := simulated.New(simulated.Options{Hosts: n, CPU: 4, Memory: 8 << 30, Timing: &simulated.Timing{
		Start: 2 * time.Millisecond, Boot: 5 * time.Millisecond, Shutdown: 5 * time.Millisecond, Timeout: 2 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// startCluster on a directory and a world; both may have been used before.
func startCluster(t *testing.T, dir string, world *simulated.World, hosts int) *testCluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	store := state.New()
	n, err := node.Open(node.Options{Dir: filepath.Join(dir, "raft"), ID: "s1", State: store, Log: logger, SnapshotEvery: 64, Trailing: 16})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	lead, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	if err := n.Lead(lead); err != nil {
		cancel()
		t.Fatal(err)
	}
	c, err := control.New(ctx, control.Options{State: store, Log: n, Settings: settings, Logger: logger,
		Inspect: func(i state.Image) (state.Image, error) { return i, nil },
		Console: func(ctx context.Context, host, vm string) (io.ReadWriteCloser, error) {
			return world.Host(host).Console(ctx, vm)
		}})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if _, ok := store.Snapshot().Image("tiny"); !ok {
		if _, err := c.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, false); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	for i := range hosts {
		name := fmt.Sprintf("h%d", i+1)
		h := world.Host(name)
		wg.Go(func() {
			err := agent.Run(ctx, agent.Options{Host: name, Hypervisor: h, Leader: c, Log: logger,
				Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
				Overhead:  func(hypervisor.Capacity) int64 { return 64 << 20 },
				StopGrace: 200 * time.Millisecond, SampleEvery: 20 * time.Millisecond})
			if err != nil {
				t.Error(err)
			}
		})
	}
	tc := &testCluster{Control: c, t: t, world: world, state: store, node: n}
	var once sync.Once
	tc.stop = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(tc.stop)
	tc.eventually("all hosts report", func(v *control.View) bool {
		for i := range hosts {
			if _, ok := v.Host(fmt.Sprintf("h%d", i+1)); !ok {
				return false
			}
		}
		return true
	})
	return tc
}

// eventually waits until the cluster looks right.
func (c *testCluster) eventually(what string, right func(*control.View) bool) *control.View {
	c.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		v, err := c.View(c.t.Context(), false)
		if err != nil {
			c.t.Fatal(err)
		}
		if right(v) {
			return v
		}
		select {
		case <-v.Watch():
		case <-time.After(20 * time.Millisecond): // live figures change without the state
		case <-deadline:
			for _, vc := range v.VCs() {
				c.t.Logf("%s: %s %+v", vc.Name, v.VCView(vc).State, v.VCView(vc).Count)
			}
			for _, h := range v.Hosts() {
				c.t.Logf("%s: %+v", h.Name, v.HostView(h))
			}
			c.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func vc(name string, count int, cpu float64, memory int64) state.VC {
	return state.VC{Name: name, MinYield: -1, Groups: []state.Group{{Name: "g", Count: count, CPU: cpu, Memory: memory}}}
}

// done waits for an operation.
func (c *testCluster) done(r control.Result, err error) *control.View {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.eventually(r.Operation.Kind+" "+r.Operation.Name, func(v *control.View) bool {
		return v.Progress(r.Operation).State == state.OpDone
	})
}
