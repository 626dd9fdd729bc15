package agent_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// moving has the VM on its way to h2 by move 5.
func moving(change ...func(*agent.Move)) func(*agent.VM) {
	return func(vm *agent.VM) {
		seen(vm)
		vm.FreezeCPU, vm.Move = true, &agent.Move{Open: 5, To: "h2", URI: "h2", Permit: 3}
		for _, f := range change {
			f(vm.Move)
		}
	}
}

func incoming(m *agent.Move)    { m.Incoming = true }
func waits(m *agent.Move)       { m.Wait = true }
func paused(m *agent.Move)      { m.Paused = true }
func handedTo(m *agent.Move)    { m.Paused, m.SourceLost, m.Left = true, true, true }
func stands(v *hypervisor.VM)   { v.State = hypervisor.Paused }
func arriving(v *hypervisor.VM) { v.State = hypervisor.Incoming }

// The tests say what either host of a move does and reports. A VM is handed over once its target has memory and CPU for it,
// with no more than its share. The target lets no other VM grow into that. The report names the move and the last permit.
func TestDecideMoves(t *testing.T) {
	small := func(vms ...agent.VM) agent.Desired { // room for three VMs
		d := host(vms...)
		d.CPU, d.Memory = 3, 3*(gib+64*mib)
		return d
	}
	ended := func(why string) agent.Past { return agent.Past{Moved: map[string]agent.MoveEnd{"m": {Error: why}}} }
	handed := func(change ...func(*agent.Past)) agent.Past {
		p := agent.Past{Handed: map[string]bool{"m": true}}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	leased := func(vm *agent.VM) { vm.Spec.Leased = true }
	behind := func(age time.Duration) agent.Past { return agent.Past{Leftover: map[string]time.Duration{"m": age}} }
	const resume = "resume ek-m generation 1"
	for _, c := range []struct {
		name  string
		want  agent.Desired
		there []hypervisor.VM
		past  agent.Past
		ops   []string
	}{
		{"its target has no room yet", host(wanted("m", moving(waits))), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"hold ek-m: host h2 has no room for it yet"}},
		{"its target has no room for long", host(wanted("m", moving(waits))), []hypervisor.VM{runs("m")}, agent.Past{Waited: map[string]bool{"m": true}}, []string{"report m generation 1 stayed"}},
		{"it goes", host(wanted("m", moving())), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"move ek-m to h2"}},
		{"it takes more than its share: that shrinks first", host(wanted("m", moving(), capped(0.5))), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"cap ek-m: 1.0000 -> 0.5000 cores"}},
		{"it takes less than its share: it goes with that", host(wanted("m", moving())), []hypervisor.VM{runs("m", cores(0.5))}, agent.Past{}, []string{"move ek-m to h2"}},
		{"it is on its way", host(wanted("m", moving())), []hypervisor.VM{runs("m")}, agent.Past{Moving: map[string]bool{"m": true}}, nil},
		{"it went", host(wanted("m", moving())), nil, agent.Past{}, []string{"report m generation 1 lost"}},
		{"it was handed over, and stands paused there", host(wanted("m", moving(paused))), nil, handed(), []string{"report m generation 1 left"}},
		{"it went, and it is not known that it was handed over", host(wanted("m", moving(paused))), nil, agent.Past{}, []string{"report m generation 1 lost"}},
		{"it went with the machine", host(wanted("m", moving(paused))), nil, handed(func(p *agent.Past) { p.Fresh = true }), []string{"report m generation 1 lost"}},
		{"it was stopped, as the lease was over", host(wanted("m", moving(paused))), nil, handed(func(p *agent.Past) { p.Lost = map[string]uint64{"m": 1} }), []string{"report m generation 1 lost"}},
		{"it may have been stopped, as the lease was over", host(wanted("m", moving(paused), leased)), nil, handed(func(p *agent.Past) { p.Lapsed = true }), []string{"report m generation 1 lost"}},
		{"it was handed over by a move that does not leave it paused", host(wanted("m", moving())), nil, handed(), []string{"report m generation 1 lost"}},
		{"it is suspended", host(wanted("m", moving(paused))), []hypervisor.VM{runs("m", stands)}, agent.Past{}, []string{"report m generation 1 stayed"}},
		{"it is suspended, and goes by a move that does not leave it paused", host(wanted("m", moving())), []hypervisor.VM{runs("m", stands)}, agent.Past{}, []string{"move ek-m to h2"}},
		{"its migration left it paused here", host(wanted("m", moving(paused))), []hypervisor.VM{runs("m", leftover)}, behind(5 * time.Second), []string{resume}},
		{"its migration left it paused here a moment ago", host(wanted("m", moving(paused))), []hypervisor.VM{runs("m", leftover)}, behind(4 * time.Second), nil},
		{"its migration left it paused here, and its move is closed", host(wanted("m", seen)), []hypervisor.VM{runs("m", leftover)}, behind(5 * time.Second),
			[]string{resume}},
		{"it stayed", host(wanted("m", moving())), []hypervisor.VM{runs("m")}, ended("broken pipe"), []string{"report m generation 1 stayed"}},
		{"another generation of it runs", host(wanted("m", moving(), generation(2))), []hypervisor.VM{runs("m")}, agent.Past{}, nil},
		{"it is to stop before it went", host(wanted("m", moving(), stop)), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"report m generation 1 stayed"}},

		{"one that comes has room", small(wanted("m", moving(incoming, waits)), wanted("a", seen), wanted("b", seen)), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"report m generation 1 room"}},
		{"one that comes has no CPU", small(wanted("m", moving(incoming, waits), capped(1.5)), wanted("a", seen), wanted("b", seen)), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-m: there is no room for it yet"}},
		{"one that comes has no memory", small(wanted("m", moving(incoming, waits), withCharged(3*gib/2)), wanted("a", seen), wanted("b", seen)), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-m: there is no room for it yet"}},
		{"others shrink for it, and that it has room is reported once they have", small(wanted("m", moving(incoming, waits), capped(1.5)), wanted("a", seen, capped(0.5)), wanted("b", seen)), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-m: there is no room for it yet", "cap ek-a: 1.0000 -> 0.5000 cores"}},
		{"nothing grows into its room", small(wanted("m", moving(incoming)), wanted("a", seen), wanted("b", seen, capped(1.5))), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-b: 0.500 cores more do not fit yet"}},
		{"nothing starts in its room", small(wanted("m", moving(incoming)), wanted("a", seen), wanted("b", seen), wanted("c")), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-c: 1.000 cores do not fit yet"}},
		{"what of it is there is counted once", small(wanted("m", moving(incoming)), wanted("a", seen), wanted("b")), []hypervisor.VM{runs("a"), runs("m", arriving)}, agent.Past{},
			[]string{"start ek-b generation 1", "report b generation 1 running"}},
		{"it comes with less than its share, which it may grow to", small(wanted("m", moving(incoming)), wanted("a", seen), wanted("b")), []hypervisor.VM{runs("a", cores(1.2)), runs("m", arriving, cores(0.5))}, agent.Past{},
			[]string{"cap ek-a: 1.2000 -> 1.0000 cores", "start ek-b generation 1", "report b generation 1 running"}},
		{"it is there", small(wanted("m", moving(incoming))), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"report m generation 1 arrived"}},
		{"it stands there, and its source has not said that it left", small(wanted("m", moving(incoming, paused))), []hypervisor.VM{runs("m", stands)}, agent.Past{}, nil},
		{"it stands there, and its source said that it left", small(wanted("m", moving(incoming, handedTo))), []hypervisor.VM{runs("m", stands)}, agent.Past{}, []string{resume}},
		{"it runs there, and its source has not said that it left", small(wanted("m", moving(incoming, paused))), []hypervisor.VM{runs("m")}, agent.Past{}, nil},
		{"it cannot be resumed", small(wanted("m", moving(incoming, handedTo))), []hypervisor.VM{runs("m", stands)}, agent.Past{Unresumable: map[string]bool{"m": true}}, []string{"destroy ek-m"}},
		{"it was resumed, and stands again", small(wanted("m", moving(incoming, handedTo))), []hypervisor.VM{runs("m", stands)}, agent.Past{Resumed: map[string]bool{"m": true}}, []string{"report m generation 1 arrived"}},
		{"it goes on there", small(wanted("m", moving(incoming, handedTo))), []hypervisor.VM{runs("m")}, agent.Past{}, []string{"report m generation 1 arrived"}},
		{"its source left, and it is not there", small(wanted("m", moving(incoming, handedTo))), nil, agent.Past{}, []string{"report m generation 1 lost"}},
		{"what an earlier move left paused", small(wanted("m", moving(incoming, waits))), []hypervisor.VM{runs("m", stands)}, behind(5 * time.Second),
			[]string{"hold ek-m: an earlier migration left it behind here", "destroy ek-m generation 1, which a migration left behind"}},
		{"it was paused before it came by a move that does not leave it paused", small(wanted("m", moving(incoming))), []hypervisor.VM{runs("m", stands)}, agent.Past{}, []string{"report m generation 1 arrived"}},
		{"its source is gone, and it did not come", small(wanted("m", moving(incoming, func(m *agent.Move) { m.SourceLost = true }))), nil, agent.Past{}, []string{"report m generation 1 lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := agent.Decide(c.want, c.there, c.past)
			if diff := cmp.Diff(append([]string{}, c.ops...), texts(ops)); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			for _, op := range ops {
				if report, is := op.(agent.ReportStatus); is && report.Status.VM == "m" && (report.Status.Move != 5 || report.Status.Permit != 3) {
					t.Errorf("it reports move %d and permit %d: %s", report.Status.Move, report.Status.Permit, report)
				}
			}
		})
	}
}

// withM is a world of two hosts; on the first runs VM m, which takes 16 s to move.
func withM(t *testing.T) *simulated.World {
	t.Helper()
	timing := simulated.DefaultTiming()
	timing.Link = 64 << 20
	w, err := simulated.New(simulated.Options{Hosts: 2, CPU: 4, Memory: 8 * gib, Timing: &timing})
	if err != nil {
		t.Fatal(err)
	}
	spec := wanted("m").Spec
	for _, f := range []func(context.Context, hypervisor.Spec) error{w.Host("h1").Define, w.Host("h1").Start} {
		if err := f(context.Background(), spec); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// twoHosts has an agent on the first of two, where VM m runs and is to move to the other.
func twoHosts(t *testing.T, before func(w *simulated.World, l *leader), then func(w *simulated.World, l *leader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		l := newLeader(wanted("m", moving()))
		l.deaf = true
		before(w, l)
		end := run(t, w, l)
		after(40 * time.Second)
		then(w, l)
		end()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func on(t *testing.T, w *simulated.World, host string) bool {
	t.Helper()
	vms, err := w.Host(host).List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(vms, func(vm hypervisor.VM) bool { return vm.Identity.VM == "m" && vm.State != hypervisor.Incoming })
}

// Nothing is handed over without a permit, and the agent reports that the VM stayed.
func TestHandOverNeedsPermit(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		twoHosts(t, func(_ *simulated.World, l *leader) { l.refuse = refuse }, func(w *simulated.World, l *leader) {
			if on(t, w, "h1") != refuse || on(t, w, "h2") == refuse {
				t.Errorf("permits are refused: %v; it runs on h1: %v, on h2: %v", refuse, on(t, w, "h1"), on(t, w, "h2"))
			}
			if reported := strings.Join(l.received(), "\n"); strings.Contains(reported, "m/1 stayed not permitted") != refuse {
				t.Errorf("permits are refused: %v; reported %q", refuse, reported)
			}
		})
	}
}

// A migration that an agent before this one began does not outlive the report that the VM stayed.
func TestStaysForGood(t *testing.T) {
	twoHosts(t, func(w *simulated.World, l *leader) {
		l.want.VMs[0].Want = agent.WantStop
		l.want.Index = 8
		go func() { _, _ = w.Host("h1").Migrate(context.Background(), "m", hypervisor.Migration{To: "h2"}) }()
		synctest.Wait()
	}, func(w *simulated.World, l *leader) {
		if reported := strings.Join(l.received(), "\n"); !strings.Contains(reported, "m/1 stayed") {
			t.Errorf("reported %q", reported)
		}
		if !on(t, w, "h1") || on(t, w, "h2") {
			t.Errorf("it was reported to have stayed; it runs on h1: %v, on h2: %v", on(t, w, "h1"), on(t, w, "h2"))
		}
	})
}

// After a restore a host that was started again reports no VM while it may be on its way by a migration of before.
func TestOrphansEndFirst(t *testing.T) {
	twoHosts(t, func(w *simulated.World, l *leader) {
		l.want.VMs[0].Move, l.want.Freeze = nil, "held after a restore"
		go func() { _, _ = w.Host("h1").Migrate(context.Background(), "m", hypervisor.Migration{To: "h2"}) }()
		synctest.Wait()
	}, func(w *simulated.World, l *leader) {
		if !on(t, w, "h1") || on(t, w, "h2") {
			t.Errorf("it went: it runs on h1: %v, on h2: %v", on(t, w, "h1"), on(t, w, "h2"))
		}
		for _, r := range l.reports {
			if len(r.Running) != 1 || r.Running[0].Leaving {
				t.Errorf("reported of %+v", r.Running)
			}
		}
	})
}

// A list of VMs from before the host knew of a move proves nothing of which host runs the VM since.
func TestListedBeforeTheMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader()
		l.deaf = true
		h := &hook{Host: w.Host("h1")}
		h.listed = func() { // the VM comes by one move, and is to leave by the next, while the agent still has the list of before
			h.listed = nil
			spec := wanted("m").Spec
			if err := h.Define(context.Background(), spec); err != nil {
				t.Error(err)
			}
			if err := h.Start(context.Background(), spec); err != nil {
				t.Error(err)
			}
			l.order(func(d *agent.Desired) { d.VMs = []agent.VM{wanted("m", moving(waits))} })
		}
		defer runOn(t, h, l)()
		after(10 * time.Second)
		for _, reported := range l.received() {
			t.Errorf("reported: %s", reported)
		}
	})
}

// hook is called after each list.
type hook struct {
	hypervisor.Host
	listed func()
}

func (h *hook) List(ctx context.Context) ([]hypervisor.VM, error) {
	vms, err := h.Host.List(ctx)
	if h.listed != nil {
		h.listed()
	}
	return vms, err
}

// resuming is a leader that lets all be resumed; then hears of each question.
type resuming struct {
	*leader
	then func(agent.PermitRequest)
}

func (l *resuming) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	p, err := l.leader.Permit(ctx, q)
	p.Resumes = q.Resumes
	l.then(q)
	return p, err
}

// A VM that was resumed at its source, and ended there while the leader was away, did not leave for its target: what stands there is older.
func TestResumedHereIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		l := newLeader(wanted("m", moving(paused)))
		l.deaf = true
		if err := w.KeepSources("h1", 1); err != nil {
			t.Fatal(err)
		}
		end := runOn(t, w.Host("h1"), &resuming{l, func(q agent.PermitRequest) {
			if len(q.Resumes) > 0 {
				go l.cut(errCut)
			}
		}})
		after(time.Minute)
		if !on(t, w, "h1") {
			t.Fatal("its source did not resume it")
		}
		after(time.Hour)
		if err := w.Host("h1").Destroy(context.Background(), "m"); err != nil { // it ends
			t.Fatal(err)
		}
		l.cut(nil)
		after(10 * time.Second)
		if st := l.endOf(agent.PhaseLost); st.Left || st.VM == "" {
			t.Errorf("its source reports %+v, want that it is lost and did not leave", st)
		}
		end()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A VM that is suspended on its host, and came there by a migration whose figures are still kept, is not taken for a leftover.
func TestSuspendedIsNotOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		if _, err := w.Host("h1").Migrate(context.Background(), "m", hypervisor.Migration{To: "h2", Paused: true}); err != nil {
			t.Fatal(err)
		}
		l := newLeader(wanted("m", seen))
		l.deaf = true
		var cleared atomic.Int64
		end := runOn(t, w.Host("h2"), &resuming{l, func(q agent.PermitRequest) { cleared.Add(int64(len(q.Leftovers))) }})
		after(2 * time.Minute)
		l.order(func(d *agent.Desired) { d.VMs = []agent.VM{wanted("m", moving(waits))} })
		after(5 * time.Second)
		if vms, err := w.Host("h2").List(context.Background()); err != nil || len(vms) != 1 || cleared.Load() > 0 {
			t.Errorf("its host lists %+v, %v, and asked %d times to destroy it", vms, err, cleared.Load())
		}
		end()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A source does not resume its VM before it has kept, on disk, that the move did not take it: the agent after it must know.
func TestResumedHereIsKeptFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withM(t)
		l := newLeader(wanted("m", moving(paused)))
		l.deaf = true
		keep := &memoryState{}
		full := func(is bool) {
			keep.mu.Lock()
			defer keep.mu.Unlock()
			keep.full = is
		}
		if err := w.KeepSources("h1", 1); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		o := (&guarded{w: w, l: l, keep: keep, boot: "b1", zero: time.Now()}).options()
		o.Leader = &resuming{l, func(q agent.PermitRequest) {
			if asked.Add(int64(len(q.Resumes))) == 1 {
				full(true)
			}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx, o) }()
		after(time.Minute)
		if on(t, w, "h1") || asked.Load() < 2 {
			t.Errorf("it runs: %v; asked %d times", on(t, w, "h1"), asked.Load())
		}
		full(false)
		after(20 * time.Second)
		if m, _ := keep.Load(); !on(t, w, "h1") || !m.Sending["m"].Kept {
			t.Errorf("it runs: %v; kept: %+v", on(t, w, "h1"), m.Sending)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
