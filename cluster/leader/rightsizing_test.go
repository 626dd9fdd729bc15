package leader_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// rightsizedHost is one host with VMs of known use, that follows what is wanted of it; its leader runs beside it in a bubble.
type rightsizedHost struct {
	*leader.Service
	t         *testing.T
	store     *state.Store
	use       map[string]state.Resources // by VM name
	press     map[string]bool
	available *agent.Available
	ahead     time.Duration // its clock is, of the leader's
	mute      bool          // it forecasts nothing new
	late      time.Duration // what it forecasts rests on what was measured so long ago
	other     bool          // there is a second host, h2, without VMs, to which no move ever comes
	end       func()        // of the term
}

// lead begins a term; the one before it has ended.
func (h *rightsizedHost) lead(term uint64) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	if err := h.StartTerm(ctx, term, "c"); err != nil {
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	h.end = func() { cancel(); <-done }
}

func recommendationIn(t *testing.T, f func(t *testing.T, h *rightsizedHost)) {
	synctest.Test(t, func(t *testing.T) {
		store := state.New()
		h := &rightsizedHost{t: t, store: store, use: map[string]state.Resources{}, press: map[string]bool{}}
		h.Service = leader.New(leader.Options{State: store, Log: &lateLog{store: store}, Settings: state.DefaultSettings(), Logger: slog.New(slog.DiscardHandler),
			Inspect: func(img state.Image) (state.Image, error) { return img, nil },
			Clock:   func() lease.Instant { return lease.Instant(time.Now().UnixNano()) }})
		h.lead(1)
		defer func() { h.end() }()
		h.report()
		if _, _, err := h.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		f(t, h)
	})
}

// report the leader what there is: each VM that is to run runs, and holds what it is to hold.
func (h *rightsizedHost) report() {
	h.t.Helper()
	ctx, now := h.t.Context(), time.Now().Add(h.ahead)
	if _, err := h.Renew(ctx, agent.Renewal{Host: "h1", Boot: "b", At: time.Duration(now.UnixNano())}); err != nil && !strings.Contains(err.Error(), "not found") {
		h.t.Fatal(err)
	}
	want, _, err := h.Desired(ctx, "h1")
	if err != nil {
		h.t.Fatal(err)
	}
	r := agent.Report{Host: "h1", Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30}, Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Overhead: 64 << 20, Reach: true,
		Running: []agent.Instance{}, Epoch: want.Epoch, Index: want.Index, Samples: []agent.Sample{}, Available: h.available}
	for _, vm := range want.VMs {
		id, name := vm.Spec.Identity.VM, vm.Spec.Title
		st := agent.Status{VM: id, Generation: vm.Spec.Identity.Generation, Phase: agent.PhaseRunning, ChargedMemory: vm.Spec.Balloon}
		if vm.Want != agent.WantRun {
			if !vm.EndKnown {
				st.Phase, st.ChargedMemory = agent.PhaseStopped, 0
				r.Statuses = append(r.Statuses, st)
			}
			continue
		}
		r.Statuses = append(r.Statuses, st)
		use, known := h.use[name]
		if !known {
			continue
		}
		ahead := func(mean float64) agent.Ahead {
			return agent.Ahead{Mean: slices.Repeat([]float64{mean}, 10), Deviation: slices.Repeat([]float64{mean / 100}, 10), Trusted: true}
		}
		if !h.mute {
			r.Estimates = append(r.Estimates, agent.Estimate{VM: id, Generation: st.Generation, Until: now.Add(-h.late), CPU: ahead(use.CPU), Memory: ahead(float64(use.Memory))})
		}
		s := agent.Sample{VM: id, Generation: st.Generation, At: now, State: "running", Cap: vm.Spec.CPU.Cap, Used: min(use.CPU, vm.Spec.CPU.Cap), Balloon: vm.Spec.Balloon,
			Memory: min(use.Memory, vm.Spec.Balloon), Guest: &agent.Guest{Follows: true}}
		if h.press[name] {
			s.Guest.Pressure = "it swaps"
		}
		r.Samples = append(r.Samples, s)
		r.Running = append(r.Running, agent.Instance{VM: id, Name: vm.Spec.Name, Generation: st.Generation})
	}
	if err := h.Report(ctx, r); err != nil {
		h.t.Fatal(err)
	}
}

