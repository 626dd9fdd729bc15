package simulated_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/conformance"
	"evenkeel/hypervisor/simulated"
)

// ctx is for calls under a virtual clock, which no test has to interrupt.
var ctx = context.Background()

var ids atomic.Int64

// spec is an idle VM of one vCPU.
func spec(name string) hypervisor.Spec {
	return hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: "c1", VM: fmt.Sprintf("vm-%d", ids.Add(1)), Generation: 1}, Leased: true,
		Name: name, VCPUs: 1, Memory: 128 << 20, Balloon: 128 << 20,
		CPU:  hypervisor.CPU{Weight: 1},
		Boot: hypervisor.Boot{Kernel: "test", Cmdline: "ek.burn=0"},
	}
}

func busy(s hypervisor.Spec, threads int) hypervisor.Spec {
	s.Boot.Cmdline = fmt.Sprintf("console=ttyS0 ek.burn=%d", threads)
	return s
}

// quick is a world with every latency there is, but short ones.
func quick() *simulated.Timing {
	t := simulated.DefaultTiming()
	t.Define, t.Start, t.Destroy = time.Millisecond, time.Millisecond, time.Millisecond
	t.Boot, t.Shutdown, t.Beat = 20*time.Millisecond, 5*time.Millisecond, 10*time.Millisecond
	t.Progress, t.Timeout = 5*time.Millisecond, 5*time.Second
	t.Downtime = 10 * time.Millisecond
	return &t
}

func TestConformance(t *testing.T) {
	t.Parallel()
	const link = 256 << 20 // of memory that is written and sent, the ratio counts
	conformance.Run(t, func(t *testing.T) conformance.Setup {
		w, err := simulated.New(simulated.Options{Hosts: 2, CPU: 2, Memory: 4 << 30, Timing: quick(), DirtyRate: func(hypervisor.Spec) int64 { return link }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Errorf("Close of the world: %v", err)
			}
		})
		outcome := func(t *testing.T, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		return conformance.Setup{
			Host: w.Host("h1"), Spec: spec, Busy: busy,
			Wait: 10 * time.Second, Window: 50 * time.Millisecond, Tolerance: 0.02, Poll: 2 * time.Millisecond, Link: link,
			Abilities: conformance.Abilities{
				Foreign: func(t *testing.T, name string) {
					f := spec(name)
					outcome(t, w.AddForeign("h1", f))
					t.Cleanup(func() { outcome(t, w.RemoveForeign("h1", name)) })
				},
				RestartDaemon: func(t *testing.T) {
					outcome(t, w.Disconnect("h1"))
					outcome(t, w.Reconnect("h1"))
				},
				Reconnect: func(t *testing.T) hypervisor.Host { return w.Host("h1") },
				Kill:      func(t *testing.T, id string) { outcome(t, w.Crash("h1", id)) },
				Console:   &conformance.Console{Send: "hello\n", Expect: "hello\nBEAT "},
				Second:    &conformance.Second{Host: w.Host("h2"), Address: "h2", Back: "h1"},
				Throttles: true,
				Occupies: func(s hypervisor.Spec, bytes int64) hypervisor.Spec {
					s.Boot.Cmdline += fmt.Sprintf(" ek.touch=%d", bytes>>20)
					return s
				},
			},
		}
	})
}
