package state_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// withRun has a run of a job that was signed off.
func withRun(t *testing.T) (*cluster, state.Run) {
	t.Helper()
	k := small(t, 2)
	k.oneRun(t, "first", "job")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: contract(), Verb: "accept"})
	at := start.Add(time.Hour)
	k.must(t, state.KindAgenda, state.AgendaPut{Basis: k.Snapshot().Index(), Occurrences: []state.Occurrence{occurrence("job", at, state.Confirmed, "h1")}})
	p := runPlan(k.Snapshot(), "slot", "job", "h1")
	p.Occurrence = state.OccurrenceID("job", at)
	k.must(t, state.KindPlan, p)
	k.must(t, state.KindVMReport, report("h1", "vm-slot-0", 1, state.Running))
	run, ok := k.Snapshot().OpenRun("vc-slot")
	if !ok || run.Occurrence == "" {
		t.Fatalf("%+v", run)
	}
	return k, run
}

func (c *cluster) grants(t *testing.T, r state.RunGrant) {
	t.Helper()
	c.must(t, state.KindReprovision, state.ReprovisionPut{Basis: c.Snapshot().Index(), Runs: []state.RunGrant{r}})
}

func events(c *cluster, kind string) (out []state.Event) {
	for _, e := range c.Snapshot().EventsAfter(0, 0) {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// A grant stands with the run in the state, in snapshots and after a restore, until it is decided again or the run ends. Its hosts' plans
// are made again, and its beginning and end beyond the reservation are events.
func TestGrants(t *testing.T) {
	k, run := withRun(t)
	version := func() uint64 { h, _ := k.Snapshot().Host("h1"); return h.Version }
	before := version()
	k.grants(t, state.RunGrant{Run: run.ID, Grant: &state.Grant{Since: start, Cores: 0.125}})
	if version() == before || len(events(k, "occurrence-reprovisioned")) != 0 {
		t.Error("the host was not touched, or a promise of the reservation is an event")
	}
	k.grants(t, state.RunGrant{Run: run.ID, Text: "it is late", Grant: &state.Grant{Since: start, Cores: 0.2, Extra: 0.025, From: []string{"x"}}, Extras: state.Extras{Done: 5}})
	k.grants(t, state.RunGrant{Run: run.ID, Text: "it is late", Grant: &state.Grant{Since: start, Cores: 0.2, Extra: 0.05}, Extras: state.Extras{Done: 7, Extra: 3600}})
	saved := save(t, k.Snapshot())
	again := state.New()
	if err := again.Restore(bytes.NewReader([]byte(saved))); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*state.Snapshot{k.Snapshot(), again.Snapshot()} {
		vc, _ := s.VC("vc-slot")
		if g, declared := s.GrantOf("vc-slot"); g.Cores != 0.2 || g.Extra != 0.05 || declared != vc.Groups[0].CPU {
			t.Errorf("%+v of %v", g, declared)
		}
		if y := s.GrantedYield("vc-slot", vc.Groups[0]); y != 0.8 {
			t.Errorf("yield %v", y)
		}
		less := vc.Groups[0]
		if less.Estimated = 0.1; s.GrantedYield("vc-slot", less) != 1 {
			t.Errorf("yield %v of an estimated need", s.GrantedYield("vc-slot", less))
		}
	}
	if e := events(k, "occurrence-reprovisioned"); len(e) != 1 || !strings.Contains(e[0].Text, "it is late") {
		t.Errorf("%+v", e)
	}
	k.grants(t, state.RunGrant{Run: run.ID, Extras: state.Extras{Extra: 3600}})
	if e := events(k, "occurrence-grant-ended"); len(e) != 1 || !strings.Contains(e[0].Text, "1.00 core-hours") {
		t.Errorf("%+v", e)
	}
	k.grants(t, state.RunGrant{Run: run.ID, Grant: &state.Grant{Cores: 1, Extra: 0.5}})
	k.must(t, state.KindPlan, leave(k.Snapshot(), "slot", state.GoalStop))
	k.grants(t, state.RunGrant{Run: run.ID, Grant: &state.Grant{Cores: 1}, Extras: state.Extras{Done: 9}})
	if got := k.Snapshot().Runs("job"); got[len(got)-1].Grant != nil || got[len(got)-1].Extras.Done != 9 {
		t.Errorf("a run that has ended: %+v", got[len(got)-1])
	}
	k.grants(t, state.RunGrant{Run: "gone"}) // left out
}

func TestGrantsThatCannotBe(t *testing.T) {
	k, run := withRun(t)
	for name, r := range map[string]state.RunGrant{
		"no run":               {},
		"less than none":       {Run: run.ID, Grant: &state.Grant{Cores: -1}},
		"no number":            {Run: run.ID, Grant: &state.Grant{Cores: math.MaxFloat64, Extra: -1}},
		"more beyond than all": {Run: run.ID, Grant: &state.Grant{Cores: 1, Extra: 2}},
		"a long text":          {Run: run.ID, Text: strings.Repeat("x", 501)},
		"a nameless loser":     {Run: run.ID, Grant: &state.Grant{Cores: 1, From: []string{""}}},
		"many losers":          {Run: run.ID, Grant: &state.Grant{Cores: 1, From: strings.Split("abcdefghi", "")}},
		"less than nothing":    {Run: run.ID, Extras: state.Extras{Borrowed: -1}},
	} {
		if err := k.apply(t, state.KindReprovision, state.ReprovisionPut{Basis: k.Snapshot().Index(), Runs: []state.RunGrant{r}}); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := k.apply(t, state.KindReprovision, state.ReprovisionPut{Basis: k.Snapshot().Index() + 9}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("decided on what is to come: %v", err)
	}
}