// reportOther reports a host that is empty.
func (h *rightsizedHost) reportOther() {
	h.t.Helper()
	ctx, now := h.t.Context(), time.Now().Add(h.ahead)
	if _, err := h.Renew(ctx, agent.Renewal{Host: "h2", Boot: "b", At: time.Duration(now.UnixNano())}); err != nil && !strings.Contains(err.Error(), "not found") {
		h.t.Fatal(err)
	}
	want, _, err := h.Desired(ctx, "h2")
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.Report(ctx, agent.Report{Host: "h2", Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30}, Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Overhead: 64 << 20, Reach: true,
		Running: []agent.Instance{}, Epoch: want.Epoch, Index: want.Index, Samples: []agent.Sample{}}); err != nil {
		h.t.Fatal(err)
	}
}

// pass so long, with a report each 10 s.
func (h *rightsizedHost) pass(d time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(10 * time.Second) // sleep: the bubble's clock
		if h.report(); h.other {
			h.reportOther()
		}
		synctest.Wait()
	}
}

func (h *rightsizedHost) mode(x state.RightsizingSettings) {
	h.t.Helper()
	if _, err := h.Settings(h.t.Context(), func(s *state.Settings) error { s.Rightsizing = x; return nil }, leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *rightsizedHost) run(name, needs, role string, memory, use int64) {
	h.t.Helper()
	x := vc(name, 1, 1, memory)
	x.Needs, x.Groups[0].Role, x.Groups[0].MemoryMin = needs, role, 256<<20
	if _, err := h.Create(h.t.Context(), x, leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	h.use[name+"-g-0"] = state.Resources{CPU: 0.2, Memory: use}
	h.report()
	h.pass(10 * time.Second)
}

func (h *rightsizedHost) vm(name string) (state.VM, state.Group) {
	h.t.Helper()
	s := h.store.Snapshot()
	vm, ok := s.VMNamed(name)
	if !ok {
		h.t.Fatalf("no VM %s", name)
	}
	x, _ := s.VC(vm.VC)
	g, _ := x.GroupOf(vm)
	return vm, g
}

func (h *rightsizedHost) explained(name string) string {
	h.t.Helper()
	v, err := h.View(h.t.Context(), false)
	if err != nil {
		h.t.Fatal(err)
	}
	x, _ := v.VCNamed(name)
	return strings.Join(leader.Explain(v, x).Lines, "\n")
}

// A leader goes on from the last report of shadow mode of the one before it: all but its last minutes.
func TestTheShadowOutlivesTheLeader(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		const gib = 1 << 30
		h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
		evaluated := func() (minutes, vms float64, hours int) {
			now, err := h.Rightsizing(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range now.Hours {
				minutes, vms = minutes+x.Minutes, vms+x.VMs
			}
			return minutes, vms, len(now.Hours)
		}
		h.pass(95 * time.Minute)
		minutes, vms, hours := evaluated()
		if minutes < 90 || vms < 90 || hours < 2 {
			t.Fatalf("%g minutes, %g VM-minutes in %d hours", minutes, vms, hours)
		}
		h.end()
		h.lead(2)
		again, _, hours2 := evaluated()
		if again < minutes-11 || again > minutes || hours2 != hours {
			t.Errorf("the next leader knows of %g of %g minutes, in %d of %d hours", again, minutes, hours2, hours)
		}
		h.pass(30 * time.Minute)
		more, vms, _ := evaluated()
		if more < again+28 || more > again+31 || vms < 115 || vms > more+1 {
			t.Errorf("half an hour later %g minutes, %g VM-minutes, after %g", more, vms, again)
		}
	})
}

// The hours of a restored state take the place of those that the leader knows.
func TestTheShadowOfARestoredState(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		h.run("old", state.NeedsEstimated, "core", 4<<30, 1<<30)
		h.pass(25 * time.Minute)
		past := state.RightsizingHour{From: time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour), Mode: state.RightsizingShadow, Minutes: 60, VMs: 60}
		var file, delayed bytes.Buffer
		if err := h.store.Snapshot().Save(&file); err != nil {
			t.Fatal(err)
		}
		older := state.New()
		if err := older.Restore(&file); err != nil {
			t.Fatal(err)
		}
		entry, err := state.Encode(state.KindRightsizingReport, time.Now(), state.RightsizingReport{Hours: []state.RightsizingHour{past}})
		if err == nil {
			err = older.Apply(older.Snapshot().Index()+1, entry)
		}
		if err == nil {
			err = older.Snapshot().Save(&file)
		}
		if err == nil {
			err = state.PrepareRestore(&file, &delayed, "restore", time.Now(), h.store.Snapshot())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := h.store.Restore(&delayed); err != nil {
			t.Fatal(err)
		}
		h.pass(5 * time.Minute)
		now, err := h.Rightsizing(t.Context())
		if err != nil || len(now.Hours) < 2 || !now.Hours[0].From.Equal(past.From) || now.Hours[0].Minutes != 60 {
			t.Errorf("%+v, %v", now.Hours, err)
		}
	})
}

