package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// wdog is a watchdog with a time-out of 15 s that notes what is done to it.
type wdog struct {
	mu    sync.Mutex
	armed bool
	last  time.Time
	bit   time.Time // when it ran out
	did   []string
	timer *time.Timer
}

const bite = 15 * time.Second

func (w *wdog) touch(what string) {
	if n := len(w.did); what != "pet" || n == 0 || w.did[n-1] != "pet" {
		w.did = append(w.did, what)
	}
	w.last = time.Now()
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.armed {
		w.timer = time.AfterFunc(bite, func() { w.mu.Lock(); w.bit = time.Now(); w.mu.Unlock() })
	}
}

func (w *wdog) Arm() (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = true
	w.touch("arm")
	return bite, nil
}

func (w *wdog) Pet() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touch("pet")
	return nil
}

func (w *wdog) Stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	w.touch("disarm")
	return nil
}

func (w *wdog) ranOut() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.bit.IsZero() }

// memoryState keeps what an agent must know again, as a file would.
type memoryState struct {
	mu   sync.Mutex
	m    agent.PersistentState
	full bool
}

func (k *memoryState) Load() (agent.PersistentState, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.m, nil
}
func (k *memoryState) Save(m agent.PersistentState) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errors.New("no space left on device")
	}
	k.m = m
	return nil
}

// leased makes a VM one that runs on a lease.
func leased(vm agent.VM) agent.VM {
	vm.Spec.Leased = true
	return vm
}

type guarded struct {
	w    *simulated.World
	l    *leader
	wd   *wdog
	keep *memoryState
	boot string
	zero time.Time
}

func (g *guarded) options() agent.Options {
	o := agent.Options{Host: "h1", Hypervisor: g.w.Host("h1"), Leader: g.l, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
		Overhead:  func(hypervisor.Capacity) int64 { return 64 * mib }, Boot: g.boot, Machine: "m1", State: g.keep,
		Clock: func() lease.Instant { return time.Since(g.zero) }}
	if g.wd != nil {
		o.Watchdog = g.wd
	}
	return o
}

func (g *guarded) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, g.options()) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	}
}

// guard runs f with an agent whose leader wants these VMs.
func guard(t *testing.T, wd *wdog, vms []agent.VM, f func(t *testing.T, g *guarded)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *simulated.World) {
		g := &guarded{w: w, l: newLeader(vms...), wd: wd, keep: &memoryState{}, boot: "b1", zero: time.Now()}
		f(t, g)
		if wd != nil && wd.timer != nil {
			wd.timer.Stop()
		}
	})
}

func names(vms []hypervisor.VM) (out []string) {
	for _, vm := range vms {
		out = append(out, vm.Identity.VM)
	}
	slices.Sort(out)
	return out
}

var errCut = errors.New("the network is cut")

func (l *leader) cut(err error) { l.mu.Lock(); defer l.mu.Unlock(); l.down = err }

// A host that does not hear of the leader stops what runs on a lease when that is over, and nothing else.
func TestLeaseEnds(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a")), wanted("b")}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(10 * time.Second)
		equal(t, "with a lease", names(list(t, g.w)), []string{"a", "b"})
		g.l.cut(errCut)
		after(14 * time.Second) // a lease of 20 s is renewed every 5
		equal(t, "before its end", names(list(t, g.w)), []string{"a", "b"})
		after(8 * time.Second)
		equal(t, "after its end", names(list(t, g.w)), []string{"b"})
		after(time.Hour)
		equal(t, "long after its end", names(list(t, g.w)), []string{"b"})
		g.l.cut(nil)
		after(time.Minute)
		if reported := g.l.received(); !slices.Contains(reported, "a/1 lost stopped by its host, whose lease was over") {
			t.Errorf("the leader received %q", reported)
		}
	})
}

// An agent that hung, or was away, until its lease was over stops what ran on it before it asks for another: meanwhile the
// leader may have had a proof that the host is dead.
func TestLapsedLeaseStopsFirst(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a")), wanted("b")}, func(t *testing.T, g *guarded) {
		g.start(t)()
		stop := g.start(t)
		after(10 * time.Second)
		equal(t, "with a lease", names(list(t, g.w)), []string{"a", "b"})
		stop()
		after(time.Minute)
		g.l.renewing = func() { equal(t, "at a renewal", names(list(t, g.w)), []string{"b"}) }
		defer g.start(t)()
		count := func() int { g.l.mu.Lock(); defer g.l.mu.Unlock(); return len(g.l.renewals) }
		before := count()
		after(10 * time.Second)
		equal(t, "after its end", names(list(t, g.w)), []string{"b"})
		if count() == before {
			t.Error("the lease was not renewed when the VMs were gone")
		}
	})
}

