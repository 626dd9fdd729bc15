package admission_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
	"evenkeel/test/scheduling"
)

// withMargin is what a leader knows that counts estimates so many times.
func withMargin(c *scheduling.Rightsized, p placement.Margin, availability map[string]placement.HostAvailability) placement.Env {
	return placement.Env{Now: c.Now, NewID: c.ID, Margin: p, Availability: availability}
}

func times(f float64) placement.Margin {
	return placement.Margin{Conservative: f, Balanced: f, Aggressive: f, Quality: 0.97}
}

// squeezed is a host of 4 cores and 8 GiB with two VMs that declared 1.9 cores and 3 GiB each, and are estimated to need some 0.4 and 1.2 GiB.
func squeezed(t scheduling.TB, mode state.RightsizingMode) *scheduling.Rightsized {
	c := scheduling.NewRightsized(t, mode, "h1")
	x := scheduling.VC("a", 1, scheduling.Group(2, 1.9, 3*scheduling.GiB))
	x.Needs = state.NeedsEstimated
	c.Create(x)
	c.CommitPlan()
	for _, vm := range c.Snapshot().VMsOf(x.ID) {
		c.Use[vm.Name] = scheduling.Resources(0.3, scheduling.GiB)
	}
	c.Minutes(14)
	return c
}

// The estimated needs of running VMs count P times where new ones are placed, in both resources; refusals say so.
func TestMarginedAdmission(t *testing.T) {
	for name, tc := range map[string]struct {
		margin      float64
		yield, cpu  float64
		memory      int64
		needs       string
		fits        bool
		says, never string
	}{
		"no penalty":               {1, 1, 3, scheduling.GiB, "declared", true, "", "count"},
		"cpu":                      {2, 1, 3, scheduling.GiB, "declared", false, "lacks 0.", ""},
		"cpu of an estimated one":  {2, 1, 3, scheduling.GiB, "estimated", false, "lacks 0.", ""},
		"cpu that is there":        {2, 1, 2, scheduling.GiB, "declared", true, "counts 2.00 times (balanced)", "by the estimates alone"},
		"half of it accepted":      {2, 0.5, 3, scheduling.GiB, "declared", true, "", "by the estimates alone"},
		"memory":                   {2, 1, 1, 3400 * scheduling.MiB, "declared", false, "lacks", ""},
		"memory that is reserved":  {1.4, 1, 1, 3400 * scheduling.MiB, "declared", true, "", "by the estimates alone"},
		"memory without a penalty": {1, 1, 1, 3400 * scheduling.MiB, "declared", true, "", "count"},
		"no more than declared":    {100, 1, 0.001, 1500 * scheduling.MiB, "declared", true, "", "by the estimates alone"},
		"all that was declared":    {100, 1, 0.1, 2000 * scheduling.MiB, "declared", false, "3.80 and 6144", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := squeezed(t, state.RightsizingOn)
			x := scheduling.VC("new", tc.yield, scheduling.Group(1, tc.cpu, tc.memory))
			x.Needs, x.OnFull = tc.needs, state.Queue
			env := withMargin(c, times(tc.margin), nil)
			a := admission.Create(c.Snapshot(), x, env)
			text := decisionText(a.Decision)
			if a.Decision.Admitted != tc.fits || !strings.Contains(text, tc.says) || tc.never != "" && strings.Contains(text, tc.never) {
				t.Fatalf("admitted: %v\n%s", a.Decision.Admitted, text)
			}
			if !tc.fits {
				for _, says := range []string{"by the estimates alone it would fit", fmt.Sprintf("counts %.2f times (balanced)", tc.margin), "97.0% of the looks", "wait: the factor falls by 1%", "bolder than balanced"} {
					if !strings.Contains(text, says) {
						t.Errorf("does not say %q: %s", says, text)
					}
				}
				if d := admission.Consider(c.Snapshot(), x, env); d.Admitted || d.Summary != a.Decision.Summary {
					t.Errorf("considered: %+v", d)
				}
			}
			// The queue is decided by the same rooms, and everything without a penalty as ever.
			c.Must(state.KindPlan, admission.Create(c.Snapshot(), x, withMargin(c, times(1000), nil)).Plan)
			if _, waits := c.Snapshot().VCNamed("new"); waits && !c.Named("new").Admitted {
				if got := len(admission.Fitting(c.Snapshot(), env)); got != map[bool]int{true: 1}[tc.fits] {
					t.Errorf("%d of the queue fit", got)
				}
				if p := new(admission.QueueCache).Admit(c.Snapshot(), env); (p != nil) != tc.fits {
					t.Errorf("from the queue: %+v", p)
				}
			}
		})
	}
}

