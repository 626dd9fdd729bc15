package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// runPlan is planOf for a VC whose run is recorded as one of a job.
func runPlan(s *state.Snapshot, name, job string, hosts ...string) state.Plan {
	p := planOf(s, name, 0.25, gib/4, hosts...)
	p.Job = job
	return p
}

// oneRun creates a VC, lets its VM run, and deletes the VC.
func (c *cluster) oneRun(t failer, name, job string) {
	t.Helper()
	c.must(t, state.KindPlan, runPlan(c.Snapshot(), name, job, "h1"))
	vm := "vm-" + name + "-0"
	c.must(t, state.KindVMReport, report("h1", vm, 1, state.Running))
	c.must(t, state.KindPlan, leave(c.Snapshot(), name, state.GoalDelete))
	c.must(t, state.KindVMReport, state.VMReport{Host: "h1", VMs: []state.VMStatus{{VM: vm, Generation: 1, Phase: state.Stopped, SourceLost: true}}})
}

func usage(steps int) state.RunUsage {
	u := state.RunUsage{Step: 60}
	for range steps {
		u.VMs, u.Cores, u.Memory = append(u.VMs, 1), append(u.Cores, 250), append(u.Memory, 256)
	}
	return u
}

// contract is a decision of an owner, of a job that runs each hour for ten minutes on one VM.
func contract() state.SignOff {
	return state.SignOff{State: state.SignedOff, By: "ann", Recurrence: "DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=HOURLY", Arrival: 60, Lateness: 300, Due: 3000, Declared: true,
		Miss: 0.1, Runs: 9, Groups: []state.RunGroup{{Name: "g", Count: 1, CPU: 0.25, Memory: gib / 4}}, Step: 300, Cores: []float64{0.2, 0.25}, Skips: []string{"2026-12-24"}}
}

func occurrence(job string, period time.Time, st state.OccurrenceState, hosts ...string) state.Occurrence {
	return state.Occurrence{ID: state.OccurrenceID(job, period), Job: job, Period: period, Start: period.Add(time.Minute), End: period.Add(16 * time.Minute),
		Due: period.Add(50 * time.Minute), State: st, Hosts: hosts}
}

// withPeriodic has a job whose runs are recorded, which is signed off, runs in its slot, and is rejected.
func withPeriodic(t *testing.T, k *cluster) {
	t.Helper()
	k.must(t, state.KindHostReport, hostReport("h1", 8, 16*gib))
	for n := range 2 {
		p := runPlan(k.Snapshot(), fmt.Sprintf("nightly-%d", n), "nightly", "h1")
		p.VC.Periodic, p.VC.Duration = state.Periodic{Name: "nightly", Deadline: 3000}, 600
		k.must(t, state.KindPlan, p)
		k.must(t, state.KindVMReport, report("h1", fmt.Sprintf("vm-nightly-%d-0", n), 1, state.Running))
		k.must(t, state.KindPlan, leave(k.Snapshot(), fmt.Sprintf("nightly-%d", n), state.GoalStop))
	}
	u := usage(2)
	u.Throttled, u.Unknown = []int{0}, []int{1}
	k.must(t, state.KindRunUsage, state.RunUsagePut{Runs: []state.RunUsageOf{{Run: k.Snapshot().Runs("nightly")[0].ID, Usage: u}}})
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "nightly", SignOff: contract(), Verb: "accept", Text: "hourly"})
	one, two := start.Add(time.Hour), start.Add(2*time.Hour)
	k.must(t, state.KindAgenda, state.AgendaPut{Basis: k.Snapshot().Index(), Occurrences: []state.Occurrence{occurrence("nightly", one, state.Confirmed, "h1"), occurrence("nightly", two, state.Confirmed, "h1")}})
	p := runPlan(k.Snapshot(), "slot", "nightly", "h1")
	p.Occurrence = state.OccurrenceID("nightly", one)
	k.must(t, state.KindPlan, p)
	k.must(t, state.KindVMReport, report("h1", "vm-slot-0", 1, state.Running))
	run, _ := k.Snapshot().OpenRun("vc-slot")
	more := state.RunGrant{Run: run.ID, Text: "it is late", Extras: state.Extras{At: start.Add(time.Hour), Done: 90, Extra: 30, Borrowed: 12},
		Grant: &state.Grant{Since: start.Add(time.Hour), Cores: 1.5, Extra: 0.5, Bound: "recent", From: []string{"full"}}}
	k.must(t, state.KindReprovision, state.ReprovisionPut{Basis: k.Snapshot().Index(), Runs: []state.RunGrant{more}})
	lost := occurrence("nightly", two, state.Degraded)
	lost.Text = "no host has room"
	k.must(t, state.KindAgenda, state.AgendaPut{Basis: k.Snapshot().Index(), Occurrences: []state.Occurrence{lost}})
	k.must(t, state.KindPlan, leave(k.Snapshot(), "slot", state.GoalStop))
	job, _ := k.Snapshot().PeriodicJob("nightly")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "nightly", Version: job.ModifyIndex, SignOff: state.SignOff{State: state.Rejected}, Verb: "reject"})
}

