package leader_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
)

// delayRun lets a run of an hourly job begin in its slot beside other work that needs all CPU, stand still for twelve minutes, and ask for
// all that it declared.
func (h *rightsizedHost) delayRun() {
	h.t.Helper()
	spec := vc("job-1", 1, 2, 512<<20)
	spec.Periodic.Name = "job"
	if _, err := h.Create(h.t.Context(), spec, leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	h.pass(20 * time.Second)
	if _, err := h.Delete(h.t.Context(), "job-1", leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	h.pass(20 * time.Second)
	ask := leader.PeriodicAsk{Verb: "accept", Ask: agenda.Ask{Rule: "FREQ=HOURLY", Length: 10 * time.Minute, Deadline: 20 * time.Minute, Cores: 1.2}}
	if _, err := h.DecidePeriodic(h.t.Context(), "job", ask, leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Create(h.t.Context(), vc("other", 4, 1, 512<<20), leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	h.pass(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) + 10*time.Second)
	spec.Name = "job-2"
	if _, err := h.Create(h.t.Context(), spec, leader.Call{}); err != nil {
		h.t.Fatal(err)
	}
	h.use["job-2-g-0"] = state.Resources{Memory: 256 << 20}
	h.pass(12 * time.Minute)
	h.use["job-2-g-0"] = state.Resources{CPU: 2, Memory: 256 << 20}
	h.pass(2 * time.Minute)
}

// delayed is what a run is sure of that would miss its deadline.
var delayed play = func(t *testing.T, change func(*state.Settings)) (seen string) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		must[state.Settings](t)(h.Settings(t.Context(), func(s *state.Settings) error { change(s); return nil }, leader.Call{}))
		h.delayRun()
		x, _ := h.store.Snapshot().VCNamed("job-2")
		if seen = "sure of its minYield"; leader.GrantLines(h.store.Snapshot(), x.ID, true) != nil {
			if g, _ := h.store.Snapshot().GrantOf(x.ID); g.Cores > 0 {
				seen = fmt.Sprintf("sure of %.1f cores", g.Cores)
			}
		}
	})
	return seen
}

// A run that stood still is given what it needs to meet its deadline: its caps rise, explain says so and who has less, and a change of
// leaders does not take it. It ends in time.
func TestGrantsOutliveLeaders(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		h.delayRun()
		check := func(when string) {
			t.Helper()
			x, _ := h.store.Snapshot().VCNamed("job-2")
			if g, _ := h.store.Snapshot().GrantOf(x.ID); g.Cores != 2 || g.Extra < 0.5 || x.Groups[0].Allocation < 2-1e-6 {
				t.Errorf("%s: %+v; each VM has %v cores", when, g, x.Groups[0].Allocation)
			}
			if text := h.explained("job-2"); !strings.Contains(text, "beyond what is reserved") || !strings.Contains(text, "less than they need: other") {
				t.Errorf("%s: %s", when, text)
			}
		}
		check("granted")
		if f := h.ReprovisionStats(); f.Runs != 1 || f.Late != 1 || f.Granted < 0.5 || f.Grants != 1 || f.GrantedSeconds <= 0 {
			t.Errorf("%+v", f)
		}
		h.end()
		h.lead(2)
		h.report()
		check("another leader")
		h.pass(70 * time.Second)
		check("it has evaluated")
		if _, err := h.Delete(t.Context(), "job-2", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		h.pass(2 * time.Minute)
		runs := h.store.Snapshot().Runs("job")
		if last := runs[len(runs)-1]; last.Grant != nil || last.Extras == nil || last.Extras.Done < 120 || last.Extras.Extra <= 0 {
			t.Errorf("%+v, %+v", last, last.Extras)
		}
		for _, o := range h.store.Snapshot().Occurrences("job") {
			if o.State == state.Missed {
				t.Errorf("%+v", o)
			}
		}
	})
}