// The whole way of rightsizing: from shadow mode, over memory that is reclaimed and VCs that are admitted into it, to VMs that
// are evicted and come back, and the switch that ends it.
func TestRightsizing(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		const gib = 1 << 30
		h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
		h.run("young", state.NeedsEstimated, "elastic", 3*gib, gib)
		h.pass(12 * time.Minute)
		now, err := h.Rightsizing(t.Context())
		if err != nil || now.Settings.Mode != state.RightsizingShadow || now.Reclaimed.Memory < 4*gib || len(now.VMs) != 2 || len(now.Hours) == 0 {
			t.Fatalf("in the shadow: %+v, %v", now, err)
		}
		if vm, g := h.vm("old-g-0"); vm.Target != 0 || g.Estimated != 0 {
			t.Fatalf("the shadow changes %+v, %+v", vm, g)
		}
		h.use["old-g-0"] = state.Resources{CPU: 0.9, Memory: 3 * gib}
		h.pass(2 * time.Minute)
		if now, _ = h.Rightsizing(t.Context()); now.Hours[len(now.Hours)-1].ShortMemory == 0 || now.Hours[len(now.Hours)-1].WorstVM != "old-g-0" || now.Hours[len(now.Hours)-1].ShortCPU == 0 {
			t.Errorf("what would have gone wrong: %+v", now.Hours)
		}
		if text := h.explained("old"); !strings.Contains(text, "rightsizing is shadow") {
			t.Error(text)
		}
		h.use["old-g-0"] = state.Resources{CPU: 0.2, Memory: gib}

		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		h.pass(15 * time.Minute)
		vm, g := h.vm("old-g-0")
		if vm.Target == 0 || vm.Target > 3*gib/2 || g.Estimated == 0 || g.Allocation < g.Estimated || vm.ChargedMemory != vm.Target {
			t.Fatalf("%+v, %+v", vm, g)
		}
		if text := h.explained("old"); !strings.Contains(text, "cores that were declared are thought to be needed") || !strings.Contains(text, "VM old-g-0: ") {
			t.Error(text)
		}
		h.run("more", state.NeedsDeclared, "core", 2*gib, gib) // 9 GiB on a host of 8
		if vm, _ := h.vm("more-g-0"); vm.Phase != state.Running {
			t.Fatalf("%+v", vm)
		}

		// A VM that is short of memory is looked at at once.
		h.pass(time.Minute)
		before, _ := h.vm("old-g-0")
		h.press["old-g-0"] = true
		h.use["old-g-0"] = state.Resources{CPU: 0.2, Memory: 3900 << 20}
		h.pass(30 * time.Second)
		if after, g := h.vm("old-g-0"); after.Due(g) <= before.Due(g) {
			t.Errorf("%d MiB, had %d", after.Due(g)>>20, before.Due(g)>>20)
		}
		h.use["young-g-0"] = state.Resources{CPU: 0.2, Memory: 2 * gib}
		h.press["young-g-0"] = true
		h.pass(2 * time.Minute)
		young, _ := h.vm("young-g-0")
		if young.PreemptedAt == 0 || young.Phase != state.Stopped || !strings.Contains(young.Reason, "preempted") {
			t.Fatalf("%+v", young)
		}
		if now, _ = h.Rightsizing(t.Context()); !slices.Equal(now.Waiting, []string{"young-g-0"}) {
			t.Errorf("waiting: %v", now.Waiting)
		}
		if f := h.RightsizingStats(); f.Preempted != 1 || f.Mode != state.RightsizingOn {
			t.Errorf("%+v", f)
		}
		h.press = map[string]bool{}
		h.pass(time.Minute)
		if old, g := h.vm("old-g-0"); old.Due(g) < 3900<<20 {
			t.Errorf("%+v", old)
		}
		if _, err := h.Delete(t.Context(), "more", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		h.use["old-g-0"] = state.Resources{CPU: 0.2, Memory: gib}
		h.pass(25 * time.Minute)
		if young, _ := h.vm("young-g-0"); young.Phase != state.Running || young.Generation != 2 || young.PreemptedAt != 0 {
			t.Errorf("%+v", young)
		}

		h.mode(state.RightsizingSettings{Mode: state.RightsizingOff})
		h.pass(3 * time.Minute)
		for _, name := range []string{"old-g-0", "young-g-0"} {
			if vm, g := h.vm(name); vm.Target != 0 || g.Estimated != 0 || g.Allocation != g.CPU {
				t.Errorf("rightsizing is off: %+v, %+v", vm, g)
			}
		}
	})
}