func decisionText(d state.Decision) string {
	text := d.Summary + "\n" + strings.Join(d.Advice, "\n")
	for _, h := range d.Hosts {
		text += "\n" + h.Text
	}
	return text
}

// A VM that has room on another host goes there, and no other VM is given less for it.
func TestMarginedPlacement(t *testing.T) {
	c := squeezed(t, state.RightsizingOn)
	c.Host("h2", 2.5, 8*scheduling.GiB, state.Resources{}) // smaller: by the estimates h1 is as good
	for _, tc := range []struct {
		margin float64
		host   string
	}{{1, "h1"}, {2, "h2"}} {
		a := admission.Create(c.Snapshot(), scheduling.VC("new", 1, scheduling.Group(1, 2.45, scheduling.GiB)), withMargin(c, times(tc.margin), nil))
		if a.Plan == nil || a.Queued {
			t.Fatalf("%+v", a.Decision)
		}
		if tc.margin > 1 && a.Plan.VMs[0].Host != tc.host {
			t.Errorf("P = %v: on %s\n%+v", tc.margin, a.Plan.VMs[0].Host, a.Decision)
		}
		if a.Decision.MinYield != 1 || a.Decision.UpperBound < 1 {
			t.Errorf("%+v", a.Decision)
		}
	}
}

// Moves that would make room for a VC that waits are planned with the same margin: none where it fits by the estimates, one
// where the margin refuses that.
func TestHeadroomByMoves(t *testing.T) {
	c := squeezed(t, state.RightsizingOn)
	c.Host("h2", 4, 8*scheduling.GiB, state.Resources{})
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	c.Create(scheduling.VC("b", 1, scheduling.Group(1, 2, scheduling.GiB)))
	c.CommitPlan()
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1"})
	x := scheduling.VC("new", 1, scheduling.Group(1, 3, scheduling.GiB))
	for _, tc := range []struct {
		margin float64
		steps  int
	}{{1, 0}, {2, 1}} {
		plan, _, err := rebalance.PlanRoom(moves.NewFleet(c.Snapshot(), withMargin(c, times(tc.margin), nil), moves.Observation{}, moves.Options{}, x), -1)
		if err != nil || len(plan.Steps) != tc.steps || tc.steps > 0 && (plan.Steps[0].VMName != "b-g0-0" || plan.Steps[0].To != "h1") {
			t.Errorf("P = %v: %v, %+v", tc.margin, err, plan.Steps)
		}
		if a := admission.Consider(c.Snapshot(), x, withMargin(c, times(tc.margin), nil)); a.Admitted != (tc.steps == 0) {
			t.Errorf("P = %v: %+v", tc.margin, a)
		}
	}
}

// With rightsizing off, in shadow mode, or where no VM's needs are estimated, neither penalty nor availability counts.
func TestNoMargin(t *testing.T) {
	availability := map[string]placement.HostAvailability{"h1": {At: scheduling.Start.Add(time.Hour), Available: scheduling.Resources(0, 0)}}
	for name, make := range map[string]func() *scheduling.Rightsized{
		"off":    func() *scheduling.Rightsized { return squeezed(t, state.RightsizingOff) },
		"shadow": func() *scheduling.Rightsized { return squeezed(t, state.RightsizingShadow) },
		"declared": func() *scheduling.Rightsized {
			c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
			c.AddVC("a", state.NeedsDeclared, "core", 1, scheduling.Resources(2, 3*scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB))
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := make()
			env := withMargin(c, times(2), availability)
			env.Now = scheduling.Start.Add(time.Hour)
			plain := env
			plain.Margin, plain.Availability = placement.Margin{}, nil
			for _, memory := range []int64{scheduling.GiB, 2 * scheduling.GiB, 4 * scheduling.GiB} {
				x := scheduling.VC("new", 0.5, scheduling.Group(1, 2, memory))
				a, b := admission.Consider(c.Snapshot(), x, env), admission.Consider(c.Snapshot(), x, plain)
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%d MiB: %+v, without %+v", memory>>20, a, b)
				}
			}
			for _, headroom := range admission.HeadroomForNew(c.Snapshot(), env) {
				if headroom.Free != headroom.FreeByEstimates {
					t.Errorf("%+v", headroom)
				}
			}
		})
	}
}

