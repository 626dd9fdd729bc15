package state_test

import (
	"errors"
	"fmt"
	"testing"

	"evenkeel/cluster/state"
)

// A tenant signs off as many jobs as its quota says, also when two decisions were made at the same time; a job that is signed off may
// change, and one that is rejected makes room.
func TestSignedOffJobsCountInTheQuota(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "ab", Quota: map[state.QuotaKey]state.Limit{state.QuotaPeriodic: 2}}})
	decide := func(job, verb string, c state.SignOff) error {
		at, _ := k.Snapshot().PeriodicJob(job)
		return k.apply(t, state.KindPeriodic, state.PeriodicPut{Job: job, Version: at.ModifyIndex, SignOff: c, Verb: verb})
	}
	for _, name := range []string{"film/a", "film/b", "film/c", "other"} {
		k.oneRun(t, name, name)
	}
	for _, x := range []struct {
		job, verb string
		c         state.SignOff
		used      float64
		over      bool
	}{
		{"film/a", "accept", contract(), 1, false},
		{"other", "accept", contract(), 1, false},
		{"film/b", "accept", contract(), 2, false},
		{"film/c", "accept", contract(), 2, true},
		{"film/b", "override", contract(), 2, false},
		{"film/a", "reject", state.SignOff{State: state.Rejected}, 1, false},
		{"film/c", "accept", contract(), 2, false},
	} {
		err := decide(x.job, x.verb, x.c)
		var over *state.QuotaError
		if errors.As(err, &over) != x.over || over != nil && over.Key != state.QuotaPeriodic || err != nil && !x.over {
			t.Errorf("%s %s: %v", x.verb, x.job, err)
		}
		if used := k.Snapshot().UseOf("film")[state.QuotaPeriodic]; used != x.used {
			t.Errorf("after %s %s the tenant has %v", x.verb, x.job, used)
		}
	}
}

// Skylines of jobs that are signed off are bounded, too: the tenant with the most loses its oldest, and another one none.
func TestSkylinesOfSignedOffJobsAreBounded(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "ab"}})
	long := usage(state.MaxRunSteps)
	for i := range state.MaxRunSteps {
		long.Throttled, long.Unknown = append(long.Throttled, i), append(long.Unknown, i)
	}
	fill := func(job string, runs int) {
		for n := range runs {
			k.oneRun(t, fmt.Sprintf("%s-%d", job, n), job)
		}
		k.must(t, state.KindPeriodic, state.PeriodicPut{Job: job, SignOff: contract(), Verb: "accept"})
		var put state.RunUsagePut
		for _, r := range k.Snapshot().Runs(job) {
			put.Runs = append(put.Runs, state.RunUsageOf{Run: r.ID, Usage: long})
		}
		k.must(t, state.KindRunUsage, put)
	}
	fill("film/x", 10)
	for n := range 55 {
		fill(fmt.Sprintf("job%d", n), state.MaxRuns)
	}
	s := k.Snapshot()
	bytes, summed, kept := 0, 0, map[string]int{}
	for _, j := range s.PeriodicJobs() {
		bytes += j.Bytes
		for i, r := range s.Runs(j.Name) {
			if r.Usage != nil {
				kept[j.Name]++
				summed += state.SkylineBytes(r.Usage)
			} else if i > 0 && kept[j.Name] > 0 {
				t.Fatalf("%s has lost run %d, and not its oldest", j.Name, i)
			}
		}
	}
	if bytes > 32<<20 || bytes < 31<<20 || summed != bytes {
		t.Errorf("%d bytes of skylines, %d by the rows of jobs", summed, bytes)
	}
	if kept["film/x"] != 10 || kept["job0"] < 45 || kept["job0"] > 58 {
		t.Errorf("kept: %v", kept)
	}
}
