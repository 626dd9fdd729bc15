package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leader gives orders to one host and follows its reports, as the real one does.
type leader struct {
	mu              sync.Mutex
	want            agent.Desired
	changed         chan struct{}
	reports         []agent.Report
	down            error // what every call fails with
	refuse          bool  // permits
	fencingDisabled bool  // leases stop nothing
	deaf            bool  // reports change nothing
	armedUnheard    bool  // renewals that report an armed watchdog fail
	renewals        []agent.Renewal
	renewing        func() // is called at every renewal
}

func newLeader(vms ...agent.VM) *leader {
	return &leader{want: host(vms...), changed: make(chan struct{})}
}

func (l *leader) Desired(context.Context, string) (agent.Desired, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		return agent.Desired{}, l.changed, l.down
	}
	d := l.want
	d.VMs = slices.Clone(d.VMs)
	return d, l.changed, nil
}

func (l *leader) Report(_ context.Context, r agent.Report) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		return l.down
	}
	l.reports = append(l.reports, r)
	if l.deaf {
		return nil
	}
	for _, st := range r.Statuses {
		at := slices.IndexFunc(l.want.VMs, func(vm agent.VM) bool { return vm.Spec.Identity.VM == st.VM && vm.Spec.Generation == st.Generation })
		if at < 0 {
			continue
		}
		vm := &l.want.VMs[at]
		if st.Phase == agent.PhaseStarting {
			vm.Waits = st.Reason
			l.next()
			continue
		}
		vm.MayStart = false
		switch {
		case st.SourceLost:
			l.want.VMs = slices.Delete(l.want.VMs, at, at+1)
		case st.Phase == agent.PhaseRunning:
			vm.Seen, vm.EndKnown, vm.ChargedMemory = true, false, max(st.ChargedMemory, vm.Spec.Balloon)
		default:
			vm.Seen, vm.EndKnown = false, true
		}
		l.next()
	}
	return nil
}

// Permit grants what is to be started by the state at hand.
func (l *leader) Permit(_ context.Context, q agent.PermitRequest) (agent.Permit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := agent.Permit{Epoch: l.want.Epoch, Index: l.want.Index}
	for _, i := range q.Starts {
		for _, vm := range l.want.VMs {
			if vm.Spec.Identity.VM == i.VM && vm.Spec.Generation == i.Generation && vm.MayStart && !l.refuse {
				p.Granted = append(p.Granted, i)
			}
		}
	}
	for _, m := range q.Moves {
		if !l.refuse {
			p.Moves = append(p.Moves, m)
		}
	}
	if !l.refuse {
		p.Leftovers = q.Leftovers
	}
	if l.refuse {
		p.Refused = "a test"
	}
	return p, l.down
}

// Renew grants a lease of 20 s.
func (l *leader) Renew(_ context.Context, r agent.Renewal) (agent.Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewals = append(l.renewals, r)
	if l.renewing != nil {
		l.renewing()
	}
	if l.armedUnheard && r.Watchdog > 0 {
		return agent.Grant{}, errCut
	}
	return agent.Grant{Epoch: l.want.Epoch, Index: l.want.Index, Lease: 20 * time.Second, Enforce: !l.fencingDisabled}, l.down
}

// next makes the state that it is a newer one. l is locked.
func (l *leader) next() {
	l.want.Index++
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *leader) order(f func(d *agent.Desired)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.want)
	l.next()
}

// received are the statuses of VMs, but for why they wait: see waits.
func (l *leader) received() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []string{}
	for _, r := range l.reports {
		for _, st := range r.Statuses {
			if st.Phase == agent.PhaseStarting {
				continue
			}
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s/%d %s %s", st.VM, st.Generation, st.Phase, st.Reason)))
		}
	}
	return out
}

func (l *leader) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reports)
}

func (l *leader) last() agent.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reports) == 0 {
		return agent.Report{}
	}
	return l.reports[len(l.reports)-1]
}

