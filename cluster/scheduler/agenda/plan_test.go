package agenda_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// job is a cluster with jobs that are signed off, each of so many VMs of a core and memory.
func withJobs(t *testing.T, hosts, jobs, vms int, memory int64) *scheduling.Cluster {
	t.Helper()
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("h%d", i+1))
	}
	c := scheduling.NewCluster(t, names...)
	for j := range jobs {
		signed(t, c, fmt.Sprintf("job%d", j), contract(vms, memory))
	}
	return c
}

func contract(vms int, memory int64) state.SignOff {
	return state.SignOff{State: state.SignedOff, Recurrence: "DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=12", Lateness: 300, Due: 7200, Declared: true,
		Groups: []state.RunGroup{{Name: "g0", Count: vms, CPU: 1, Memory: memory}}, MinYield: 0.5, Step: 300, Cores: []float64{float64(vms), float64(vms) / 2}}
}

// signed makes a job by one run, and signs it off.
func signed(t scheduling.TB, c *scheduling.Cluster, name string, k state.SignOff) {
	t.Helper()
	vc := scheduling.VC(name, 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8))
	vc.Periodic.Name = name
	if a := c.Create(vc); a.Plan == nil || a.Queued {
		t.Fatalf("%+v", a)
	}
	c.Run()
	c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "stopped", VC: stopped(c, name), VCVersion: c.Named(name).ModifyIndex, VMs: gone(c, name)})
	for _, vm := range c.Snapshot().VMs() {
		if vm.Goal == state.GoalDelete {
			c.Follow(vm)
		}
	}
	if k.State != "" {
		c.Must(state.KindPeriodic, state.PeriodicPut{Job: name, SignOff: k, Verb: "accept"})
	}
}

func stopped(c *scheduling.Cluster, name string) *state.VC {
	vc := c.Named(name)
	vc.Goal, vc.Admitted = state.GoalDelete, false
	return &vc
}

func gone(c *scheduling.Cluster, name string) (out []state.VM) {
	vc := c.Named(name)
	for _, vm := range c.Snapshot().VMsOf(vc.ID) {
		g, _ := vc.GroupOf(vm)
		out = append(out, vm.Leaving(g, state.GoalDelete))
	}
	return out
}

// plan puts what is planned into the state, and returns the states of all occurrences that are not over, by job.
func plan(t scheduling.TB, c *scheduling.Cluster) map[string]state.Occurrence {
	t.Helper()
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(put.Occurrences)+len(put.Drop) > 0 {
		c.Must(state.KindAgenda, put)
	}
	out := map[string]state.Occurrence{}
	for _, o := range c.Snapshot().Agenda() {
		out[o.Job] = o
	}
	return out
}

// Every occurrence that is confirmed has a host for each VM, and at no moment do slots and what runs exceed a host. A host that is lost
// costs those their witness that had room there, and no other.
func TestOnlyLostWitnessesAreReplaced(t *testing.T) {
	c := withJobs(t, 4, 5, 2, 2*scheduling.GiB)
	before := plan(t, c)
	if len(before) != 5 {
		t.Fatalf("%+v", before)
	}
	for name, o := range before {
		if o.State != state.Confirmed || len(o.Hosts) != 2 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	fits(t, c)
	lost := before["job0"].Hosts[0]
	c.Must(state.KindHostLost, state.HostLost{Host: lost, Proof: state.ProofOperator, Text: "it burned"})
	after := plan(t, c)
	changed := 0
	for name, o := range after {
		had := slices.Contains(before[name].Hosts, lost)
		switch {
		case had:
			changed++
			if o.State != state.Reconfirmed && o.State != state.Degraded || slices.Contains(o.Hosts, lost) {
				t.Errorf("%s had room on %s: %+v", name, lost, o)
			}
		case o.State != before[name].State || !slices.Equal(o.Hosts, before[name].Hosts):
			t.Errorf("%s lost nothing: %+v, before %+v", name, o, before[name])
		}
	}
	if changed == 0 || changed == 5 {
		t.Errorf("%d of 5 jobs had room on %s", changed, lost)
	}
	fits(t, c)
}

// fits checks the hosts at the start of each slot.
func fits(t *testing.T, c *scheduling.Cluster) {
	t.Helper()
	s := c.Snapshot()
	for _, o := range s.Agenda() {
		for host, r := range placement.Reserved(s, o.Start, o.Start.Add(time.Minute), "") {
			h, _ := s.Host(host)
			l := s.LoadOf(host)
			if r.CPU > h.Usable().CPU+1e-9 || r.Memory+l.Taken() > h.Usable().Memory {
				t.Errorf("%s: %+v reserved on %s, which has %+v and %+v taken", o.Start, r, host, h.Usable(), l)
			}
		}
	}
}

// VMs of one group may be charged different memory, as while one of them has let go of what its group no longer has. Each counts on its host as it is.
func TestEachVMCountsAsItIsCharged(t *testing.T) {
	c := withJobs(t, 2, 0, 0, 0)
	web := scheduling.VC("web", 0.5, scheduling.Group(2, 0.1, 4*scheduling.GiB))
	web.Groups[0].Affinity.Spread = "host"
	c.Create(web)
	c.Run()
	smaller := c.Named("web")
	smaller.Groups = slices.Clone(smaller.Groups)
	smaller.Groups[0].Memory = scheduling.GiB
	c.Enact("less memory", admission.Scale(c.Snapshot(), smaller, c.Env()).Plan)
	c.Follow(c.VMOf("web")) // of its 4 GiB it has 1 GiB and may take back 3 GiB; the other still has all of them
	signed(t, c, "job", contract(1, 3584*scheduling.MiB))
	if o := plan(t, c)["job"]; o.State != state.Confirmed {
		t.Errorf("%+v", o)
	}
}

// Where no host has room an occurrence is degraded and says why; once there is room it is confirmed again. A run that does not arrive is missed.
func TestDegradedUntilThereIsRoom(t *testing.T) {
	c := withJobs(t, 1, 1, 3, 2*scheduling.GiB)
	blocks := scheduling.VC("blocks", 0.5, scheduling.Group(1, 1, 4*scheduling.GiB))
	c.Create(blocks)
	c.Run()
	if o := plan(t, c)["job0"]; o.State != state.Degraded || !strings.Contains(o.Text, "memory") {
		t.Fatalf("%+v", o)
	}
	c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "deleting", VC: stopped(c, "blocks"), VCVersion: c.Named("blocks").ModifyIndex, VMs: gone(c, "blocks")})
	c.CommitPlan()
	if o := plan(t, c)["job0"]; o.State != state.Reconfirmed || len(o.Hosts) != 3 {
		t.Fatalf("%+v", o)
	}
	c.Ahead += 10 * time.Hour
	id := c.Snapshot().Agenda()[0].ID
	plan(t, c)
	if o, _ := c.Snapshot().Occurrence(id); o.State != state.Missed || !strings.Contains(o.Text, "no run arrived") {
		t.Errorf("%+v", o)
	}
}