// A run is recorded from the request to run it until a request or its VMs end it, also if its host is gone.
func TestRunsAreRecorded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(k *cluster)
		want state.RunOutcome // "": no run
	}{
		{"deleted", func(k *cluster) { k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalDelete)) }, state.RunDeleted},
		{"stopped", func(k *cluster) { k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalStop)) }, state.RunStopped},
		{"its core VMs ended", func(k *cluster) {
			k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Stopped))
			if len(k.Snapshot().Runs("job")) > 0 {
				t.Error("it ended with the first of two")
			}
			k.must(t, state.KindVMReport, report("h2", "vm-a-1", 1, state.Stopped))
		}, state.RunEnded},
		{"one VM ended, one was lost", func(k *cluster) {
			k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Stopped))
			k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofOperator, Text: "it burned"})
		}, state.RunLost},
		{"it goes on", func(*cluster) {}, ""},
		{"a VM failed", func(k *cluster) { k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Failed)) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := small(t, 2)
			k.must(t, state.KindPlan, runPlan(k.Snapshot(), "a", "job", "h1", "h2"))
			submitted := k.Snapshot().Index()
			k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
			k.must(t, state.KindVMReport, report("h2", "vm-a-1", 1, state.Running))
			c.end(k)
			runs := k.Snapshot().Runs("job")
			if c.want == "" {
				if open, ok := k.Snapshot().OpenRun("vc-a"); len(runs) != 0 || !ok || open.Started.IsZero() {
					t.Fatalf("%+v, open %+v", runs, open)
				}
				return
			}
			if len(runs) != 1 || runs[0].Outcome != c.want || runs[0].Name != "a" || len(runs[0].Groups) != 1 || runs[0].Groups[0].Count != 2 || runs[0].Kind != "tiny" {
				t.Fatalf("%+v", runs)
			}
			r := runs[0]
			at := func(index uint64) time.Time { return start.Add(time.Duration(index) * time.Second) }
			if !r.Submitted.Equal(at(submitted)) || !r.Started.Equal(at(submitted+1)) || !r.Ended.Equal(at(k.Snapshot().Index())) {
				t.Errorf("from %s, %s to %s", r.Submitted, r.Started, r.Ended)
			}
			if job, ok := k.Snapshot().PeriodicJob("job"); !ok || job.Runs != 1 || !job.LastRun.Equal(r.Ended) {
				t.Errorf("%+v", job)
			}
		})
	}
}

// What never ran is no run; a plan that names no job records none.
func TestNoRunIsRecorded(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, runPlan(k.Snapshot(), "a", "job", "h1"))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalDelete))
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "b", 1, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-b-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "b", state.GoalDelete))
	k.Snapshot().EachRun(func(r *state.Run) bool { t.Errorf("%+v", r); return true })
}

// Of a job the last runs are kept; of all jobs the tenant with the most loses the one that ran last the longest ago, but none that is
// signed off.
func TestRunsAreBounded(t *testing.T) {
	k := small(t, 1)
	for n := range state.MaxRuns + 3 {
		k.oneRun(t, fmt.Sprintf("a%d", n), "job")
	}
	runs := k.Snapshot().Runs("job")
	if job, _ := k.Snapshot().PeriodicJob("job"); len(runs) != state.MaxRuns || runs[0].Name != "a3" || job.Runs != state.MaxRuns {
		t.Errorf("%d runs from %s, %+v", len(runs), runs[0].Name, job)
	}
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: contract(), Verb: "accept"})
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "ab"}})
	k.oneRun(t, "film/x", "film/x")
	for n := range state.MaxJobs {
		name := fmt.Sprintf("b%d", n)
		k.oneRun(t, name, name)
	}
	s := k.Snapshot()
	for name, want := range map[string]bool{"job": true, "film/x": true, "b0": false, "b1": false, "b2": true} {
		if _, ok := s.PeriodicJob(name); ok != want || want != (len(s.Runs(name)) > 0) {
			t.Errorf("%s: kept is %v, with %d runs", name, ok, len(s.Runs(name)))
		}
	}
	if n := len(s.PeriodicJobs()); n != state.MaxJobs {
		t.Errorf("%d jobs", n)
	}
}

