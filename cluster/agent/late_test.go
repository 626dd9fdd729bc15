package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// counting notes how often each VM's disk was removed.
type counting struct {
	hypervisor.Host
	mu   sync.Mutex
	n    map[string]int
	hang time.Duration // of Destroy
}

func (c *counting) Undefine(ctx context.Context, s hypervisor.Spec) error {
	c.mu.Lock()
	c.n[s.VM]++
	c.mu.Unlock()
	return c.Host.Undefine(ctx, s)
}

func (c *counting) Destroy(ctx context.Context, id string) error {
	if id == "b" {
		time.Sleep(c.hang) // sleep: a hypervisor that hangs, in simulated time
	}
	return c.Host.Destroy(ctx, id)
}

// count counts what an agent removes in a minute, with a leader whose desired state does not change by the reports, and from
// which the agent receives nothing after a while.
func (g *guarded) count(t *testing.T, hang, heard time.Duration, want ...agent.VM) map[string]int {
	t.Helper()
	o := g.options()
	c := &counting{Host: o.Hypervisor, n: map[string]int{}, hang: hang}
	o.Hypervisor = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, o) }()
	after(10 * time.Second)
	g.l.order(func(d *agent.Desired) { d.VMs = want })
	g.l.mu.Lock()
	g.l.deaf = true
	g.l.mu.Unlock()
	after(heard)
	g.l.cut(errCut)
	after(time.Minute)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	synctest.Wait()
	return c.n
}

func ephemeral(vm agent.VM, want agent.Want) agent.VM {
	vm.Want, vm.MayStart, vm.Seen = want, false, true
	vm.Spec.Disk = hypervisor.Disk{Size: 1 << 20, Pool: "shared", Ephemeral: true}
	return vm
}

// slowDefine takes long to make what VMs need, and notes what is started.
type slowDefine struct {
	hypervisor.Host
	takes   time.Duration
	mu      sync.Mutex
	started []string
}

func (s *slowDefine) Define(ctx context.Context, spec hypervisor.Spec) error {
	time.Sleep(s.takes) // sleep: a slow disk, in simulated time
	return s.Host.Define(ctx, spec)
}

func (s *slowDefine) Start(ctx context.Context, spec hypervisor.Spec) error {
	s.mu.Lock()
	s.started = append(s.started, spec.VM)
	s.mu.Unlock()
	return s.Host.Start(ctx, spec)
}

// A VM whose disk takes longer to make than the lease lasts is not even started.
func TestLeaseEndsBeforeTheStart(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		o := g.options()
		h := &slowDefine{Host: o.Hypervisor, takes: 40 * time.Second}
		o.Hypervisor = h
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx, o) }()
		after(10 * time.Second)
		g.l.cut(errCut)
		after(time.Minute)
		if len(h.started) > 0 {
			t.Errorf("started %q", h.started)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// The disk of a VM that was stopped is removed once: the leader may have started the VM elsewhere since it
// heard, on a disk of the same name.
func TestDiskIsRemovedOnce(t *testing.T) {
	guard(t, nil, nil, func(t *testing.T, g *guarded) {
		n := g.count(t, 0, time.Minute, ephemeral(wanted("a"), agent.WantStop))
		if n["a"] != 1 {
			t.Errorf("its disk was removed %d times", n["a"])
		}
	})
}

// What was decided before a hypervisor hung is not carried out after it.
func TestOldDecisionsAreNotCarriedOut(t *testing.T) {
	guard(t, nil, []agent.VM{wanted("b")}, func(t *testing.T, g *guarded) {
		b := wanted("b")
		b.Want, b.MayStart, b.Seen = agent.WantAbsent, false, true
		n := g.count(t, 40*time.Second, time.Second, b, ephemeral(wanted("c"), agent.WantStop))
		if n["c"] != 0 {
			t.Errorf("the disk of c was removed, by what was decided 40 s ago")
		}
	})
}