// A host's reported availability bounds what new VMs get there, less what was placed since. A report that is old or missing
// does not count, and the answer says so.
func TestHostAvailability(t *testing.T) {
	const ample = 1.0
	for name, tc := range map[string]struct {
		availability placement.HostAvailability
		age          time.Duration
		none         bool
		unknown      bool // the word knows nothing of what runs
		fits         bool
		says         string
	}{
		"enough":                    {availability: placement.HostAvailability{Available: scheduling.Resources(2, 2*scheduling.GiB)}, fits: true},
		"too little memory":         {availability: placement.HostAvailability{Available: scheduling.Resources(2, 1500*scheduling.MiB)}, says: "the host itself holds 2.00 cores and 1500 MiB to be available"},
		"too little CPU":            {availability: placement.HostAvailability{Available: scheduling.Resources(0.5, 2*scheduling.GiB)}, says: "1 of 1 hosts say themselves that less is available"},
		"CPU that makes way":        {availability: placement.HostAvailability{Available: scheduling.Resources(0.5, 2*scheduling.GiB), Used: scheduling.Resources(1.5, scheduling.GiB)}, fits: true},
		"below nothing":             {availability: placement.HostAvailability{Available: scheduling.Resources(-1, -scheduling.GiB)}, says: "the host itself holds"},
		"old":                       {availability: placement.HostAvailability{Available: scheduling.Resources(0, 0)}, age: 5 * time.Minute, fits: true},
		"not so old":                {availability: placement.HostAvailability{Available: scheduling.Resources(0, 0)}, age: 299 * time.Second, says: "the host itself holds"},
		"missing":                   {none: true, fits: true},
		"of before others came":     {availability: placement.HostAvailability{Available: scheduling.Resources(2, 2*scheduling.GiB)}, unknown: true, says: "the host itself holds"},
		"that is more than is left": {availability: placement.HostAvailability{Available: scheduling.Resources(100, 1000*scheduling.GiB)}, fits: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := squeezed(t, state.RightsizingOn)
			tc.availability.At, tc.availability.VMs = c.Now.Add(-tc.age), map[string]uint64{}
			for _, vm := range c.Snapshot().VMs() {
				if !tc.unknown {
					tc.availability.VMs[vm.ID] = vm.Generation
				}
			}
			availability := map[string]placement.HostAvailability{"h1": tc.availability}
			if tc.none {
				availability = nil
			}
			a := admission.Create(c.Snapshot(), scheduling.VC("new", 1, scheduling.Group(1, ample, 1800*scheduling.MiB)), withMargin(c, times(1), availability))
			if text := decisionText(a.Decision); a.Decision.Admitted != tc.fits || !strings.Contains(text, tc.says) {
				t.Errorf("admitted: %v\n%s", a.Decision.Admitted, text)
			}
			if headroom := admission.HeadroomForNew(c.Snapshot(), withMargin(c, times(1), availability))[0]; (headroom.Ignored != "") != (tc.none || tc.age >= 5*time.Minute) {
				t.Errorf("%+v", headroom)
			}
		})
	}
	c := squeezed(t, state.RightsizingOn)
	a := admission.Create(c.Snapshot(), scheduling.VC("new", 1, scheduling.Group(1, 3, scheduling.GiB)), withMargin(c, times(2), map[string]placement.HostAvailability{"h1": {At: c.Now.Add(-time.Hour)}}))
	if text := decisionText(a.Decision); a.Decision.Admitted || !strings.Contains(text, "the word on that of host h1 is passed over: it is of ") {
		t.Error(text)
	}
}