// Where another host has room a VM moves, and none is evicted unless the move does not end.
func TestMovesForMemory(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		const gib = 1 << 30
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		h.run("old", state.NeedsEstimated, "core", 4*gib, gib)
		h.run("young", state.NeedsEstimated, "elastic", 3*gib, gib)
		h.pass(20 * time.Minute)
		h.run("more", state.NeedsDeclared, "core", 2*gib, gib)
		h.other = true
		h.pass(time.Minute)
		for _, name := range []string{"old-g-0", "young-g-0"} {
			h.press[name] = true
		}
		h.use["old-g-0"], h.use["young-g-0"] = state.Resources{CPU: 0.2, Memory: 3900 << 20}, state.Resources{CPU: 0.2, Memory: 2 * gib}
		var plan *state.MovePlan
		for range 18 {
			h.pass(10 * time.Second)
			for _, p := range h.store.Snapshot().MovePlans() {
				if p.Kind == state.MovesMemory {
					plan = &p
				}
			}
			if plan != nil {
				break
			}
		}
		if plan == nil || plan.Host != "h1" || plan.By != "rightsizing" || len(plan.Steps) != 1 || plan.Steps[0].VMName != "more-g-0" || plan.Steps[0].To != "h2" {
			t.Fatalf("%+v", plan)
		}
		if young, _ := h.vm("young-g-0"); young.PreemptedAt != 0 {
			t.Fatalf("evicted beside a host with room: %+v", young)
		}
		h.pass(10 * time.Minute)
		if young, _ := h.vm("young-g-0"); young.PreemptedAt == 0 || !strings.Contains(young.Reason, "; no VM moves for it: the moves of plan "+plan.ID) {
			t.Errorf("the move did not end: %+v", young)
		}
	})
}