func TestDisabledFencingStopsNothing(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(20 * time.Second)
		g.l.mu.Lock()
		g.l.fencingDisabled = true
		g.l.mu.Unlock()
		after(20 * time.Second)
		g.l.cut(errCut)
		after(time.Hour)
		equal(t, "VMs", names(list(t, g.w)), []string{"a"})
		if g.wd.ranOut() || g.wd.did[len(g.wd.did)-1] != "disarm" {
			t.Errorf("watchdog: %q, ran out %v", g.wd.did, g.wd.ranOut())
		}
	})
}

// The watchdog counts before the first VM that needs it starts, and the leader knows; it is
// disarmed only after the leader knows that it will be.
func TestWatchdogIsArmedWhileNeeded(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{wanted("b")}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(20 * time.Second)
		if len(g.wd.did) != 0 {
			t.Errorf("armed with nothing to guard: %q", g.wd.did)
		}
		g.l.order(func(d *agent.Desired) { d.VMs = append(d.VMs, leased(wanted("a"))) })
		after(3 * time.Second)
		equal(t, "VMs", names(list(t, g.w)), []string{"a", "b"})
		g.l.mu.Lock()
		last := g.l.renewals[len(g.l.renewals)-1]
		g.l.mu.Unlock()
		if last.Watchdog != bite || !last.Enforcing {
			t.Errorf("the leader received %+v", last)
		}
		after(time.Minute)
		g.l.order(func(d *agent.Desired) { d.VMs[1].Want = agent.WantAbsent })
		after(time.Minute)
		equal(t, "watchdog", g.wd.did, []string{"arm", "pet", "disarm"})
		if g.wd.ranOut() {
			t.Error("the watchdog ran out on a host that is well")
		}
	})
}

// No restartable VM starts before the leader knows that the watchdog is armed: if the host then lost its power, its silence would prove
// nothing, and the VM would start nowhere else.
func TestNoStartBeforeTheLeaderKnowsOfTheWatchdog(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{wanted("b")}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(20 * time.Second)
		unheard := func(is bool) { g.l.mu.Lock(); defer g.l.mu.Unlock(); g.l.armedUnheard = is }
		unheard(true)
		g.l.order(func(d *agent.Desired) { d.VMs = append(d.VMs, leased(wanted("a"))) })
		after(10 * time.Second)
		equal(t, "VMs", names(list(t, g.w)), []string{"b"})
		unheard(false)
		after(20 * time.Second)
		equal(t, "VMs", names(list(t, g.w)), []string{"a", "b"})
	})
}

// An agent that ends pets once more, so that the next one has all of the time-out to begin.
func TestAgentPetsAtItsEnd(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		after(20 * time.Second)
		for range 10 {
			after(700 * time.Millisecond)
			stop()
			g.wd.mu.Lock()
			if ago := time.Since(g.wd.last); ago != 0 {
				t.Errorf("ended %v after it had petted", ago)
			}
			g.wd.mu.Unlock()
			stop = g.start(t)
		}
		stop()
	})
}

// A hypervisor that does not answer when the lease is over cannot confirm that the VMs are gone: the watchdog is left to run
// out.
func TestWatchdogRunsOutWhereVMsCannotBeStopped(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(20 * time.Second)
		if err := g.w.Inject("h1", simulated.Fault{Call: simulated.AnyCall, Times: -1, Hang: true}); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if g.wd.ranOut() {
			t.Fatal("a hypervisor that hangs makes the watchdog run out though the lease is held")
		}
		cut := time.Now()
		g.l.cut(errCut)
		after(time.Minute)
		if !g.wd.ranOut() {
			t.Fatal("the watchdog was petted on")
		}
		if after := g.wd.bit.Sub(cut); after > 20*time.Second+bite {
			t.Errorf("it ran out %v after the cut", after)
		}
	})
}