// For any VC, estimates and reports: there is never more headroom than without a margin, and the same where the margin is none.
// What is admitted would be admitted without a margin too, and on a host that takes a VM everything fits though estimates were
// P times as large.
func TestRoomIsNeverMore(t *testing.T) {
	less, refused, elsewhere := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1", "h2", "h3")
		draw := func(name string) state.VC {
			x := scheduling.VC(name, rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(t, "yield"), scheduling.Group(rapid.IntRange(1, 3).Draw(t, "count"), float64(rapid.IntRange(1, 30).Draw(t, "tenths"))/10, int64(rapid.IntRange(2, 45).Draw(t, "memory"))*100*scheduling.MiB))
			x.Needs = rapid.SampledFrom([]string{state.NeedsEstimated, state.NeedsEstimated, state.NeedsDeclared}).Draw(t, "needs")
			x.Aggressiveness = rapid.SampledFrom([]string{"", state.Conservative, state.Aggressive}).Draw(t, "aggressiveness")
			return x
		}
		for i, n := 0, rapid.IntRange(1, 5).Draw(t, "clusters"); i < n; i++ {
			c.Create(draw(fmt.Sprintf("c%d", i)))
		}
		c.CommitPlan()
		for _, vm := range c.Snapshot().VMs() {
			x, _ := c.Snapshot().VC(vm.VC)
			g, _ := x.GroupOf(vm)
			share := rapid.Float64Range(0, 0.7).Draw(t, "use")
			c.Use[vm.Name] = scheduling.Resources(share*g.CPU, int64(share*float64(g.Memory)))
		}
		c.Minutes(rapid.IntRange(1, 15).Draw(t, "minutes"))
		for i := range rapid.IntRange(1, 4).Draw(t, "late") {
			factor := func(what string) float64 { return 1 + float64(rapid.IntRange(0, 10).Draw(t, what))/10 }
			p := placement.Margin{Conservative: factor("conservative"), Balanced: factor("balanced"), Aggressive: factor("aggressive")}
			availability := map[string]placement.HostAvailability{}
			for _, h := range c.Snapshot().Hosts() {
				if rapid.Bool().Draw(t, "word") {
					w := placement.HostAvailability{At: c.Now, Available: scheduling.Resources(rapid.Float64Range(-1, 4).Draw(t, "cores"), int64(rapid.IntRange(-10, 80).Draw(t, "left"))*100*scheduling.MiB), VMs: map[string]uint64{}}
					for _, vm := range c.Snapshot().VMsOn(h.Name) {
						if rapid.Bool().Draw(t, "counted") {
							w.VMs[vm.ID] = vm.Generation
						}
					}
					availability[h.Name] = w
				}
			}
			s, x := c.Snapshot(), draw(fmt.Sprintf("late%d", i))
			for _, headroom := range admission.HeadroomForNew(s, withMargin(c, p, availability)) {
				if headroom.Free.CPU > headroom.FreeByEstimates.CPU || headroom.Free.Memory > headroom.FreeByEstimates.Memory || headroom.Counts.CPU < headroom.Needs.CPU || headroom.Counts.Memory < headroom.Needs.Memory {
					t.Fatalf("more room: %+v", headroom)
				}
				if headroom.Free != headroom.FreeByEstimates {
					less++
				}
			}
			for _, headroom := range admission.HeadroomForNew(s, withMargin(c, times(1), nil)) {
				if headroom.Free != headroom.FreeByEstimates {
					t.Fatalf("nothing is doubted: %+v", headroom)
				}
			}
			a, plain := admission.Create(s, x, withMargin(c, p, availability)), admission.Create(s, x, withMargin(c, placement.Margin{}, nil))
			if one := admission.Create(s, x, withMargin(c, times(1), nil)); !reflect.DeepEqual(one.Decision, plain.Decision) {
				t.Fatalf("a factor of 1: %+v, without %+v", one.Decision, plain.Decision)
			}
			switch {
			case a.Decision.Admitted && !plain.Decision.Admitted:
				t.Fatalf("admits more: %+v, without %+v", a.Decision, plain.Decision)
			case plain.Decision.Admitted && !a.Decision.Admitted:
				refused++
			case a.Plan != nil && !reflect.DeepEqual(a.Plan.VMs, plain.Plan.VMs):
				elsewhere++
			}
			if a.Plan == nil {
				continue
			}
			c.Enact("late", a.Plan)
			if a.Decision.Admitted {
				fitsMargined(c, s, p, availability)
			}
			c.CommitPlan()
		}
	})
	if less == 0 || refused == 0 || elsewhere == 0 {
		t.Errorf("%d hosts with less room, %d refused, %d placed otherwise: the test shows nothing", less, refused, elsewhere)
	}
}