// The decisions and the agenda: what is applied and what conflicts.
func TestAgendaCommands(t *testing.T) {
	k := small(t, 2)
	k.oneRun(t, "a", "job")
	period := start.Add(time.Hour)
	put := func(o ...state.Occurrence) error {
		return k.apply(t, state.KindAgenda, state.AgendaPut{Basis: k.Snapshot().Index(), Occurrences: o})
	}
	if err := put(occurrence("job", period, state.Confirmed, "h1")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an occurrence before the owner signed off: %v", err)
	}
	if err := k.apply(t, state.KindPeriodic, state.PeriodicPut{Job: "none", SignOff: contract(), Verb: "accept"}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("no such job: %v", err)
	}
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: contract(), Verb: "accept"})
	if err := k.apply(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: contract(), Verb: "accept"}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("on an older version: %v", err)
	}
	basis := k.Snapshot().Index()
	if err := put(occurrence("job", period, state.Confirmed, "h1")); err != nil {
		t.Fatal(err)
	}
	if h, _ := k.Snapshot().Host("h1"); h.Version <= basis {
		t.Error("plans on h1 do not notice that room there is reserved")
	}
	if err := k.apply(t, state.KindAgenda, state.AgendaPut{Basis: basis, Occurrences: []state.Occurrence{occurrence("job", period.Add(time.Hour), state.Confirmed, "h1")}}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a witness on a host that changed: %v", err)
	}
	some := []state.Occurrence{occurrence("job", period.Add(time.Hour), state.Confirmed, "h1"), occurrence("job", period.Add(2*time.Hour), state.Confirmed, "h2")}
	k.must(t, state.KindAgenda, state.AgendaPut{Basis: basis, Occurrences: some})
	for i, o := range some {
		if _, is := k.Snapshot().Occurrence(o.ID); is != (i == 1) {
			t.Errorf("one of two hosts changed: %s is there: %v", o.ID, is)
		}
	}
	p := runPlan(k.Snapshot(), "slot", "job", "h1")
	p.Occurrence = state.OccurrenceID("job", period)
	k.must(t, state.KindPlan, p)
	second := runPlan(k.Snapshot(), "second", "job", "h1")
	second.Occurrence = p.Occurrence
	if err := k.apply(t, state.KindPlan, second); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a second run of one occurrence: %v", err)
	}
	if err := put(occurrence("job", period, state.Degraded)); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an agenda that does not know that the run began: %v", err)
	}
	k.must(t, state.KindVMReport, report("h1", "vm-slot-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "slot", state.GoalDelete))
	if o, _ := k.Snapshot().Occurrence(p.Occurrence); o.State != state.Met || !strings.Contains(o.Text, "before it was due") {
		t.Errorf("%+v", o)
	}
	if err := put(occurrence("job", period.Add(time.Hour), state.Confirmed, "h2")); err != nil {
		t.Fatal(err)
	}
	job, _ := k.Snapshot().PeriodicJob("job")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "job", Version: job.ModifyIndex, SignOff: state.SignOff{State: state.Rejected}, Verb: "reject"})
	if k.Snapshot().HasAgenda() || len(k.Snapshot().Occurrences("job")) != 1 {
		t.Errorf("after it was rejected: %+v", k.Snapshot().Occurrences("job"))
	}
	var kinds []string
	for _, e := range k.Snapshot().EventsAfter(0, 0) {
		if e.Object == "job" {
			kinds = append(kinds, e.Kind)
		}
	}
	if want := []string{"job-accepted", "occurrence-running", "occurrence-met", "job-rejected"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// An owner's contract without sense is refused.
func TestContractIsValid(t *testing.T) {
	for name, spoil := range map[string]func(*state.SignOff){
		"state":      func(s *state.SignOff) { s.State = "perhaps" },
		"recurrence": func(s *state.SignOff) { s.Recurrence = "" },
		"due":        func(s *state.SignOff) { s.Due = 600 },
		"skyline":    func(s *state.SignOff) { s.Cores = nil },
		"cores":      func(s *state.SignOff) { s.Cores = []float64{-1} },
		"step":       func(s *state.SignOff) { s.Step = 1 << 60 },
		"groups":     func(s *state.SignOff) { s.Groups = nil },
		"count":      func(s *state.SignOff) { s.Groups[0].Count = 1 << 40 },
		"memory":     func(s *state.SignOff) { s.Groups[0].Memory = -1 },
		"skips":      func(s *state.SignOff) { s.Skips = []string{"tomorrow"} },
		"miss":       func(s *state.SignOff) { s.Miss = 1 },
		"":           func(*state.SignOff) {},
	} {
		k := small(t, 1)
		k.oneRun(t, "a", "job")
		c := contract()
		spoil(&c)
		if err := k.apply(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: c, Verb: "accept"}); errors.Is(err, state.ErrInvalid) != (name != "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that does not know periodic work may join only where nothing is lost by it: runs are dropped, contracts keep it out.
func TestOlderServerAndPeriodicWork(t *testing.T) {
	k := small(t, 1)
	k.oneRun(t, "a", "job")
	old := state.Member{Name: "old", Server: true, Format: 1}
	k.must(t, state.KindMemberPut, old)
	if n := len(k.Snapshot().PeriodicJobs()); n != 0 {
		t.Errorf("%d jobs are left for a server that cannot read them", n)
	}
	k = small(t, 1)
	k.oneRun(t, "a", "job")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "job", SignOff: contract(), Verb: "accept"})
	if err := k.apply(t, state.KindMemberPut, old); !errors.Is(err, state.ErrConflict) {
		t.Errorf("with a contract: %v", err)
	}
}

// A server that does not know periodic settings, or ranges of tokens, is sent none, not even the default ones: it could not read the entry.
func TestOlderServerAndPeriodicSettings(t *testing.T) {
	for _, reprovision := range []float64{0, 0.1, state.DefaultReprovision} {
		k := small(t, 1)
		put := func() state.SettingsPut {
			m, _ := k.Snapshot().Meta()
			set := m.Settings
			set.Periodic.Reprovision = reprovision
			return state.SettingsPut{Settings: set, Version: m.SettingsIndex}
		}
		k.must(t, state.KindSettings, put())
		k.must(t, state.KindMemberPut, state.Member{Name: "old", Server: true, Format: 1})
		if m, _ := k.Snapshot().Meta(); m.Settings.Periodic != (state.PeriodicSettings{}) {
			t.Errorf("reprovision %v: %+v is left for a server that cannot read it", reprovision, m.Settings.Periodic)
		}
		if _, err := k.Snapshot().Encode(state.KindSettings, start, put()); errors.Is(err, state.ErrTooNew) != (reprovision != 0) {
			t.Errorf("reprovision %v: %v", reprovision, err)
		}
		ranged := state.Token{ID: "00000000000000aa", Name: "a", From: []string{"10.0.0.0/24"}}
		if _, err := k.Snapshot().Encode(state.KindAdminToken, start, ranged); !errors.Is(err, state.ErrTooNew) {
			t.Errorf("a token with ranges: %v", err)
		}
	}
}

// A job learns from the other jobs of its own tenant, and of no other.
func TestRunsOfOtherJobs(t *testing.T) {
	k := small(t, 1)
	for _, name := range []string{"film", "bank"} {
		k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: name, Salt: "ab"}})
	}
	for i, job := range []string{"film/one", "film/two", "film/three", "bank/one", "one"} {
		tenant, _ := state.SplitName(job)
		vc := fmt.Sprintf("vc%d", i)
		if tenant != "" {
			vc = tenant + "/" + vc
		}
		k.oneRun(t, vc, job)
	}
	for job, want := range map[string][]string{"film/one": {"film/three", "film/two"}, "bank/one": nil, "one": nil} {
		var got []string
		for runs := range k.Snapshot().RunsOfOtherJobs(job) {
			got = append(got, runs[0].Job)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s learns from %q, not %q", job, got, want)
		}
	}
}

// A saved state keeps runs, contracts and the agenda, and a deleted tenant takes its own along.
func TestPeriodicIsSavedAndDropped(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "ab"}})
	k.oneRun(t, "film/a", "film/job")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "film/job", SignOff: contract(), Verb: "accept"})
	k.must(t, state.KindAgenda, state.AgendaPut{Basis: k.Snapshot().Index(), Occurrences: []state.Occurrence{occurrence("film/job", start.Add(time.Hour), state.Confirmed, "h1")}})
	saved := save(t, k.Snapshot())
	again := state.New()
	if err := again.Restore(bytes.NewReader([]byte(saved))); err != nil {
		t.Fatal(err)
	}
	if s := again.Snapshot(); save(t, s) != saved || len(s.Runs("film/job")) != 1 || len(s.Agenda()) != 1 {
		t.Error("the restored state differs")
	}
	k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "film"})
	if s := k.Snapshot(); len(s.PeriodicJobs()) != 0 || s.HasAgenda() || len(s.Runs("film/job")) != 0 {
		t.Error("the tenant's jobs are still there")
	}
}
