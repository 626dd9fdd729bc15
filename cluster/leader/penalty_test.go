package leader_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// margin of balanced estimates now.
func (h *rightsizedHost) margin() (float64, leader.AdmissionStatus) {
	h.t.Helper()
	now, err := h.Rightsizing(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range now.Admission.Margins {
		if p.Aggressiveness == state.Balanced {
			return p.Factor, now.Admission
		}
	}
	return 0, now.Admission
}

// wants 4 cores, at a yield of 0.75 at least: 3 of the 4 that the host has.
func demanding(name string) state.VC {
	x := vc(name, 1, 4, 64<<20)
	x.MinYield, x.OnFull = 0.75, state.Queue
	return x
}

// P begins at its start, falls while VMs have what they can use, and rises when some have not. Then a VC that fitted before is
// refused, with the reason. It is admitted, without another request, once P has fallen.
func TestMarginFollowsQuality(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		if p, a := h.margin(); p != 1.5 || a.InForce || a.Quality >= 0 {
			t.Errorf("in the shadow, at first: %v, %+v", p, a)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			h.run(name, state.NeedsEstimated, "core", 1<<30, 256<<20)
			vm := name + "-g-0"
			h.use[vm] = state.Resources{CPU: 1.03 * h.use[vm].CPU, Memory: h.use[vm].Memory}
		}
		h.pass(15 * time.Minute)
		if p, a := h.margin(); p >= 1.4 || a.Quality != 1 || a.InForce || len(a.Hosts) != 1 || a.Hosts[0].Free != a.Hosts[0].FreeByEstimates || a.Hosts[0].Ignored == "" {
			t.Errorf("in the shadow: %v, %+v", p, a)
		}
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		if p, a := h.margin(); p != 1.5 || !a.InForce || a.Quality >= 0 {
			t.Errorf("as it is switched on: %v, %+v", p, a)
		}
		h.pass(20 * time.Minute)
		before, a := h.margin()
		if n := math.Round(math.Log(before/1.5) / math.Log(0.99)); n < 18 || n > 21 || math.Abs(1.5*math.Pow(0.99, n)-before) > 1e-9 || a.Quality != 1 {
			t.Errorf("after 20 good minutes: %v, %+v", before, a)
		}
		if r := a.Hosts[0]; r.Needs.CPU < 1 || r.Counts.CPU <= r.Needs.CPU || r.Free.CPU >= r.FreeByEstimates.CPU {
			t.Errorf("%+v", r)
		}
		fits := func(name string) (bool, state.Decision) {
			r, err := h.Create(t.Context(), demanding(name), leader.Call{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			return r.Decision.Admitted, r.Decision
		}
		if ok, d := fits("new"); !ok || !strings.Contains(d.Summary, "times (balanced)") {
			t.Fatalf("P = %v: %+v", before, d)
		}

		h.press["a-g-0"], h.press["b-g-0"] = true, true
		h.pass(5 * time.Minute)
		h.press = map[string]bool{}
		worse, a := h.margin()
		if worse <= before || a.Quality >= 0.99 {
			t.Fatalf("after bad minutes: %v, before %v, %+v", worse, before, a)
		}
		for bad := true; worse < 1.95; bad = !bad { // quality that falls again and again
			h.press["a-g-0"] = bad
			h.pass(2 * time.Minute)
			now, _ := h.margin()
			worse = now
		}
		h.press = map[string]bool{}
		if f := h.RightsizingStats(); f.Margins[1].Factor != worse || f.Quality < 0 {
			t.Errorf("%+v", f)
		}
		ok, d := fits("new")
		text := d.Summary + strings.Join(d.Advice, "; ") + d.Hosts[0].Text
		if ok || !strings.Contains(text, "by the estimates alone it would fit") || !strings.Contains(text, "times (balanced)") || !strings.Contains(text, "which count as") || !strings.Contains(text, "of the looks at them") {
			t.Fatalf("P = %v: %+v", worse, d)
		}
		if _, err := h.Create(t.Context(), demanding("new"), leader.Call{}); err != nil {
			t.Fatal(err)
		}
		if text := h.explained("new"); !strings.Contains(text, "by the estimates alone it would fit") {
			t.Error(text)
		}
		h.pass(30 * time.Minute)
		if x, _ := h.store.Snapshot().VCNamed("new"); !x.Admitted {
			p, _ := h.margin()
			t.Errorf("P = %v: %+v", p, x.Decision)
		}

		h.mode(state.RightsizingSettings{Mode: state.RightsizingOff})
		h.pass(time.Minute)
		if p, a := h.margin(); p != 0 || a.InForce || a.Margins != nil {
			t.Errorf("switched off: %v, %+v", p, a)
		}
	})
}

// A host's reported availability bounds what it is given, where needs are estimated, until the report is old.
func TestHostAvailability(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		h.run("a", state.NeedsEstimated, "core", 1<<30, 256<<20)
		vm, _ := h.vm("a-g-0")
		available := agent.Available{Available: agent.Limits{CPU: 3, Memory: 512 << 20}, Used: agent.Limits{CPU: 0.2, Memory: 256 << 20}, VMs: map[string]uint64{vm.ID: 1}}
		fits := func() (bool, string) {
			r, err := h.Create(t.Context(), vc("new", 1, 1, 2<<30), leader.Call{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			text := r.Decision.Summary
			for _, x := range r.Decision.Hosts {
				text += "\n" + x.Text
			}
			return r.Decision.Admitted, text
		}
		host := func() leader.HostView {
			v, err := h.View(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			x, _ := v.Host("h1")
			return v.HostView(x)
		}
		if host().Availability != nil {
			t.Errorf("%+v", host().Availability)
		}
		h.available = &available
		h.pass(time.Minute)
		if ok, text := fits(); !ok {
			t.Errorf("in the shadow: %s", text)
		}
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOn})
		if ok, text := fits(); ok || !strings.Contains(text, "the host itself holds 3.00 cores and 512 MiB to be available") {
			t.Errorf("its word is too little: %s", text)
		}
		if w := host().Availability; w == nil || w.Available.Memory != 512<<20 || w.Ignored != "" {
			t.Errorf("%+v", w)
		}
		h.available = nil
		h.pass(6 * time.Minute)
		if ok, text := fits(); !ok {
			t.Errorf("its word is old: %s", text)
		}
		if w := host().Availability; w == nil || w.Ignored == "" {
			t.Errorf("%+v", w)
		}
		h.available = &available
		h.pass(time.Minute)
		h.mode(state.RightsizingSettings{Mode: state.RightsizingOff})
		if ok, text := fits(); !ok {
			t.Errorf("switched off: %s", text)
		}
	})
}