// fitsMargined checks a host that took a VM since: it has room for everything, with estimates P times as large but no larger
// than declared, and gives new VMs no more memory than it reported.
func fitsMargined(c *scheduling.Rightsized, before *state.Snapshot, p placement.Margin, availability map[string]placement.HostAvailability) {
	c.T.Helper()
	after := c.Snapshot()
	m, _ := after.Meta()
	estimates := slices.ContainsFunc(after.VCs(), func(x state.VC) bool { return x.Needs == state.NeedsEstimated })
	for _, h := range after.Hosts() {
		cpu, memory, came, unknown := 0.0, int64(0), false, int64(0)
		for _, vm := range after.VMsOn(h.Name) {
			x, _ := after.VC(vm.VC)
			g, _ := x.GroupOf(vm)
			if !vm.ConsumesResources() {
				continue
			}
			_, was := before.VM(vm.ID)
			came = came || !was
			need, charged := g.Need(), max(vm.ChargedMemory, vm.Due(g))
			if availability[h.Name].VMs[vm.ID] != vm.Generation {
				unknown += charged + h.VMOverhead
			}
			if f := p.Of(m.Settings.Rightsizing.AggressivenessOf(&x)); x.Needs == state.NeedsEstimated {
				need = min(f*need, g.CPU)
				if vm.Target > 0 {
					charged = max(charged, min(int64(f*float64(vm.Due(g))), g.Memory))
				}
			}
			cpu += min(x.MinYield, g.Yield()*g.Need()/need) * need
			memory += charged + h.VMOverhead
		}
		if !came {
			continue
		}
		if limit := h.Usable(); cpu > limit.CPU*(1+1e-6) || memory > limit.Memory {
			c.T.Fatalf("host %s took a VM: %v cores of %v, %d MiB of %d count", h.Name, cpu, limit.CPU, memory>>20, limit.Memory>>20)
		}
		if w, reported := availability[h.Name]; reported && estimates && unknown > max(0, w.Available.Memory) {
			c.T.Fatalf("host %s: %d MiB are new to it, it said %d", h.Name, unknown>>20, w.Available.Memory>>20)
		}
	}
}

// The names of degrees of aggressiveness stand for penalties that can be made, the more aggressive the lower, and that can rise
// again from where they end.
func TestPenaltyTexts(t *testing.T) {
	last := math.Inf(1)
	for _, text := range []string{state.Conservative, state.Balanced, state.Aggressive} {
		set := admission.MarginFor(text)
		p, err := forecast.NewPenalty(set)
		if err != nil || set.Start >= last || set.Min <= 1 {
			t.Errorf("%s: %+v, %v", text, set, err)
		}
		last = set.Start
		for range 1000 {
			p.Observe(1)
		}
		low := p.Value()
		if p.Observe(0.9); low != set.Min || p.Value() <= low {
			t.Errorf("%s: %v, then %v after a bad minute", text, low, p.Value())
		}
	}
	p := placement.Margin{Conservative: 2, Balanced: 1.5, Aggressive: 1.1}
	if p.Of(state.Conservative) != 2 || p.Of(state.Balanced) != 1.5 || p.Of(state.Aggressive) != 1.1 || (placement.Margin{}).Of(state.Balanced) != 1 {
		t.Errorf("%+v", p)
	}
}
