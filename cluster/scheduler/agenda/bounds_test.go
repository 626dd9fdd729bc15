package agenda_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// by is a small contract on one VM with a rule.
func by(rule string) state.SignOff {
	k := contract(1, scheduling.GiB/8)
	k.Recurrence = "DTSTART;TZID=UTC:20260101T000000\nRRULE:" + rule
	k.Groups[0].CPU, k.Cores = 0.01, []float64{0.01, 0.01}
	return k
}

// untilRest makes the agenda until nothing changes, at most so many times.
func untilRest(t *testing.T, c *scheduling.Cluster, rounds int) {
	t.Helper()
	for range rounds {
		put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(put.Occurrences)+len(put.Drop) == 0 {
			return
		}
		c.Must(state.KindAgenda, put)
	}
	t.Fatalf("the agenda does not rest after %d rounds", rounds)
}

// After an outage in which more occurrences lapsed than one command takes they are ended in several.
func TestLapsedOccurrencesAreEndedInParts(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	var lapsed []state.Occurrence
	for j := range 13 {
		name := fmt.Sprintf("job%d", j)
		signed(t, c, name, by("FREQ=DAILY;BYHOUR=12"))
		for i := range 100 {
			at := c.Now().Add(time.Duration(i) * time.Minute).UTC().Truncate(time.Second)
			lapsed = append(lapsed, state.Occurrence{ID: state.OccurrenceID(name, at), Job: name, Period: at, Start: at, End: at.Add(15 * time.Minute), Due: at.Add(2 * time.Hour),
				State: state.Degraded, Text: "no room"})
		}
	}
	for from := 0; from < len(lapsed); from += 650 {
		c.Must(state.KindAgenda, state.AgendaPut{Basis: c.Index, Occurrences: lapsed[from:min(from+650, len(lapsed))]})
	}
	c.Ahead += 26 * time.Hour
	untilRest(t, c, 10)
	for _, o := range c.Snapshot().Agenda() {
		if o.Start.Before(c.Now()) {
			t.Fatalf("still there: %+v", o)
		}
	}
}

// Dates that a job leaves out are in the agenda once, however many they are, and do not keep the occurrences of another job from it. Once
// the owner leaves them out no more, they have hosts.
func TestLeftOutDatesRest(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	today := c.Now().UTC()
	k := by("FREQ=MINUTELY;INTERVAL=20")
	k.Skips = []string{today.Format(time.DateOnly), today.Add(24 * time.Hour).Format(time.DateOnly)}
	signed(t, c, "a", k)
	signed(t, c, "b", by(fmt.Sprintf("FREQ=DAILY;BYHOUR=%d", today.Add(20*time.Hour).Hour())))
	untilRest(t, c, 5)
	if of := c.Snapshot().Occurrences("b"); len(of) != 1 || !of[0].Reserves() {
		t.Errorf("%+v", of)
	}
	if n := len(c.Snapshot().Occurrences("a")); n != 72 {
		t.Errorf("%d dates are left out, not 72", n)
	}
	job, _ := c.Snapshot().PeriodicJob("a")
	k.Skips = nil
	c.Must(state.KindPeriodic, state.PeriodicPut{Job: "a", Version: job.ModifyIndex, SignOff: k, Verb: "override"})
	untilRest(t, c, 5)
	for _, o := range c.Snapshot().Occurrences("a") {
		if o.State == state.LeftOut {
			t.Fatalf("%+v", o)
		}
	}
}

// A job with many occurrences leaves others their part of an evaluation.
func TestEachJobHasItsTurn(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	signed(t, c, "a", by("FREQ=MINUTELY;INTERVAL=20"))
	signed(t, c, "b", by(fmt.Sprintf("FREQ=DAILY;BYHOUR=%d", c.Now().UTC().Add(23*time.Hour).Hour())))
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	for _, o := range put.Occurrences {
		of[o.Job]++
	}
	if of["a"] != 59 || of["b"] != 1 {
		t.Errorf("%v", of)
	}
}

// A contract whose slots overlap, which an older server took, reserves at no time more than one of its runs.
func TestSlotsOfAJobAreApart(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2", "h3")
	k := by("FREQ=MINUTELY;INTERVAL=15")
	k.Step, k.Due = 3600, 4*3600
	signed(t, c, "a", k)
	for range 12 {
		untilRest(t, c, 5)
		last := time.Time{}
		for _, o := range c.Snapshot().Occurrences("a") {
			if o.Start.Before(last) {
				t.Fatalf("%s: %+v begins before the slot of another one ends", c.Now(), o)
			}
			last = o.End
		}
		if last.Before(c.Now().Add(20 * time.Hour)) {
			t.Fatalf("%s: the last slot ends at %s", c.Now(), last)
		}
		c.Ahead += 50 * time.Minute
	}
}

