package loop_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// rightsized is a cluster whose VMs use something, minute by minute.
type rightsized struct {
	*cluster
	x    rightsizing.Rightsizer
	now  time.Time
	use  map[string]state.Resources // by VM name
	odd  map[string]func(*rightsizing.VMObservation)
	last rightsizing.Result
}

func newRightsized(t failer, mode state.RightsizingMode, hosts ...string) *rightsized {
	c := &rightsized{cluster: newCluster(t, hosts...), now: start, use: map[string]state.Resources{}, odd: map[string]func(*rightsizing.VMObservation){}}
	c.set(state.RightsizingSettings{Mode: mode})
	return c
}

func (c *rightsized) set(x state.RightsizingSettings) {
	m, _ := c.Snapshot().Meta()
	m.Settings.Rightsizing, m.Settings.OnFull = x, state.Queue
	c.must(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
}

// run a VC of VMs that use so much each.
func (c *rightsized) run(name string, needs string, role string, count int, declared, use state.Resources) {
	c.t.Helper()
	x := vc(name, 0.1, group(count, declared.CPU, declared.Memory))
	x.Needs, x.Groups[0].Role = needs, role
	if a := c.create(x); a.Plan == nil || a.Queued {
		c.t.Fatalf("%s does not fit: %+v", name, a.Decision)
	}
	c.commitPlan()
	for _, vm := range c.Snapshot().VMsOf(x.ID) {
		c.use[vm.Name] = use
	}
}

// minute passes: hosts report, the leader looks, hosts follow.
func (c *rightsized) minute() rightsizing.Result {
	c.t.Helper()
	c.now = c.now.Add(time.Minute)
	in := rightsizing.Observations{Now: c.now, Since: start.Add(-time.Hour), VMs: map[string]rightsizing.VMObservation{}}
	s := c.Snapshot()
	for _, vm := range s.VMs() {
		use, runs := c.use[vm.Name]
		if !vm.ConsumesResources() || !runs {
			continue
		}
		x, _ := s.VC(vm.VC)
		g, _ := x.GroupOf(vm)
		ahead := func(mean float64) rightsizing.Ahead {
			a := rightsizing.Ahead{Trusted: true}
			for range 10 {
				a.Mean, a.Deviation = append(a.Mean, mean), append(a.Deviation, mean/100)
			}
			return a
		}
		see := rightsizing.VMObservation{Generation: vm.Generation, Until: c.now, CPU: ahead(use.CPU), Memory: ahead(float64(use.Memory)), At: c.now,
			Cap: g.Allocation, Used: min(use.CPU, g.Allocation), MemoryUsed: min(use.Memory, vm.Due(g)), Balloon: vm.Due(g), Reports: true, Follows: true}
		if use.Memory > vm.Due(g)*9/10 && use.Memory < g.Memory {
			see.Pressure = "available memory is under a tenth of its balloon"
		}
		if edit := c.odd[vm.Name]; edit != nil {
			edit(&see)
		}
		in.VMs[vm.ID] = see
	}
	before := c.Snapshot()
	c.last = c.x.Evaluate(before, in)
	if !c.last.Command.Empty() {
		if err := c.apply(state.KindRightsize, c.last.Command); err != nil {
			c.t.Fatalf("refused on its own state: %v\n%+v", err, c.last.Command)
		}
		c.keepsLimits(before)
	}
	for _, p := range c.last.Preempt {
		if plan := rightsizing.Preempt(c.Snapshot(), p, c.now); plan != nil {
			c.enact("preempt", plan)
		}
	}
	c.commitPlan()
	return c.last
}

// keepsLimits: memory that is given, and the reserve, within each host's limit, or no more than they were.
func (c *rightsized) keepsLimits(before *state.Snapshot) {
	c.t.Helper()
	after := c.Snapshot()
	for _, h := range after.Hosts() {
		limit, l, was := h.Usable(), after.LoadOf(h.Name), before.LoadOf(h.Name)
		if l.Taken() > max(limit.Memory, was.Taken()) {
			c.t.Fatalf("host %s: %+v of %+v, before %+v", h.Name, l, limit, was)
		}
	}
}

func (c *rightsized) minutes(n int) {
	c.t.Helper()
	for range n {
		c.minute()
	}
}

func (c *rightsized) vm(name string) (state.VM, state.Group) {
	c.t.Helper()
	vm, ok := c.Snapshot().VMNamed(name)
	if !ok {
		c.t.Fatalf("no VM %s", name)
	}
	x, _ := c.Snapshot().VC(vm.VC)
	g, _ := x.GroupOf(vm)
	return vm, g
}

func (c *rightsized) due(name string) int64 { vm, g := c.vm(name); return vm.Due(g) }

func r(cpu float64, memory int64) state.Resources { return state.Resources{CPU: cpu, Memory: memory} }

// What is not used makes room for more, and is given back in steps.
func TestRightsizeMakesRoom(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1") // 4 cores, 8 GiB
	c.run("a", state.NeedsEstimated, "core", 2, r(2, 3*gib), r(0.3, gib))
	late := vc("late", 0.5, group(1, 2, 3*gib))
	if a := c.create(late); !a.Queued {
		t.Fatalf("fits: %+v", a)
	}
	c.minute()
	if got := c.due("a-g0-0"); got != 3*gib {
		t.Errorf("the first look takes %d MiB: a new leader has not seen enough", got>>20)
	}
	was := int64(3 * gib)
	for range 12 {
		c.minute()
		got := c.due("a-g0-0")
		if was-got > 3*gib/10 {
			t.Fatalf("%d MiB at once", (was-got)>>20)
		}
		was = got
	}
	if want := int64(gib) * 12 / 10; was < want || was > want+gib/10 { // 5% of 3 GiB and three deviations of a hundredth
		t.Errorf("%d MiB, want about %d", was>>20, want>>20)
	}
	if _, g := c.vm("a-g0-0"); g.Need() < 0.39 || g.Need() > 0.45 || g.Yield() != 1 {
		t.Errorf("%+v", g)
	}
	if got := c.state("late"); got != state.VCRunning && got != state.VCStarting {
		t.Errorf("it is %s", got)
	}
	if m := c.last.Reclaimed; m.Memory < 3*gib || m.CPU < 3 {
		t.Errorf("reclaimed %+v", m)
	}
	// Growing is at once.
	c.use["a-g0-0"] = r(1.5, 2*gib)
	c.minute()
	if vm, _ := c.vm("a-g0-0"); vm.Due(c.named("a").Groups[0]) <= was || c.last.Preempt != nil {
		t.Errorf("one that uses 2 GiB now: %+v, %+v", vm, c.last)
	}
	// The switch gives back what there is room for, at once.
	c.must(state.KindPlan, stopOf(c, "late"))
	c.commitPlan()
	c.set(state.RightsizingSettings{Mode: state.RightsizingOff})
	c.minute()
	c.minute()
	for _, vm := range c.Snapshot().VMs() {
		if vm.Target != 0 && vm.ConsumesResources() {
			t.Errorf("%+v", vm)
		}
	}
	if g := c.named("a").Groups[0]; g.Estimated != 0 {
		t.Errorf("%+v", g)
	}
}

func stopOf(c *rightsized, name string) *state.Plan {
	return loop.Stop(c.Snapshot(), c.named(name), c.env()).Plan
}

// Surplus CPU is distributed, and taken back by a VM that comes.
func TestSurplusIsDistributed(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1") // 4 cores, 8 GiB
	c.run("a", state.NeedsEstimated, "core", 2, r(2, 2*gib), r(0.3, gib))
	c.minutes(3)
	_, g := c.vm("a-g0-0")
	if g.Need() > 0.5 || g.Allocation != 2 {
		t.Errorf("alone: %+v", g)
	}
	c.run("b", state.NeedsDeclared, "core", 1, r(2, gib), r(2, gib))
	if _, g = c.vm("a-g0-0"); g.Allocation != 1 || g.Yield() != 1 {
		t.Errorf("beside 2 cores: %+v", g)
	}
	c.run("c", state.NeedsDeclared, "core", 1, r(1.1, gib/2), r(1, gib/2))
	if _, g = c.vm("a-g0-0"); g.Allocation != g.Need() || g.Yield() != 1 {
		t.Errorf("beside 3.1 cores: %+v", g)
	}
	c.run("d", state.NeedsDeclared, "core", 1, r(2, gib/2), r(2, gib/2))
	if _, g = c.vm("a-g0-0"); g.Allocation >= g.Need() {
		t.Errorf("short: %+v", g)
	}
}

func TestShadowChangesNothing(t *testing.T) {
	c := newRightsized(t, "", "h1")
	c.run("a", state.NeedsDeclared, "core", 2, r(2, 3*gib), r(0.3, gib))
	for range 15 {
		if out := c.minute(); !out.Command.Empty() || len(out.Preempt) > 0 || out.Mode != state.RightsizingShadow {
			t.Fatalf("%+v", out)
		}
	}
	if m := c.last.Reclaimed; m.Memory < 3*gib || m.CPU < 2.5 {
		t.Errorf("would be reclaimed: %+v", m)
	}
	c.use["a-g0-0"] = r(1.9, 2*gib) // more than it would have
	out := c.minute()
	if v := out.VMs[0]; v.ShortMemory < gib/2 || v.ShortCPU < 1 {
		t.Errorf("what would have gone wrong: %+v", v)
	}
	if out = c.minute(); out.VMs[0].ShortMemory != 0 {
		t.Errorf("it would have been given more since: %+v", out.VMs[0])
	}
}

// A VM that jumps to what no forecast predicted is short of memory once, and not again for a day. The memory is optional: no VM
// is evicted from what it has for it.
func TestShortOnceADay(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1")
	c.run("a", state.NeedsEstimated, "core", 2, r(1, 3*gib), r(0.3, gib/2))
	jump := func() (underPressure int) {
		c.use["a-g0-0"] = r(0.3, 2*gib)
		for range 3 {
			if c.minute().VMs[0].UnderPressure {
				underPressure++
			}
		}
		c.use["a-g0-0"] = r(0.3, gib/2)
		return underPressure
	}
	c.minutes(30)
	if jump() == 0 {
		t.Fatal("it was not squeezed")
	}
	c.minutes(60)
	if got, other := c.due("a-g0-0"), c.due("a-g0-1"); got < 2*gib*12/10 || got > 2*gib*12/10+1<<20 || other > gib {
		t.Errorf("an hour later it has %d MiB, one that never jumped %d", got>>20, other>>20)
	}
	if v := c.last.VMs[0]; !strings.Contains(v.Text, "it was short of memory at ") || !strings.Contains(v.Text, "used 2048 MiB") {
		t.Errorf("%q", v.Text)
	}
	if n := jump(); n != 0 {
		t.Errorf("short again in %d looks", n)
	}
	c.minutes(24*60 - 65)
	if got := c.due("a-g0-0"); got < 2*gib {
		t.Errorf("within the day it has %d MiB", got>>20)
	}
	c.minutes(60)
	if got := c.due("a-g0-0"); got > gib {
		t.Errorf("a day later it has %d MiB", got>>20)
	}

}

// Optional memory that was granted goes before a VM is evicted, and before another VM's need is not met.
func TestOptionalMemoryGoesFirst(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1")
	c.run("b", state.NeedsEstimated, "core", 2, r(0.5, 3*gib), r(0.3, gib/2))
	c.run("a", state.NeedsEstimated, "elastic", 1, r(0.5, gib), r(0.3, gib/5))
	c.minutes(30)
	c.run("x", state.NeedsDeclared, "core", 1, r(0.5, 2*gib), r(0.3, gib))
	c.use["a-g0-0"] = r(0.3, 8*gib/10)
	c.minutes(3)
	c.use["a-g0-0"] = r(0.3, gib/5)
	c.minutes(30)
	if got := c.due("a-g0-0"); got < 9*gib/10 {
		t.Fatalf("%d MiB: it has no optional amount", got>>20)
	}
	c.use["b-g0-0"], c.use["b-g0-1"] = r(0.3, 19*gib/10), r(0.3, 19*gib/10) // both, which is more than what is kept for one
	for range 30 {
		if out := c.minute(); len(out.Preempt) > 0 {
			t.Fatalf("%+v is evicted for an optional amount", out.Preempt)
		}
	}
	if got := c.due("b-g0-0") + c.due("b-g0-1"); got < 38*gib/10 {
		t.Errorf("who use 3.8 GiB have %d MiB, and one that uses a fifth %d", got>>20, c.due("a-g0-0")>>20)
	}
}

// VMs that rightsizing leaves alone, and why.
func TestLeftAlone(t *testing.T) {
	for name, x := range map[string]struct {
		edit func(*rightsizing.VMObservation)
		why  string
	}{
		"no driver":       {func(s *rightsizing.VMObservation) { s.Reports = false }, "no balloon driver"},
		"does not follow": {func(s *rightsizing.VMObservation) { s.Follows = false }, "does not follow"},
		"not trusted":     {func(s *rightsizing.VMObservation) { s.Memory.Trusted, s.Memory.Reason = false, "too few values" }, "too few values"},
		"stale":           {func(s *rightsizing.VMObservation) { s.Until = s.Until.Add(-time.Hour) }, "nothing new is forecast"},
		"no estimate":     {func(s *rightsizing.VMObservation) { s.Generation = 0 }, "nothing new is forecast"},
		"not measured":    {func(s *rightsizing.VMObservation) { s.At = time.Time{} }, "not measured"},
	} {
		c := newRightsized(t, state.RightsizingOn, "h1")
		c.run("a", state.NeedsEstimated, "core", 1, r(2, 3*gib), r(0.3, gib))
		c.odd["a-g0-0"] = x.edit
		c.minutes(3)
		if v := c.last.VMs[0]; c.due("a-g0-0") != 3*gib || !strings.Contains(v.Excluded, x.why) || v.Text != v.Excluded {
			t.Errorf("%s: %+v", name, v)
		}
		// One that was shrunk before is given it back, but for one that holds it anyway.
		c.odd["a-g0-0"] = nil
		c.minutes(4)
		low := c.due("a-g0-0")
		c.odd["a-g0-0"] = x.edit
		c.minute()
		switch got := c.due("a-g0-0"); {
		case low == 3*gib:
			t.Errorf("%s: it was not shrunk", name)
		case name == "does not follow" && got != low, name != "does not follow" && got != 3*gib:
			t.Errorf("%s: %d MiB, had %d", name, got>>20, low>>20)
		}
	}
}

// The needs of others change nothing for a VM whose needs were declared.
func TestEviction(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1")
	c.run("old", state.NeedsEstimated, "core", 1, r(1, 4*gib), r(0.1, gib))
	c.run("young", state.NeedsEstimated, "elastic", 1, r(1, 3*gib), r(0.1, gib))
	c.minutes(14)
	c.run("fixed", state.NeedsDeclared, "elastic", 1, r(1, 2*gib), r(1, 2*gib))
	c.use["old-g0-0"], c.use["young-g0-0"] = r(0.1, 3900*mib), r(0.1, 2*gib)
	c.minutes(3)
	vm, _ := c.vm("young-g0-0")
	if vm.Goal != state.GoalStop || !strings.Contains(vm.Reason, "preempted: those served before it leave host h1") {
		t.Fatalf("%+v", vm)
	}
	c.minutes(2)
	if got := c.due("old-g0-0"); got < 3900*mib {
		t.Errorf("%d MiB", got>>20)
	}
	if vm, _ := c.vm("fixed-g0-0"); vm.Goal != state.GoalRun || vm.Target != 0 {
		t.Errorf("%+v", vm)
	}
	if got := c.state("young"); got != state.VCDegraded {
		t.Errorf("young is %s", got)
	}
	// It starts again once there is room, and not before it waited.
	c.must(state.KindPlan, stopOf(c, "fixed"))
	c.commitPlan()
	c.use["old-g0-0"] = r(0.1, gib)
	if p := loop.Restart(c.Snapshot(), loop.Env{Now: c.now, NewID: c.id}); p != nil {
		t.Errorf("started again at once: %+v", p)
	}
	c.minutes(25)
	p := loop.Restart(c.Snapshot(), loop.Env{Now: c.now, NewID: c.id})
	if p == nil || len(p.VMs) != 1 || p.VMs[0].PreemptedAt != 0 || p.VMs[0].Generation != 2 || !strings.Contains(p.Text, "preempted") {
		t.Fatalf("not started again: %+v", p)
	}
	c.enact("again", p)
}

// Where a core VM has no room all of the VC goes, to the place in the queue that it had.
func TestCoreGoesWhole(t *testing.T) {
	c := newRightsized(t, state.RightsizingOn, "h1")
	c.run("old", state.NeedsEstimated, "core", 1, r(1, 4*gib), r(0.1, gib))
	c.run("young", state.NeedsEstimated, "core", 1, r(1, 2*gib), r(0.1, gib))
	c.minutes(14)
	c.host("h1", 4, 8*gib, r(0, 4*gib)) // memory goes to a foreign VM
	c.use["old-g0-0"], c.use["young-g0-0"] = r(0.1, 3*gib), r(0.1, 1800*mib)
	c.minutes(3)
	x := c.named("young")
	if x.Goal != state.GoalRun || x.Admitted || !x.QueuedAt.Equal(x.CreatedAt) {
		t.Fatalf("%+v", x)
	}
	if vm, _ := c.vm("young-g0-0"); vm.Goal == state.GoalRun {
		t.Errorf("%+v", vm)
	}
	if vm, _ := c.vm("old-g0-0"); vm.Goal != state.GoalRun {
		t.Errorf("%+v", vm)
	}
}

// Whatever is used: limits hold at every step (see check), no VM is below the floor, what was declared is kept, and a plan made
// on a state applies to it.
func TestRightsizeUnderAnyUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newRightsized(t, state.RightsizingOn, "h1", "h2")
		for i, n := 0, rapid.IntRange(1, 5).Draw(t, "clusters"); i < n; i++ {
			x := vc("c"+string(rune('a'+i)), 0.1, group(rapid.IntRange(1, 3).Draw(t, "count"), rapid.Float64Range(0.1, 2).Draw(t, "cpu"), int64(rapid.IntRange(4, 40).Draw(t, "memory"))*100*mib))
			x.Needs = rapid.SampledFrom([]string{state.NeedsEstimated, state.NeedsEstimated, state.NeedsDeclared}).Draw(t, "needs")
			x.Groups[0].Role = rapid.SampledFrom([]string{"core", "elastic"}).Draw(t, "role")
			x.Aggressiveness = rapid.SampledFrom([]string{"", state.Conservative, state.Aggressive}).Draw(t, "aggressiveness")
			c.create(x)
		}
		c.commitPlan()
		for range rapid.IntRange(1, 12).Draw(t, "spells") {
			for _, vm := range c.Snapshot().VMs() {
				x, _ := c.Snapshot().VC(vm.VC)
				g, _ := x.GroupOf(vm)
				share := rapid.Float64Range(0, 1).Draw(t, "use")
				c.use[vm.Name] = r(share*g.CPU, int64(share*float64(g.Memory)))
			}
			for range rapid.IntRange(1, 15).Draw(t, "minutes") {
				c.minute()
				for _, vm := range c.Snapshot().VMs() {
					x, _ := c.Snapshot().VC(vm.VC)
					g, _ := x.GroupOf(vm)
					switch {
					case vm.ConsumesResources() && (vm.Due(g) < g.MemoryMin || vm.Due(g) > g.Memory):
						t.Fatalf("%+v of %+v", vm, g)
					case x.Needs == state.NeedsDeclared && (vm.Target != 0 || g.Estimated != 0 || vm.PreemptedAt != 0):
						t.Fatalf("its needs are declared: %+v of %+v", vm, g)
					case g.Estimated < 0 || g.Estimated > g.CPU || g.Allocation > g.CPU*(1+1e-9):
						t.Fatalf("%+v", g)
					}
				}
				for _, v := range c.last.VMs {
					if v.Text == "" {
						t.Fatalf("no words for %+v", v)
					}
				}
			}
			if p := loop.Restart(c.Snapshot(), loop.Env{Now: c.now, NewID: c.id}); p != nil && rapid.Bool().Draw(t, "again") {
				c.enact("again", p)
			}
		}
	})
}