// world of one host of 4 cores and 8 GiB.
func world(t *testing.T) *simulated.World {
	t.Helper()
	timing := simulated.DefaultTiming()
	w, err := simulated.New(simulated.Options{Hosts: 1, CPU: 4, Memory: 8 * gib, Timing: &timing})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run an agent in the background. Within a bubble of synctest; stop waits for its end.
func run(t *testing.T, w *simulated.World, l agent.Leader) (stop func()) {
	t.Helper()
	return runOn(t, w.Host("h1"), l)
}

func runOn(t *testing.T, h hypervisor.Host, l agent.Leader) (stop func()) {
	t.Helper()
	return runLogged(t, h, l, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func runLogged(t *testing.T, h hypervisor.Host, l agent.Leader, log *slog.Logger) (stop func()) {
	t.Helper()
	return runSampling(t, h, l, log, 0)
}

// runSampling is runLogged with so long between two measurements for the leader; 0: the default.
func runSampling(t *testing.T, h hypervisor.Host, l agent.Leader, log *slog.Logger, every time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{Host: "h1", Hypervisor: h, Leader: l, Log: log, SampleEvery: every,
			Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:  func(hypervisor.Capacity) int64 { return 64 * mib }})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	}
}

// after lets so much time pass in the bubble.
func after(d time.Duration) {
	time.Sleep(d) // sleep: in a bubble of synctest, where time is fake
	synctest.Wait()
}

func list(t *testing.T, w *simulated.World) []hypervisor.VM {
	t.Helper()
	vms, err := w.Host("h1").List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return vms
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q\nwant %q", what, got, want)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, w *simulated.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world(t)
		f(t, w)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunStartsStopsAndDeletes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		stopAgent := run(t, w, l)
		defer stopAgent()
		after(5 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running", "b/1 running"})
		if r := l.last(); r.Index != l.want.Index || len(r.Samples) != 2 || r.Error != "" || !r.Reach {
			t.Errorf("report %+v, want all in force at %d", r, l.want.Index)
		}
		quiet := len(l.received())
		l.order(func(d *agent.Desired) { d.VMs[0].Want, d.VMs[1].Want = agent.WantStop, agent.WantAbsent })
		after(5 * time.Second)
		equal(t, "reported", l.received()[quiet:], []string{"b/1 stopped deleted", "a/1 stopped stopped as asked"})
		if vms := list(t, w); len(vms) != 0 {
			t.Errorf("still there: %+v", vms)
		}
	})
}

// A guest that does not power off loses its plug after the grace, not before.
func TestRunStopTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.IgnoreStop("h1", "a", true); err != nil {
			t.Fatal(err)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Want = agent.WantStop })
		after(29 * time.Second)
		if len(list(t, w)) != 1 {
			t.Error("destroyed within its grace")
		}
		after(4 * time.Second)
		if len(list(t, w)) != 0 {
			t.Error("not destroyed after its grace")
		}
	})
}

// A stop that did not reach the hypervisor starts no grace.
func TestRunStopThatReachedNoGuest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.Inject("h1", simulated.Fault{Call: simulated.CallStop, Times: -1}); err != nil {
			t.Fatal(err)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Want = agent.WantStop })
		after(time.Minute)
		if len(list(t, w)) != 1 {
			t.Fatal("its plug was pulled though it was not asked to power off")
		}
		if err := w.ClearFaults("h1"); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		equal(t, "reported", l.received()[1:], []string{"a/1 stopped stopped as asked"})
	})
}

// While the hypervisor is out of reach nothing is reported gone; when it is back all is as before.
func TestRunOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		if r := l.last(); r.Reach || r.Host != "h1" || r.Error == "" || r.Index != 0 {
			t.Errorf("report %+v, want out of reach", r)
		}
		equal(t, "reported", l.received(), []string{"a/1 running"})
		if err := w.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		if r := l.last(); !r.Reach || r.Error != "" || r.Index == 0 {
			t.Errorf("report %+v, want all well", r)
		}
		equal(t, "reported", l.received(), []string{"a/1 running"})
	})
}

// A hypervisor that is out of reach when the agent starts is waited for, and the leader knows of which host.
func TestRunBeforeTheHypervisor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		if err := w.Disconnect("h1"); err != nil {
			t.Fatal(err)
		}
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(time.Minute)
		if r := l.last(); r.Host != "h1" || r.Reach || r.Error == "" {
			t.Errorf("report %+v, want h1 out of reach", r)
		}
		if err := w.Reconnect("h1"); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running"})
	})
}

// Power lost and back: what ran is reported ended, and nothing starts by itself.
func TestRunPowerLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := errors.Join(w.PowerOff("h1")); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		equal(t, "reported while it is off", l.received(), []string{"a/1 running"})
		if err := w.PowerOn("h1"); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		equal(t, "reported", l.received(), []string{"a/1 running", "a/1 failed ended by itself"})
		if len(list(t, w)) != 0 {
			t.Error("something runs")
		}
	})
}

// The reason the hypervisor gave goes with the report.
func TestRunCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.Crash("h1", "a"); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running", "a/1 failed ended by itself: crashed"})
	})
}

// An event that was lost is made up for by the next look.
func TestRunLostEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := errors.Join(w.LoseEvents("h1", 10), w.Crash("h1", "a")); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running", "a/1 failed ended by itself"})
	})
}

// How failed starts are tried again, and when they are given up.
func TestRunFailedStarts(t *testing.T) {
	own := errors.New("no space")
	for _, c := range []struct {
		name    string
		fault   simulated.Fault
		after   time.Duration
		reports []string
	}{
		{"can never be", simulated.Fault{Call: simulated.CallStart, Times: -1, Err: hypervisor.ErrInvalid}, 5 * time.Second,
			[]string{"a/1 failed simulated host h1: start a: the host cannot do this"}},
		{"three attempts", simulated.Fault{Call: simulated.CallStart, Times: -1, Err: own}, 10 * time.Second,
			[]string{"a/1 failed simulated host h1: start a: no space (after 3 attempts)"}},
		{"twice, then it works", simulated.Fault{Call: simulated.CallStart, Times: 2, Err: own}, 10 * time.Second, []string{"a/1 running"}},
		{"out of reach is no attempt", simulated.Fault{Call: simulated.CallStart, Times: 8}, time.Minute, []string{"a/1 running"}},
		{"it took effect, the answer was lost", simulated.Fault{Call: simulated.CallStart, Times: 1, After: true}, 10 * time.Second, []string{"a/1 running"}},
		{"a hang", simulated.Fault{Call: simulated.CallDefine, Times: 1, Hang: true}, time.Minute, []string{"a/1 running"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *simulated.World) {
				if err := w.Inject("h1", c.fault); err != nil {
					t.Fatal(err)
				}
				l := newLeader(wanted("a"))
				defer run(t, w, l)()
				after(c.after)
				equal(t, "reported", l.received(), c.reports)
			})
		})
	}
}