// An agent that was restarted knows its lease again; one that comes too late stops VMs first.
func TestAgentRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration
		want []string
	}{{"within the lease", 8 * time.Second, []string{"a"}}, {"after it", time.Minute, nil}} {
		t.Run(c.name, func(t *testing.T) {
			guard(t, nil, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
				stop := g.start(t)
				after(12 * time.Second)
				stop()
				after(c.away)
				g.l.cut(errCut)
				stop = g.start(t)
				after(100 * time.Millisecond)
				equal(t, "VMs", names(list(t, g.w)), c.want)
				stop()
			})
		})
	}
}

// A VM that a host stopped for want of a lease may be started there again: a report of one generation means nothing for the
// next.
func TestStoppedVMStartsAgainHere(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(10 * time.Second)
		g.l.cut(errCut)
		after(time.Minute)
		g.l.cut(nil)
		after(time.Minute)
		g.l.order(func(d *agent.Desired) {
			d.VMs[0] = leased(wanted("a"))
			d.VMs[0].Spec.Generation = 2
		})
		after(time.Minute)
		equal(t, "VMs", names(list(t, g.w)), []string{"a"})
		if reported := g.l.received(); slices.ContainsFunc(reported, func(s string) bool { return strings.HasPrefix(s, "a/2 lost") }) {
			t.Errorf("the leader received %q", reported)
		}
	})
}

// slowly reports that a VM is destroyed long after it is.
type slowly struct{ hypervisor.Host }

func (h slowly) Destroy(ctx context.Context, vm string) error {
	err := h.Host.Destroy(ctx, vm)
	after(time.Minute)
	return err
}

// A VM that is being stopped for want of a lease did not end by itself. This holds also for a goroutine that sees the VM gone
// before the one that stopped it has its answer: an agent that hung until its lease was over does all of that at once.
func TestStoppedVMIsLostAtOnce(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		o := g.options()
		o.Hypervisor = slowly{o.Hypervisor}
		go func() { done <- agent.Run(ctx, o) }()
		after(10 * time.Second)
		g.l.cut(errCut)
		for len(list(t, g.w)) > 0 {
			after(100 * time.Millisecond)
		}
		g.l.cut(nil)
		after(3 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		reported := g.l.received()
		if !slices.Contains(reported, "a/1 lost stopped by its host, whose lease was over") || slices.ContainsFunc(reported, func(s string) bool { return strings.HasPrefix(s, "a/1 failed") }) {
			t.Errorf("the leader received %q", reported)
		}
	})
}

// An agent reports as lost also what the agent before it stopped for want of a lease.
func TestStoppedBeforeTheAgentWasRestarted(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		after(10 * time.Second)
		g.l.cut(errCut)
		after(time.Minute)
		stop()
		stop = g.start(t)
		defer stop()
		after(time.Minute)
		g.l.cut(nil)
		after(time.Minute)
		if reported := g.l.received(); !slices.Contains(reported, "a/1 lost stopped by its host, whose lease was over") {
			t.Errorf("the leader received %q", reported)
		}
	})
}

// Without a lease the watchdog runs out, however often the agent is started again meanwhile: the
// leader counts on it.
func TestRestartsDoNotPetWithoutLease(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		after(20 * time.Second)
		if err := g.w.Inject("h1", simulated.Fault{Call: simulated.AnyCall, Times: -1, Hang: true}); err != nil {
			t.Fatal(err)
		}
		cut := time.Now()
		g.l.cut(errCut)
		after(19 * time.Second)
		for range 10 {
			stop()
			after(2 * time.Second)
			stop = g.start(t)
			after(3 * time.Second)
		}
		stop()
		if !g.wd.ranOut() || g.wd.bit.Sub(cut) > 20*time.Second+bite {
			t.Errorf("ran out %v, %v after the cut", g.wd.ranOut(), g.wd.bit.Sub(cut))
		}
	})
}

// An agent whose disk is full does not report that it enforces its lease, if the next agent, which reads what was stored while
// fencing was disabled, would not.
func TestEnforcingIsStoredBeforeItIsReported(t *testing.T) {
	guard(t, &wdog{}, []agent.VM{leased(wanted("a"))}, func(t *testing.T, g *guarded) {
		set := func(fencingDisabled, full bool) {
			g.l.mu.Lock()
			g.l.fencingDisabled = fencingDisabled
			g.l.mu.Unlock()
			g.keep.mu.Lock()
			g.keep.full = full
			g.keep.mu.Unlock()
			after(20 * time.Second)
		}
		said := func() agent.Renewal {
			g.l.mu.Lock()
			defer g.l.mu.Unlock()
			return g.l.renewals[len(g.l.renewals)-1]
		}
		stop := g.start(t)
		defer func() { stop() }()
		set(true, false)
		set(false, true)
		if r := said(); r.Enforcing || r.Watchdog > 0 {
			t.Errorf("the leader received %+v", r)
		}
		set(false, false)
		if r := said(); !r.Enforcing || r.Watchdog == 0 {
			t.Errorf("with room again the leader received %+v", r)
		}
	})
}

