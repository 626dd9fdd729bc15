package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

// ours are the VMs of Evenkeel that run in a world, by id, and where.
func ours(t *testing.T, w *simulated.World) map[string]hypervisor.VM {
	t.Helper()
	out := map[string]hypervisor.VM{}
	for _, name := range w.Hosts() {
		vms, err := w.Host(name).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, vm := range vms {
			if vm.Foreign || vm.State == hypervisor.Incoming {
				continue
			}
			if _, twice := out[vm.Identity.VM]; twice {
				t.Errorf("VM %s runs on two hosts", vm.Name)
			}
			out[vm.Identity.VM] = vm
		}
	}
	return out
}

// noHarm holds a world against the limits of its hosts.
func noHarm(t *testing.T, w *simulated.World, cpu float64, memory int64) {
	t.Helper()
	audit := w.Audit()
	if len(audit.Doubled) > 0 {
		t.Error("ran twice:", audit.Doubled)
	}
	for host, peak := range audit.Peaks {
		if peak.CPU > cpu*(1+1e-8) || peak.Memory > memory {
			t.Errorf("host %s had %v cores of caps and %d bytes at one instant, of %v and %d", host, peak.CPU, peak.Memory, cpu, memory)
		}
	}
}

// preference is what a client knows of a VC: how many VMs it was promised, and what else may be if the
// last answer did not come.
type preference struct {
	count int // 0: none
	maybe int // -1: certain
}

// A cluster that is stopped at random moments during creates, scales and deletes, 50 times over: every
// acknowledged write is there, no VM is lost, doubled, orphaned or started again.
func TestRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rounds := 50
		if testing.Short() {
			rounds = 8
		}
		world, dir := newWorld(t, 3), scratch.Dir(t)
		rng := rand.New(rand.NewPCG(1, 2))
		preferences := map[string]preference{}
		acknowledged := 0
		for round := range rounds {
			c := startCluster(t, dir, world, 3, func() { time.Sleep(rand.N(350 * time.Microsecond)) }) // sleep: simulated time
			checkPreferences(t, c, preferences)
			if round%5 == 4 {
				time.Sleep(3 * time.Second) // sleep: simulated time, in which the log is saved as a snapshot
			}
			moment := time.Duration(rng.IntN(60)) * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					time.Sleep(rand.N(100 * time.Microsecond)) // sleep: simulated time, which must go on when nothing is written
					name := fmt.Sprintf("v%d", rng.IntN(6))
					if err := request(ctx, c.Service, rng, name, preferences); err != nil {
						return
					}
					acknowledged++
				}
			}()
			time.Sleep(moment) // sleep: simulated time, in which only the disk and the hypervisors take any
			c.stop()
			cancel()
			<-done
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
		t.Logf("%d requests were answered", acknowledged)
		c := startCluster(t, dir, world, 3)
		checkPreferences(t, c, preferences)
		v := c.eventually("all is as wished", func(v *leader.View) bool {
			return !slices.ContainsFunc(v.VCs(), func(x state.VC) bool {
				s := v.VCView(x).State
				return s != state.VCRunning && s != state.VCQueued || v.VCView(x).Count.Stopping > 0
			})
		})
		there := ours(t, world)
		for _, vm := range v.VMs() {
			run, ok := there[vm.ID]
			if !ok || vm.Phase != state.Running || run.Generation != vm.Generation {
				t.Errorf("VM %s is %s, generation %d; on its host: %v %+v", vm.Name, vm.Phase, vm.Generation, ok, run)
			}
			if vm.Generation != 1 {
				t.Errorf("VM %s was started %d times", vm.Name, vm.Generation)
			}
			delete(there, vm.ID)
		}
		for _, vm := range there {
			t.Errorf("orphan: %+v", vm)
		}
		for _, h := range v.Hosts() {
			if u := v.HostView(h).Unmanaged; len(u) > 0 {
				t.Errorf("host %s reports unknown VMs: %v", h.Name, u)
			}
		}
		for _, e := range v.EventsAfter(0, 0) {
			if e.Kind == "vm-failed" {
				t.Errorf("event %+v", e)
			}
		}
		noHarm(t, world, 4, 8<<30)
	})
}

// request does something to a VC and notes what came of it.
func request(ctx context.Context, c *leader.Service, rng *rand.Rand, name string, preferences map[string]preference) error {
	was := preferences[name]
	next := 1 + rng.IntN(4)
	var err error
	switch {
	case was.count == 0:
		_, err = c.Create(ctx, vc(name, next, 0.5, 256*mib), leader.Call{})
	case rng.IntN(3) == 0:
		next = 0
		_, err = c.Delete(ctx, name, leader.Call{})
	default:
		_, err = c.Scale(ctx, name, leader.Scale{Count: &next}, leader.Call{})
	}
	switch {
	case err == nil:
		preferences[name] = preference{next, -1}
	case isRefusal(err):
		return nil
	default:
		preferences[name] = preference{was.count, next}
	}
	return err
}

// isRefusal: an answer from which it is known that nothing happened.
func isRefusal(err error) bool {
	var refused *leader.Refused
	return errors.As(err, &refused) || errors.Is(err, leader.ErrConflict) || errors.Is(err, leader.ErrNotFound)
}

func checkPreferences(t *testing.T, c *testCluster, preferences map[string]preference) {
	t.Helper()
	s := c.state.Snapshot()
	for name, w := range preferences {
		x, ok := s.VCNamed(name)
		got := 0
		if ok && x.Goal == state.GoalRun {
			got = x.Groups[0].Count
		}
		if got != w.count && got != w.maybe {
			t.Errorf("%s has %d VMs after a restart; acknowledged %d, perhaps %d", name, got, w.count, w.maybe)
		}
		preferences[name] = preference{got, -1}
	}
}