func TestContractsFit(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for rule, says := range map[string]string{
		"FREQ=HOURLY": "", "FREQ=MINUTELY;INTERVAL=16": "", "FREQ=DAILY": "", "FREQ=MONTHLY;BYMONTHDAY=31": "", "FREQ=MINUTELY;INTERVAL=15": "",
		"FREQ=MINUTELY;INTERVAL=14": "before a run", "FREQ=MINUTELY": "within 10m", "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,59": "within 10m", "FREQ=MINUTELY;BYDAY=SU": "within 10m",
		"FREQ=DAILY;UNTIL=20260201T000000Z": "no time", "FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31;COUNT=1": "no time", "FREQ=HOURLY;INTERVAL=168;BYDAY=SA": "no time",
	} {
		k := by(rule)
		if err := agenda.Fits(&k, now); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", rule, err, says)
		}
	}
}

// A VM that is to start again elsewhere is no end of its VC's run.
func TestRestartElsewhereGoesOnWithTheRun(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	c.Create(scheduling.VC("x", 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8)))
	c.Run()
	v, vm := c.Named("x"), c.VMOf("x")
	g, _ := v.GroupOf(vm)
	vm = vm.Restarting(g, "its virtual cluster was changed", true)
	c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "changed", VC: &v, VCVersion: v.ModifyIndex, VMs: []state.VM{vm}, AffectedHosts: []string{vm.Host}})
	c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
	if _, open := c.Snapshot().OpenRun(v.ID); !open {
		t.Errorf("its run is over: %+v", c.Snapshot().Runs("x"))
	}
}

// An occurrence runs only while its VC has a run of it: a VC without a run claims none, and one that is left is ended.
func TestNoOccurrenceRunsWithoutARun(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	vc := scheduling.VC("job-7", 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8))
	vc.Periodic.Name = "a"
	c.Create(vc)
	c.Run()
	vm := c.VMOf("job-7") // its VM ends by itself: its run is over
	c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
	c.Must(state.KindPeriodic, state.PeriodicPut{Job: "a", SignOff: by("FREQ=MINUTELY;INTERVAL=30"), Verb: "accept"})
	untilRest(t, c, 5)
	c.Ahead += 29 * time.Minute
	scaled := c.Named("job-7")
	scaled.Groups[0].Count = 2
	a := admission.Scale(c.Snapshot(), scaled, c.Env())
	if a.Plan == nil || a.Plan.Occurrence == "" || a.Plan.Job != "" {
		t.Fatalf("%+v", a)
	}
	a.Plan.Operation = nil
	c.Must(state.KindPlan, *a.Plan)
	o, _ := c.Snapshot().Occurrence(a.Plan.Occurrence)
	if o.State == state.RunningNow {
		t.Errorf("a VC without a run claims %+v", o)
	}
	o.State = state.RunningNow // as an older server left it
	c.Must(state.KindAgenda, state.AgendaPut{Basis: c.Index, Occurrences: []state.Occurrence{o}})
	untilRest(t, c, 5)
	if o, _ = c.Snapshot().Occurrence(o.ID); o.State != state.Missed || !strings.Contains(o.Text, "no run of it") {
		t.Errorf("%+v", o)
	}
}

// The jobs of a tenant that is suspended reserve nothing, until it no longer is.
func TestSuspendedTenantsReserveNothing(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	c.Must(state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "acme", Salt: "ab"}})
	signed(t, c, "a", by("FREQ=HOURLY"))
	vc := scheduling.VC("acme/x", 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8))
	c.Create(vc)
	c.Run()
	c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "stopped", VC: stopped(c, "acme/x"), VCVersion: c.Named("acme/x").ModifyIndex, VMs: gone(c, "acme/x")})
	c.Must(state.KindPeriodic, state.PeriodicPut{Job: "acme/x", SignOff: by("FREQ=HOURLY"), Verb: "accept"})
	for _, suspended := range []bool{false, true, false} {
		tenant, _ := c.Snapshot().Tenant("acme")
		tenant.Suspended = suspended
		c.Must(state.KindTenantPut, state.TenantPut{Tenant: tenant, Version: tenant.ModifyIndex})
		untilRest(t, c, 5)
		of := map[string]int{}
		for _, o := range c.Snapshot().Agenda() {
			if o.Reserves() {
				of[o.Job]++
			}
		}
		if of["a"] < 20 || (of["acme/x"] == 0) != suspended {
			t.Errorf("suspended %v: %v", suspended, of)
		}
	}
}
