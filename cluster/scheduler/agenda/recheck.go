package agenda

import (
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// Recheck returns what still holds on a newer state of what was planned on an older one: occurrences of which the job, the row and the
// tenant are as they were, and whose hosts have the room still beside all others. It looks for no other hosts. An occurrence that was to
// lose hosts which have its room again keeps them.
func Recheck(s *state.Snapshot, put state.AgendaPut, now time.Time, unavailable map[string]string) (state.AgendaPut, error) {
	x := planner{s: s, now: now, unavailable: unavailable, out: state.AgendaPut{Basis: s.Index(), Drop: put.Drop}, jobs: map[string]state.PeriodicJob{}}
	for _, job := range s.PeriodicJobs() {
		if job.SignOff.State == state.SignedOff {
			x.jobs[job.Name] = job
		}
	}
	if err := x.build(); err != nil {
		return x.out, err
	}
	replaced := map[string]bool{}
	for _, o := range put.Occurrences {
		replaced[o.ID] = true
	}
	for _, id := range put.Drop {
		replaced[id] = true
	}
	for _, o := range s.Agenda() {
		if _, signed := x.jobs[o.Job]; signed && !replaced[o.ID] && o.Reserves() {
			x.restore(&o)
		}
	}
	for _, o := range put.Occurrences {
		job, ok := s.PeriodicJob(o.Job)
		gone := !ok || job.ModifyIndex > put.Basis || !o.State.Over() && x.suspended(o.Job)
		if !gone && x.keepsHosts(&o) {
			continue
		}
		if !gone && s.OccurrenceMayBe(&o) == nil && (!o.Reserves() || x.restore(&o)) {
			x.out.Occurrences = append(x.out.Occurrences, o)
		}
	}
	return x.out, nil
}

// keepsHosts says whether an occurrence that was to have other hosts, or none, has its room where it was, and puts that into the agenda.
func (x *planner) keepsHosts(next *state.Occurrence) bool {
	old, _ := x.s.Occurrence(next.ID)
	moves := next.State == state.Degraded || next.State == state.Reconfirmed && !slices.Equal(next.Hosts, old.Hosts)
	return moves && old.Reserves() && old.State != state.Degraded && x.restore(&old)
}