// VMs that went with the machine are reported as lost, not as ended by themselves.
func TestHostRestart(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a")), wanted("b")}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		after(10 * time.Second)
		stop()
		for _, err := range []error{g.w.PowerOff("h1"), g.w.PowerOn("h1")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		g.boot = "b2"
		stop = g.start(t)
		after(10 * time.Second)
		stop()
		reported := strings.Join(g.l.received(), "\n")
		for _, id := range []string{"a", "b"} {
			if !strings.Contains(reported, id+"/1 lost went when its host was restarted") {
				t.Errorf("VM %s: the leader received\n%s", id, reported)
			}
		}
	})
}

func TestNoStartWithoutPermit(t *testing.T) {
	guard(t, nil, []agent.VM{wanted("a")}, func(t *testing.T, g *guarded) {
		g.l.refuse = true
		stop := g.start(t)
		defer stop()
		after(time.Minute)
		equal(t, "VMs", names(list(t, g.w)), nil)
		g.l.mu.Lock()
		g.l.refuse = false
		g.l.mu.Unlock()
		after(time.Minute)
		equal(t, "VMs", names(list(t, g.w)), []string{"a"})
	})
}

// Desired state that is older than what was seen, by this agent or the one before it, is not obeyed.
func TestOlderStateIsRefused(t *testing.T) {
	guard(t, nil, nil, func(t *testing.T, g *guarded) {
		g.l.want.Epoch, g.l.want.Index = 2, 50
		stop := g.start(t)
		after(10 * time.Second)
		stop()
		for _, c := range []struct {
			epoch, index uint64
			want         []string
		}{{1, 900, nil}, {2, 40, nil}, {2, 60, []string{"a"}}} {
			g.l.order(func(d *agent.Desired) {
				d.Epoch, d.Index, d.VMs = c.epoch, c.index, []agent.VM{wanted("a")}
			})
			stop := g.start(t)
			after(10 * time.Second)
			equal(t, "VMs", names(list(t, g.w)), c.want)
			stop()
		}
	})
}

// During a recovery freeze nothing changes, but the agent reports what runs.
func TestRecoveryFreeze(t *testing.T) {
	guard(t, nil, []agent.VM{wanted("a")}, func(t *testing.T, g *guarded) {
		stop := g.start(t)
		defer stop()
		after(10 * time.Second)
		g.l.order(func(d *agent.Desired) {
			d.Freeze = "held after a restore"
			d.VMs[0].Want = agent.WantAbsent
			d.VMs = append(d.VMs, wanted("b"))
		})
		after(time.Minute)
		equal(t, "VMs", names(list(t, g.w)), []string{"a"})
		if r := g.l.last(); len(r.Running) != 1 || r.Running[0].VM != "a" || r.Running[0].Generation != 1 {
			t.Errorf("reported of %+v", r.Running)
		}
	})
}

func TestKeepFile(t *testing.T) {
	f := agent.StateFile(t.TempDir() + "/agents/h1.json")
	if m, err := f.Load(); err != nil || !reflect.DeepEqual(m, agent.PersistentState{}) {
		t.Errorf("nothing kept: %+v, %v", m, err)
	}
	want := agent.PersistentState{Epoch: 3, Index: 9, Boot: "b", Lease: lease.Holder{Until: time.Hour, Had: true, Enforce: true}, Armed: true, Sending: map[string]agent.Sending{"m": {Open: 5, MaxBytes: gib}}}
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	if m, err := f.Load(); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("kept %+v, %v", m, err)
	}
	for _, path := range []string{string(f), string(f) + ".copy"} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := f.Load(); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%s is damaged, the other is whole: %+v, %v", path, m, err)
		}
	}
	for _, path := range []string{string(f), string(f) + ".copy"} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), string(f)) {
		t.Errorf("half a file was taken for what was kept: %v", err)
	}
}
