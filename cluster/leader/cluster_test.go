package leader_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/single"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/patience"
	testsite "evenkeel/test/site"
)

// testCluster is a whole cluster in this process, on simulated hosts.
type testCluster struct {
	*leader.Service
	t     *testing.T
	world *simulated.World
	state *state.Store
	stop  func()
}

// bubble runs a test beside others, in simulated time: what waits takes no time, and no limit depends on the machine.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// bubbled is bubble for a part of a test.
func bubbled(f func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { bubble(t, f) }
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

// startCluster on a directory and a world; both may have been used before. disk, if there is one, is called before every write to the log.
func startCluster(t *testing.T, dir string, world *simulated.World, hosts int, disk ...func()) *testCluster {
	t.Helper()
	write := func(string) error {
		for _, f := range disk {
			f()
		}
		return nil
	}
	c, err := single.Start(context.Background(), single.Options{Dir: dir, ID: "s1", Settings: state.DefaultSettings(), Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (map[string]hypervisor.Host, error) { return world.All(), nil },
		Agent: agent.Options{Clock: testsite.Steady, StopGrace: 200 * time.Millisecond, SampleEvery: 20 * time.Millisecond,
			Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:  func(hypervisor.Capacity) int64 { return 64 << 20 }},
		SnapshotEvery: 64, Trailing: 16, Fault: write})
	if err != nil {
		t.Fatal(err)
	}
	tc := &testCluster{Service: c.Service, t: t, world: world, state: c.State, stop: func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-c.Failed():
			t.Error(err)
		default:
		}
	}}
	t.Cleanup(tc.stop)
	if _, ok := c.State.Snapshot().Image("tiny"); !ok {
		if _, _, err := c.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
	}
	tc.eventually("all hosts report", func(v *leader.View) bool {
		for i := range hosts {
			if h, ok := v.Host(fmt.Sprintf("h%d", i+1)); !ok || v.HostView(h).State == "unknown" {
				return false
			}
		}
		return true
	})
	return tc
}

// eventually waits until the cluster looks right, and follows what it is doing.
func (c *testCluster) eventually(what string, right func(*leader.View) bool) *leader.View {
	c.t.Helper()
	var v *leader.View
	err := patience.Until(c.t.Context(), patience.Stall, what, func() any { return testsite.Doing(v) }, func() bool {
		var err error
		if v, err = c.View(c.t.Context(), false); err != nil {
			c.t.Fatal(err)
		}
		return right(v)
	})
	if err == nil {
		return v
	}
	for _, vm := range v.VMs() {
		c.t.Logf("VM %s on %q: goal %s, %s, %s", vm.Name, vm.Host, vm.Goal, vm.Phase, vm.Reason)
	}
	for _, h := range v.Hosts() {
		c.t.Logf("%s: %+v", h.Name, v.HostView(h))
	}
	c.t.Fatal(err)
	return nil
}

func vc(name string, count int, cpu float64, memory int64) state.VC {
	return state.VC{Name: name, MinYield: -1, Groups: []state.Group{{Name: "g", Count: count, CPU: cpu, Memory: memory}}}
}

// done waits for an operation.
func (c *testCluster) done(r leader.Result, err error) *leader.View {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.eventually(r.Operation.Kind+" "+r.Operation.Name, func(v *leader.View) bool {
		return v.Progress(r.Operation).State == state.OpDone
	})
}