// Starts that fail are spaced out, and one VM's trouble does not hold up the others.
func TestRunTroubleOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.Inject("h1", simulated.Fault{Call: simulated.CallUndefine, Times: -1, Err: errors.New("pool is not active")}); err != nil {
			t.Fatal(err)
		}
		l.order(func(d *agent.Desired) {
			d.VMs[0].Want = agent.WantAbsent
			d.VMs = append(d.VMs, wanted("b"))
		})
		from := l.count()
		after(time.Minute)
		equal(t, "reported", l.received(), []string{"a/1 running", "b/1 running"})
		if r := l.last(); !strings.Contains(r.Error, "pool is not active") || r.Index != 0 && r.Index == l.want.Index {
			t.Errorf("report %+v, want the error, and not all in force", r)
		}
		if n := l.count() - from; n > 150 {
			t.Errorf("%d reports in a minute: it does not pause", n)
		}
		if err := w.ClearFaults("h1"); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		equal(t, "reported", l.received()[2:], []string{"a/1 stopped deleted"})
	})
}

// A new agent on a host where VMs run takes them over as they are.
func TestRunAdopts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"), wanted("b"))
		stop := run(t, w, l)
		after(5 * time.Second)
		before := list(t, w)
		stop()
		if !slices.Equal(list(t, w), before) {
			t.Error("the agent's end changed the host")
		}
		if err := w.Inject("h1", simulated.Fault{Call: simulated.CallStart, Times: -1}); err != nil {
			t.Fatal(err)
		}
		said := len(l.received())
		defer run(t, w, l)()
		after(20 * time.Second)
		if now := list(t, w); !slices.Equal(now, before) {
			t.Errorf("VMs are %+v, were %+v", now, before)
		}
		equal(t, "reported again", l.received()[said:], []string{})
		if r := l.last(); r.Error != "" || r.Index == 0 {
			t.Errorf("report %+v", r)
		}
	})
}

// The VM is started, and the leader cannot be reached. The agent reports the start later, and nothing starts twice.
func TestRunWithoutALeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(10 * time.Millisecond) // the start is under way: it takes 20 ms
		l.mu.Lock()
		l.down = errors.New("no leader")
		l.mu.Unlock()
		after(time.Minute)
		equal(t, "reported", l.received(), []string{})
		if len(list(t, w)) != 1 {
			t.Fatal("it does not run")
		}
		l.mu.Lock()
		l.down = nil
		l.mu.Unlock()
		after(10 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running"})
	})
}

// Orders older than what was seen before are refused.
func TestRunRefusesOldOrders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		l.order(func(d *agent.Desired) { d.Index, d.VMs[0].Want = 2, agent.WantAbsent })
		after(time.Minute)
		if len(list(t, w)) != 1 {
			t.Error("an old order was followed")
		}
		l.order(func(d *agent.Desired) { d.Index = 100 })
		after(10 * time.Second)
		if len(list(t, w)) != 0 {
			t.Error("a new order was not followed")
		}
	})
}

// A balloon that does not move is tried again now and then, without a busy loop, and the leader goes on counting the memory.
// Once it moves, the agent reports it once.
func TestRunStuckBalloon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		if err := w.StickBalloon("h1", "a", true); err != nil {
			t.Fatal(err)
		}
		l.order(func(d *agent.Desired) { d.VMs[0].Spec.Balloon = gib / 2 })
		from := l.count()
		after(5 * time.Minute)
		equal(t, "reported", l.received(), []string{"a/1 running"})
		if n := l.count() - from; n > 1200 {
			t.Errorf("%d reports in five minutes", n)
		}
		if err := w.StickBalloon("h1", "a", false); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		equal(t, "reported", l.received(), []string{"a/1 running", "a/1 running"})
		if charged := l.want.VMs[0].ChargedMemory; charged != gib/2 {
			t.Errorf("the leader counts %d bytes", charged)
		}
	})
}

// No CPU left for our VMs: they get the least cap that there is, and the agent rests.
func TestRunNoShare(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		l.order(func(d *agent.Desired) { d.CPU, d.VMs[0].Spec.CPU = 0, hypervisor.CPU{} })
		from := l.count()
		after(time.Minute)
		if vm := list(t, w)[0]; vm.CPU.Cap != 0.001 {
			t.Errorf("its cap is %v", vm.CPU.Cap)
		}
		if n := l.count() - from; n > 100 {
			t.Errorf("%d reports in a minute", n)
		}
	})
}
