package rightsizing_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// What is not used makes room for more, and is given back in steps.
func TestRightsizeMakesRoom(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1") // 4 cores, 8 GiB
	c.AddVC("a", state.NeedsEstimated, "core", 2, scheduling.Resources(2, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
	late := scheduling.VC("late", 0.5, scheduling.Group(1, 2, 3*scheduling.GiB))
	if a := c.Create(late); !a.Queued {
		t.Fatalf("fits: %+v", a)
	}
	c.Minute()
	if got := c.Due("a-g0-0"); got != 3*scheduling.GiB {
		t.Errorf("the first look takes %d MiB: a new leader has not seen enough", got>>20)
	}
	was := int64(3 * scheduling.GiB)
	for range 12 {
		c.Minute()
		got := c.Due("a-g0-0")
		if was-got > 3*scheduling.GiB/10 {
			t.Fatalf("%d MiB at once", (was-got)>>20)
		}
		was = got
	}
	if want := int64(scheduling.GiB) * 12 / 10; was < want || was > want+scheduling.GiB/10 { // 5% of 3 GiB and three deviations of a hundredth
		t.Errorf("%d MiB, want about %d", was>>20, want>>20)
	}
	if _, g := c.VM("a-g0-0"); g.Need() < 0.39 || g.Need() > 0.45 || g.Yield() != 1 {
		t.Errorf("%+v", g)
	}
	if got := c.State("late"); got != state.VCRunning && got != state.VCStarting {
		t.Errorf("it is %s", got)
	}
	if m := c.Last.Reclaimed; m.Memory < 3*scheduling.GiB || m.CPU < 3 {
		t.Errorf("reclaimed %+v", m)
	}
	// Growing is at once.
	c.Use["a-g0-0"] = scheduling.Resources(1.5, 2*scheduling.GiB)
	c.Minute()
	if vm, _ := c.VM("a-g0-0"); vm.Due(c.Named("a").Groups[0]) <= was || c.Last.Preempt != nil {
		t.Errorf("one that uses 2 GiB now: %+v, %+v", vm, c.Last)
	}
	// The switch gives back what there is room for, at once.
	c.Must(state.KindPlan, stopOf(c, "late"))
	c.CommitPlan()
	c.Set(state.RightsizingSettings{Mode: state.RightsizingOff})
	c.Minute()
	c.Minute()
	for _, vm := range c.Snapshot().VMs() {
		if vm.Target != 0 && vm.ConsumesResources() {
			t.Errorf("%+v", vm)
		}
	}
	if g := c.Named("a").Groups[0]; g.Estimated != 0 {
		t.Errorf("%+v", g)
	}
}

func stopOf(c *scheduling.Rightsized, name string) *state.Plan {
	return admission.Stop(c.Snapshot(), c.Named(name), c.Env()).Plan
}

// Surplus CPU is distributed, and taken back by a VM that comes.
func TestSurplusIsDistributed(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1") // 4 cores, 8 GiB
	c.AddVC("a", state.NeedsEstimated, "core", 2, scheduling.Resources(2, 2*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
	c.Minutes(3)
	_, g := c.VM("a-g0-0")
	if g.Need() > 0.5 || g.Allocation != 2 {
		t.Errorf("alone: %+v", g)
	}
	c.AddVC("b", state.NeedsDeclared, "core", 1, scheduling.Resources(2, scheduling.GiB), scheduling.Resources(2, scheduling.GiB))
	if _, g = c.VM("a-g0-0"); g.Allocation != 1 || g.Yield() != 1 {
		t.Errorf("beside 2 cores: %+v", g)
	}
	c.AddVC("c", state.NeedsDeclared, "core", 1, scheduling.Resources(1.1, scheduling.GiB/2), scheduling.Resources(1, scheduling.GiB/2))
	if _, g = c.VM("a-g0-0"); g.Allocation != g.Need() || g.Yield() != 1 {
		t.Errorf("beside 3.1 cores: %+v", g)
	}
	c.AddVC("d", state.NeedsDeclared, "core", 1, scheduling.Resources(2, scheduling.GiB/2), scheduling.Resources(2, scheduling.GiB/2))
	if _, g = c.VM("a-g0-0"); g.Allocation >= g.Need() {
		t.Errorf("short: %+v", g)
	}
}

// Others borrow what a run of a periodic job leaves idle. Once it is granted more, that is its need in the next evaluation.
func TestGrantsAreNeeds(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("a", state.NeedsEstimated, "core", 1, scheduling.Resources(3, scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB/2))
	c.AddVC("b", state.NeedsDeclared, "core", 1, scheduling.Resources(4, scheduling.GiB), scheduling.Resources(4, scheduling.GiB))
	c.Minutes(15)
	_, g := c.VM("a-g0-0")
	if g.Need() > 1 || g.Allocation > 1 {
		t.Fatalf("it uses little: %+v", g)
	}
	run, ok := c.Snapshot().OpenRun(c.Named("a").ID)
	if !ok {
		t.Fatal("no run is recorded")
	}
	c.Must(state.KindReprovision, state.ReprovisionPut{Basis: c.Snapshot().Index(), Runs: []state.RunGrant{{Run: run.ID, Grant: &state.Grant{Cores: 2}}}})
	c.Minute()
	if _, g = c.VM("a-g0-0"); g.Need() < 2 || g.Allocation < 2-1e-6 {
		t.Errorf("it is granted 2 cores: %+v", g)
	}
}

func TestShadowChangesNothing(t *testing.T) {
	c := scheduling.NewRightsized(t, "", "h1")
	c.AddVC("a", state.NeedsDeclared, "core", 2, scheduling.Resources(2, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
	for range 15 {
		if out := c.Minute(); !out.Command.Empty() || len(out.Preempt) > 0 || out.Mode != state.RightsizingShadow {
			t.Fatalf("%+v", out)
		}
	}
	if m := c.Last.Reclaimed; m.Memory < 3*scheduling.GiB || m.CPU < 2.5 {
		t.Errorf("would be reclaimed: %+v", m)
	}
	c.Use["a-g0-0"] = scheduling.Resources(1.9, 2*scheduling.GiB) // more than it would have
	out := c.Minute()
	if v := out.VMs[0]; v.ShortMemory < scheduling.GiB/2 || v.ShortCPU < 1 {
		t.Errorf("what would have gone wrong: %+v", v)
	}
	if out = c.Minute(); out.VMs[0].ShortMemory != 0 {
		t.Errorf("it would have been given more since: %+v", out.VMs[0])
	}
}

// A VM that jumps to what no forecast predicted is short of memory once, and not again for a day. The memory is optional: no VM
// is evicted from what it has for it.
func TestShortOnceADay(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("a", state.NeedsEstimated, "core", 2, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB/2))
	jump := func() (underPressure int) {
		c.Use["a-g0-0"] = scheduling.Resources(0.3, 2*scheduling.GiB)
		for range 3 {
			if c.Minute().VMs[0].UnderPressure {
				underPressure++
			}
		}
		c.Use["a-g0-0"] = scheduling.Resources(0.3, scheduling.GiB/2)
		return underPressure
	}
	c.Minutes(30)
	if jump() == 0 {
		t.Fatal("it was not squeezed")
	}
	c.Minutes(60)
	if got, other := c.Due("a-g0-0"), c.Due("a-g0-1"); got < 2*scheduling.GiB*12/10 || got > 2*scheduling.GiB*12/10+1<<20 || other > scheduling.GiB {
		t.Errorf("an hour later it has %d MiB, one that never jumped %d", got>>20, other>>20)
	}
	if v := c.Last.VMs[0]; !strings.Contains(v.Text, "it was short of memory at ") || !strings.Contains(v.Text, "used 2048 MiB") {
		t.Errorf("%q", v.Text)
	}
	if n := jump(); n != 0 {
		t.Errorf("short again in %d looks", n)
	}
	c.Minutes(24*60 - 65)
	if got := c.Due("a-g0-0"); got < 2*scheduling.GiB {
		t.Errorf("within the day it has %d MiB", got>>20)
	}
	c.Minutes(60)
	if got := c.Due("a-g0-0"); got > scheduling.GiB {
		t.Errorf("a day later it has %d MiB", got>>20)
	}

}

// Optional memory that was granted goes before a VM is evicted, and before another VM's need is not met.
func TestOptionalMemoryGoesFirst(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("b", state.NeedsEstimated, "core", 2, scheduling.Resources(0.5, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB/2))
	c.AddVC("a", state.NeedsEstimated, "elastic", 1, scheduling.Resources(0.5, scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB/5))
	c.Minutes(30)
	c.AddVC("x", state.NeedsDeclared, "core", 1, scheduling.Resources(0.5, 2*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
	c.Use["a-g0-0"] = scheduling.Resources(0.3, 8*scheduling.GiB/10)
	c.Minutes(3)
	c.Use["a-g0-0"] = scheduling.Resources(0.3, scheduling.GiB/5)
	c.Minutes(30)
	if got := c.Due("a-g0-0"); got < 9*scheduling.GiB/10 {
		t.Fatalf("%d MiB: it has no optional amount", got>>20)
	}
	c.Use["b-g0-0"], c.Use["b-g0-1"] = scheduling.Resources(0.3, 19*scheduling.GiB/10), scheduling.Resources(0.3, 19*scheduling.GiB/10) // both, which is more than what is kept for one
	for range 30 {
		if out := c.Minute(); len(out.Preempt) > 0 {
			t.Fatalf("%+v is evicted for an optional amount", out.Preempt)
		}
	}
	if got := c.Due("b-g0-0") + c.Due("b-g0-1"); got < 38*scheduling.GiB/10 {
		t.Errorf("who use 3.8 GiB have %d MiB, and one that uses a fifth %d", got>>20, c.Due("a-g0-0")>>20)
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
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
		c.AddVC("a", state.NeedsEstimated, "core", 1, scheduling.Resources(2, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
		c.Odd["a-g0-0"] = x.edit
		c.Minutes(3)
		if v := c.Last.VMs[0]; c.Due("a-g0-0") != 3*scheduling.GiB || !strings.Contains(v.Excluded, x.why) || v.Text != v.Excluded {
			t.Errorf("%s: %+v", name, v)
		}
		// One that was shrunk before is given it back, but for one that holds it anyway.
		c.Odd["a-g0-0"] = nil
		c.Minutes(4)
		low := c.Due("a-g0-0")
		c.Odd["a-g0-0"] = x.edit
		c.Minute()
		switch got := c.Due("a-g0-0"); {
		case low == 3*scheduling.GiB:
			t.Errorf("%s: it was not shrunk", name)
		case name == "does not follow" && got != low, name != "does not follow" && got != 3*scheduling.GiB:
			t.Errorf("%s: %d MiB, had %d", name, got>>20, low>>20)
		}
	}
}

// The needs of others change nothing for a VM whose needs were declared.
func TestEviction(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("old", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.AddVC("young", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.Minutes(14)
	c.AddVC("fixed", state.NeedsDeclared, "elastic", 1, scheduling.Resources(1, 2*scheduling.GiB), scheduling.Resources(1, 2*scheduling.GiB))
	c.Use["old-g0-0"], c.Use["young-g0-0"] = scheduling.Resources(0.1, 3900*scheduling.MiB), scheduling.Resources(0.1, 2*scheduling.GiB)
	c.Minutes(3)
	vm, _ := c.VM("young-g0-0")
	if vm.Goal != state.GoalStop || !strings.Contains(vm.Reason, "preempted: those served before it leave host h1") || !strings.Contains(vm.Reason, "MiB of 8000 MiB, and taking back the ") {
		t.Fatalf("%+v", vm)
	}
	c.Minutes(2)
	if got := c.Due("old-g0-0"); got < 3900*scheduling.MiB {
		t.Errorf("%d MiB", got>>20)
	}
	if vm, _ := c.VM("fixed-g0-0"); vm.Goal != state.GoalRun || vm.Target != 0 {
		t.Errorf("%+v", vm)
	}
	if got := c.State("young"); got != state.VCDegraded {
		t.Errorf("young is %s", got)
	}
	// It starts again once there is room, and not before it waited.
	c.Must(state.KindPlan, stopOf(c, "fixed"))
	c.CommitPlan()
	c.Use["old-g0-0"] = scheduling.Resources(0.1, scheduling.GiB)
	if p := admission.Restart(c.Snapshot(), placement.Env{Now: c.Now, NewID: c.ID}); p != nil {
		t.Errorf("started again at once: %+v", p)
	}
	c.Minutes(25)
	p := admission.Restart(c.Snapshot(), placement.Env{Now: c.Now, NewID: c.ID})
	if p == nil || len(p.VMs) != 1 || p.VMs[0].PreemptedAt != 0 || p.VMs[0].Generation != 2 || !strings.Contains(p.Text, "preempted") {
		t.Fatalf("not started again: %+v", p)
	}
	c.Enact("again", p)
}

// On a host for which nothing may be decided, or that a new leader has not heard of, VMs count with all that they have: none is evicted for that.
func TestEvictsNoVMOfUnknownUse(t *testing.T) {
	for name, unknown := range map[string]func(*scheduling.Rightsized){
		"silent": func(c *scheduling.Rightsized) { c.Unavailable = map[string]string{"h1": "is silent"} },
		"new leader": func(c *scheduling.Rightsized) {
			c.Since = c.Now
			for _, name := range []string{"old-g0-0", "young-g0-0"} {
				c.Odd[name] = func(s *rightsizing.VMObservation) { s.At = time.Time{} }
			}
		},
	} {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1") // 8 GiB
		c.AddVC("old", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
		c.AddVC("young", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
		unknown(c)
		c.Host("h1", 4, 8*scheduling.GiB, scheduling.Resources(0, 4*scheduling.GiB))
		for range 8 {
			if out := c.Minute(); len(out.Preempt) > 0 {
				t.Fatalf("%s: evicted though its use is not known: %+v", name, out.Preempt)
			}
		}
		c.Unavailable = nil
		clear(c.Odd)
		for _, name := range []string{"old-g0-0", "young-g0-0"} {
			c.Use[name] = scheduling.Resources(0.1, 2*scheduling.GiB)
		}
		c.Minutes(12)
		if vm, _ := c.VM("young-g0-0"); vm.Goal != state.GoalStop {
			t.Errorf("%s: not evicted once its use is known, and does not fit: %+v", name, vm)
		}
	}
}

// One VM that a new leader has not heard of delays no eviction on a host where another is under memory pressure, by a measurement that counts.
func TestPressureEvictsBesideUnheard(t *testing.T) {
	for name, x := range map[string]struct {
		age   time.Duration // of the measurement that says so
		evict bool
	}{"now": {0, true}, "long ago": {time.Hour, false}} {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1") // 8 GiB
		c.AddVC("mute", state.NeedsEstimated, "core", 1, scheduling.Resources(1, scheduling.GiB/2), scheduling.Resources(0.1, scheduling.GiB/4))
		c.AddVC("old", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
		c.AddVC("young", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
		c.Minutes(14)
		c.Since = c.Now
		c.Host("h1", 4, 8*scheduling.GiB, scheduling.Resources(0, 3*scheduling.GiB))
		c.Use["old-g0-0"], c.Use["young-g0-0"] = scheduling.Resources(0.1, 3*scheduling.GiB), scheduling.Resources(0.1, 2*scheduling.GiB)
		c.Odd["mute-g0-0"] = func(s *rightsizing.VMObservation) { s.At = time.Time{} }
		c.Odd["young-g0-0"] = func(s *rightsizing.VMObservation) { s.Pressure = "" }
		c.Odd["old-g0-0"] = func(s *rightsizing.VMObservation) { s.Pressure, s.At = "it swaps", s.At.Add(-x.age) }
		c.Minutes(3)
		if vm, _ := c.VM("young-g0-0"); (vm.Goal == state.GoalStop) != x.evict {
			t.Errorf("under pressure %s: evicted: %v, want %v: %+v", name, !x.evict, x.evict, vm)
		}
	}
}

// A forecast that is not trusted leaves a VM with what it declared only until it was measured for a while; then its use counts.
func TestUseBeforeTrust(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("a", state.NeedsEstimated, "core", 1, scheduling.Resources(2, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
	measured := false
	c.Odd["a-g0-0"] = func(s *rightsizing.VMObservation) {
		for _, a := range []*rightsizing.Ahead{&s.CPU, &s.Memory} {
			*a = rightsizing.Ahead{Reason: "too few values", Measured: measured}
		}
	}
	c.Minutes(15)
	if v, g := c.VM("a-g0-0"); v.Due(g) != 3*scheduling.GiB || g.Estimated != 0 {
		t.Errorf("not measured for long: %+v, %+v", v, g)
	}
	measured = true
	c.Minutes(15)
	vm, g := c.VM("a-g0-0")
	if want := int64(12 * scheduling.GiB / 10); vm.Due(g) < want || vm.Due(g) > want+64*scheduling.MiB { // a fifth more than it uses
		t.Errorf("it uses 1 GiB and has %d MiB", vm.Due(g)>>20)
	}
	if math.Abs(g.Need()-0.4) > 1e-6 { // 0.3 cores, and 5% of 2
		t.Errorf("it uses 0.3 cores and counts as needing %v", g.Need())
	}
	if v := c.Last.VMs[0]; v.Excluded != "" || !strings.Contains(v.Text, "its use counts, as the forecast of its memory is not trusted: too few values") {
		t.Errorf("%+v", v)
	}
	c.Use["a-g0-0"] = scheduling.Resources(1.5, 2*scheduling.GiB) // it rises at once
	c.Minutes(2)
	if vm, g = c.VM("a-g0-0"); vm.Due(g) < 2*scheduling.GiB || g.Need() < 1.5 {
		t.Errorf("it uses 2 GiB and 1.5 cores, and has %d MiB and counts with %v", vm.Due(g)>>20, g.Need())
	}
}

// What VMs are expected to need keeps others out, and stops no VM: only memory in use does.
func TestForecastsEvictNoVM(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1") // 8 GiB
	for _, name := range []string{"a", "b", "c"} {
		c.AddVC(name, state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 25*scheduling.GiB/10), scheduling.Resources(0.1, scheduling.GiB/2))
	}
	c.Minutes(20)
	c.AddVC("d", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 25*scheduling.GiB/10), scheduling.Resources(0.1, scheduling.GiB/2))
	alarm := func(s *rightsizing.VMObservation) {
		for i := range s.Memory.Mean {
			s.Memory.Mean[i] = float64(24 * scheduling.GiB / 10)
		}
	}
	for _, name := range []string{"a-g0-0", "b-g0-0", "c-g0-0", "d-g0-0"} {
		c.Odd[name] = alarm
	}
	for range 60 {
		if out := c.Minute(); len(out.Preempt) > 0 {
			t.Fatalf("evicted for a forecast: %+v", out.Preempt)
		}
	}
	late := scheduling.VC("late", 0.5, scheduling.Group(1, 0.1, scheduling.GiB))
	if a := c.Create(late); !a.Queued {
		t.Errorf("admitted into memory that others are expected to need: %+v", a)
	}
	// Two that grow under pressure get what the others leave idle.
	for _, name := range []string{"c-g0-0", "d-g0-0"} {
		c.Odd[name], c.Use[name] = nil, scheduling.Resources(0.1, 2*scheduling.GiB)
	}
	c.Minutes(15)
	for _, name := range []string{"c-g0-0", "d-g0-0"} {
		if got := c.Due(name); got < 2*scheduling.GiB {
			t.Errorf("%s uses 2 GiB and has %d MiB: %+v", name, got>>20, c.Last.VMs)
		}
	}
	for _, name := range []string{"a-g0-0", "b-g0-0"} {
		if vm, g := c.VM(name); vm.Goal != state.GoalRun || vm.Due(g) > 2*scheduling.GiB {
			t.Errorf("%s has %d MiB or was evicted for idle memory: %+v", name, vm.Due(g)>>20, vm)
		}
	}
}

// Where a core VM has no room all of the VC goes, to the place in the queue that it had.
func TestCoreGoesWhole(t *testing.T) {
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("old", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.AddVC("young", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 2*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.Minutes(14)
	c.Host("h1", 4, 8*scheduling.GiB, scheduling.Resources(0, 4*scheduling.GiB)) // memory goes to a foreign VM
	c.Use["old-g0-0"], c.Use["young-g0-0"] = scheduling.Resources(0.1, 3*scheduling.GiB), scheduling.Resources(0.1, 1800*scheduling.MiB)
	c.Minutes(3)
	x := c.Named("young")
	if x.Goal != state.GoalRun || x.Admitted || !x.QueuedAt.Equal(x.CreatedAt) {
		t.Fatalf("%+v", x)
	}
	if vm, _ := c.VM("young-g0-0"); vm.Goal == state.GoalRun {
		t.Errorf("%+v", vm)
	}
	if vm, _ := c.VM("old-g0-0"); vm.Goal != state.GoalRun {
		t.Errorf("%+v", vm)
	}
}

// Whatever is used: limits hold at every step (see check), no VM is below the floor, what was declared is kept, and a plan made
// on a state applies to it.
func TestRightsizeUnderAnyUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1", "h2")
		for i, n := 0, rapid.IntRange(1, 5).Draw(t, "clusters"); i < n; i++ {
			x := scheduling.VC("c"+string(rune('a'+i)), 0.1, scheduling.Group(rapid.IntRange(1, 3).Draw(t, "count"), rapid.Float64Range(0.1, 2).Draw(t, "cpu"), int64(rapid.IntRange(4, 40).Draw(t, "memory"))*100*scheduling.MiB))
			x.Needs = rapid.SampledFrom([]string{state.NeedsEstimated, state.NeedsEstimated, state.NeedsDeclared}).Draw(t, "needs")
			x.Groups[0].Role = rapid.SampledFrom([]string{"core", "elastic"}).Draw(t, "role")
			x.Aggressiveness = rapid.SampledFrom([]string{"", state.Conservative, state.Aggressive}).Draw(t, "aggressiveness")
			c.Create(x)
		}
		c.CommitPlan()
		for range rapid.IntRange(1, 12).Draw(t, "spells") {
			for _, vm := range c.Snapshot().VMs() {
				x, _ := c.Snapshot().VC(vm.VC)
				g, _ := x.GroupOf(vm)
				share := rapid.Float64Range(0, 1).Draw(t, "use")
				c.Use[vm.Name] = scheduling.Resources(share*g.CPU, int64(share*float64(g.Memory)))
			}
			for range rapid.IntRange(1, 15).Draw(t, "minutes") {
				c.Minute()
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
				for _, v := range c.Last.VMs {
					if v.Text == "" {
						t.Fatalf("no words for %+v", v)
					}
				}
			}
			if p := admission.Restart(c.Snapshot(), placement.Env{Now: c.Now, NewID: c.ID}); p != nil && rapid.Bool().Draw(t, "again") {
				c.Enact("again", p)
			}
		}
	})
}
