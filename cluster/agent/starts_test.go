package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// stuck is a hypervisor whose starts of some VMs hang: each is given up after a minute, and goes on until free is closed.
type stuck struct {
	hypervisor.Host
	which func(id string) bool
	free  chan struct{}

	mu    sync.Mutex
	tries map[string]int
	hung  []hypervisor.Hung
}

func (s *stuck) Start(ctx context.Context, spec hypervisor.Spec) error {
	id := spec.Identity.VM
	s.mu.Lock()
	if s.tries == nil {
		s.tries = map[string]int{}
	}
	s.tries[id]++
	s.mu.Unlock()
	select {
	case <-s.free:
		return s.Host.Start(ctx, spec)
	default:
	}
	if !s.which(id) {
		return s.Host.Start(ctx, spec)
	}
	h := hypervisor.Hung{Call: "virDomainCreateXML of " + spec.Name, VM: id, Since: time.Now()}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.free:
		return fmt.Errorf("connection lost: %w", hypervisor.ErrUnavailable)
	case <-time.After(time.Minute):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = append(s.hung, h)
	return fmt.Errorf("no answer: %w", hypervisor.ErrUnavailable)
}

func (s *stuck) Hanging() []hypervisor.Hung {
	select {
	case <-s.free:
		return nil
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]hypervisor.Hung(nil), s.hung...)
}

func (s *stuck) tried(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries[id]
}

func only(ids ...string) func(string) bool {
	return func(id string) bool { return strings.Contains(","+strings.Join(ids, ",")+",", ","+id+",") }
}

func runStuck(t *testing.T, w *simulated.World, l *leader, which func(string) bool) (*stuck, func()) {
	t.Helper()
	s := &stuck{Host: w.Host("h1"), which: which, free: make(chan struct{})}
	return s, runOn(t, s, l)
}

// runsNow are the ids of the VMs that run.
func runsNow(t *testing.T, w *simulated.World) string {
	t.Helper()
	var out []string
	for _, vm := range list(t, w) {
		out = append(out, vm.Identity.VM)
	}
	return strings.Join(out, " ")
}

// A start that hangs holds up neither the reports, nor the shares and starts of other VMs, nor what is deleted.
func TestRunGoesOnWhileAStartHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		s, end := runStuck(t, w, l, only("a"))
		defer end()
		after(10 * time.Second)
		if got := runsNow(t, w); !strings.Contains(got, "b") || strings.Contains(got, "a") {
			t.Fatalf("runs: %q", got)
		}
		before := l.count()
		l.order(func(d *agent.Desired) {
			d.VMs[1].Spec.CPU.Cap /= 2
			d.VMs = append(d.VMs, wanted("c"))
		})
		after(10 * time.Second)
		if n := l.count() - before; n == 0 {
			t.Error("no report while a start hangs")
		}
		for _, vm := range list(t, w) {
			if vm.Identity.VM == "b" && vm.CPU.Cap != l.want.VMs[1].Spec.CPU.Cap {
				t.Errorf("b has a cap of %g, want %g", vm.CPU.Cap, l.want.VMs[1].Spec.CPU.Cap)
			}
		}
		if got := runsNow(t, w); !strings.Contains(got, "c") {
			t.Errorf("runs: %q, want c too", got)
		}
		if n := s.tried("a"); n != 1 {
			t.Errorf("a was tried %d times", n)
		}
	})
}

// A start that hangs is reported after its time, with the name of the call, and is not tried again while it hangs. The agent
// reports nothing of its VM that takes for granted that it does not run. Once the call has ended the VM is started.
func TestRunReportsAStartThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		s, end := runStuck(t, w, l, only("a"))
		defer end()
		after(59 * time.Second)
		if got := l.last().Hangs; len(got) != 0 {
			t.Errorf("before its time: %+v", got)
		}
		after(2 * time.Second)
		want := agent.Hang{Call: "virDomainCreateXML of ek-a", VM: "a", Waited: time.Minute}
		if got := l.last().Hangs; len(got) != 1 || got[0] != want {
			t.Errorf("hangs %+v, want %+v", got, want)
		}
		after(10 * time.Minute)
		if got := l.last().Hangs; len(got) != 1 || got[0] != want {
			t.Errorf("ten minutes later: %+v, want the same", got)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Want = agent.WantAbsent })
		after(time.Minute)
		if n := s.tried("a"); n != 1 {
			t.Errorf("a was tried %d times", n)
		}
		if got := l.received(); len(got) != 0 {
			t.Errorf("reported %q of a VM that may yet run", got)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Want = agent.WantRun })
		close(s.free)
		after(time.Minute)
		if got := runsNow(t, w); !strings.Contains(got, "a") {
			t.Errorf("runs: %q", got)
		}
		if r := l.last(); len(r.Hangs) != 0 || r.Error != "" {
			t.Errorf("report at the end: %+v", r)
		}
	})
}

// A hypervisor whose every start hangs is not given more of them than are made side by side: libvirt has few threads.
func TestRunBoundsStartsThatHang(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		var vms []agent.VM
		for i := range 9 {
			vms = append(vms, wanted(fmt.Sprint("v", i)))
		}
		l := newLeader(vms...)
		s, end := runStuck(t, w, l, func(string) bool { return true })
		defer end()
		after(10 * time.Minute)
		n := 0
		for i := range vms {
			n += s.tried(fmt.Sprint("v", i))
		}
		if n != 4 {
			t.Errorf("%d starts, want 4", n)
		}
		if got := len(l.last().Hangs); got != 4 {
			t.Errorf("%d hang", got)
		}
	})
}

// The operations of Decide for a VM whose start has not ended.
func TestDecideOnStartsThatHaveNotEnded(t *testing.T) {
	under, hung := agent.Starting{Why: "it is under way"}, agent.Starting{Why: "it hangs", Hung: true}
	absent, lost := wanted("a"), wanted("a")
	absent.Want = agent.WantAbsent
	lost.Seen, lost.MayStart = true, false
	there := hypervisor.VM{Identity: wanted("a").Spec.Identity, Name: "ek-a", State: hypervisor.Running, VCPUs: 1, Memory: wanted("a").Spec.Memory, Balloon: wanted("a").Spec.Balloon, CPU: wanted("a").Spec.CPU}
	for _, c := range []struct {
		name  string
		vm    agent.VM
		there []hypervisor.VM
		start agent.Starting
		want  string
	}{
		{"under way", wanted("a"), nil, under, "[hold ek-a: it is under way]"},
		{"hangs", wanted("a"), nil, hung, "[hold ek-a: it hangs]"},
		{"under way, to be gone", absent, nil, under, "[hold ek-a: it is under way]"},
		{"hangs, to be gone", absent, nil, hung, "[hold ek-a: it hangs]"},
		{"hangs, seen before", lost, nil, hung, "[hold ek-a: it hangs]"},
		{"under way, listed", wanted("a"), []hypervisor.VM{there}, under, "[hold ek-a: it is under way]"},
		{"hangs, and runs all the same", wanted("a"), []hypervisor.VM{there}, hung, "[report a generation 1 running]"},
		{"hangs, runs, to be gone", absent, []hypervisor.VM{there}, hung, "[destroy ek-a]"},
	} {
		got := fmt.Sprint(agent.Decide(host(c.vm), c.there, agent.Past{Starting: map[string]agent.Starting{"a": c.start}}))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