// A VC that is gone before the slot begins does not count in it, one that says nothing of its end does; so for its admission.
func TestReservedRoomIsForShortRuns(t *testing.T) {
	for _, x := range []struct {
		name     string
		duration time.Duration
		admitted bool
	}{{"not known", 0, false}, {"ends before the slot", 2 * time.Hour, true}, {"runs into the slot", 12 * time.Hour, false}} {
		c := withJobs(t, 1, 1, 3, 2*scheduling.GiB)
		plan(t, c)
		vc := scheduling.VC("other", 0.5, scheduling.Group(1, 1, 4*scheduling.GiB))
		vc.Duration = int64(x.duration / time.Second)
		a := c.Create(vc)
		if a.Plan == nil || a.Queued == x.admitted {
			t.Errorf("%s: %+v", x.name, a.Decision)
		}
		if !x.admitted && !strings.Contains(a.Decision.Summary, "periodic work has up to") {
			t.Errorf("%s: %s", x.name, a.Decision.Summary)
		}
		c.Run()
		if o := plan(t, c)["job0"]; o.State != state.Confirmed {
			t.Errorf("%s: %+v", x.name, o)
		}
	}
}

// A year of nights in two time zones, with both changes of the clock, and a leap day: on the wall clock each is at half past two, or an
// hour later where the clock leaves that out.
func TestOccurrencesOfAYear(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York"} {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		job := state.PeriodicJob{Name: "nightly", SignOff: contract(1, scheduling.GiB)}
		job.SignOff.Recurrence = "DTSTART;TZID=" + zone + ":20280101T023000\nRRULE:FREQ=DAILY"
		job.SignOff.Skips = []string{"2028-02-29"}
		var all []state.Occurrence
		for day := time.Date(2028, 1, 1, 0, 0, 0, 0, z); day.Year() == 2028; { // as the leader asks: a day at a time, from now on
			next := time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, z)
			some, err := agenda.Occurrences(&job, day, next)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, some...)
			day = next
		}
		if len(all) != 366 {
			t.Fatalf("%s: %d nights in a leap year", zone, len(all))
		}
		for i, o := range all {
			want := time.Date(2028, 1, 1+i, 2, 30, 0, 0, time.UTC)
			got := o.Period.In(z)
			if got.Day() != want.Day() || got.Month() != want.Month() || got.Minute() != 30 || got.Hour() != 2 && !(got.Hour() == 3 && got.AddDate(0, 0, 1).IsDST() && !got.AddDate(0, 0, -1).IsDST()) {
				t.Errorf("%s: night %d is at %s", zone, i, got)
			}
			if skipped := got.Format(time.DateOnly) == "2028-02-29"; (o.State == state.LeftOut) != skipped {
				t.Errorf("%s: %s is %q", zone, got, o.State)
			}
		}
	}
}

// BenchmarkPlan makes the agenda of 90 jobs on 100 hosts: the first occurrences, and when nothing has changed.
func BenchmarkPlan(b *testing.B) {
	c := &scheduling.Cluster{Store: state.New(), T: b}
	c.Must(state.KindInit, state.Init{ID: "c"})
	c.Must(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	for i := range 100 {
		c.Host(fmt.Sprintf("h%d", i), 30, 120*scheduling.GiB, state.Resources{})
	}
	for j := range 90 {
		k := contract(4, 2*scheduling.GiB)
		k.Recurrence = fmt.Sprintf("DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=%d;BYMINUTE=%d", j%24, j%60)
		signed(b, c, fmt.Sprintf("job%d", j), k)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if put, err := agenda.Plan(c.Snapshot(), c.Now(), nil); err != nil || len(put.Occurrences) != 60 {
				b.Fatal(len(put.Occurrences), err)
			}
		}
	})
	for range 2 {
		put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
		if err != nil {
			b.Fatal(err)
		}
		c.Must(state.KindAgenda, put)
	}
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			if put, err := agenda.Plan(c.Snapshot(), c.Now(), nil); err != nil || len(put.Occurrences) != 0 {
				b.Fatal(len(put.Occurrences), err)
			}
		}
	})
	b.Run("create", func(b *testing.B) {
		x := scheduling.VC("x", 0.1, scheduling.Group(2, 1, scheduling.GiB))
		for b.Loop() {
			if a := admission.Create(c.Snapshot(), x, c.Env()); a.Plan == nil || a.Queued {
				b.Fatalf("refused: %+v", a.Decision)
			}
		}
	})
}
