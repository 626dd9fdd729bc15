package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// deadlineWindow is how long ago an occurrence was due that counts in evenkeel_periodic_deadlines.
const deadlineWindow = time.Hour

var (
	descOccurrences     = desc("periodic_occurrences", "Occurrences of periodic jobs in the agenda, by state: confirmed, degraded, re-confirmed, running.", "state")
	descDeadlines       = desc("periodic_deadlines", "Occurrences that were due within the last hour, by result: met or missed.", "result")
	descPeriodicRuns    = desc("periodic_runs", "Runs of jobs that were signed off: all that go on, and those that are late, which would miss their deadline with what they are sure of; of the leader only.", "which")
	descGranted         = desc("periodic_granted_cores", "CPU that late runs are given beyond their reservations now; of the leader only.")
	descGrants          = desc("periodic_grants_total", "Grants beyond a reservation that began; since the server began to lead.")
	descGrantedSeconds  = desc("periodic_granted_core_seconds_total", "CPU that was granted beyond reservations; since the server began to lead.")
	descBorrowed        = desc("periodic_borrowed_cores", "CPU of reservations that others have now; of the leader only.")
	descBorrowedSeconds = desc("periodic_borrowed_core_seconds_total", "CPU of reservations that others had; since the server began to lead.")
)

var periodicDescs = []*prometheus.Desc{descOccurrences, descDeadlines, descPeriodicRuns, descGranted, descGrants, descGrantedSeconds, descBorrowed, descBorrowedSeconds}

// periodic sends how occurrences fare.
func (g gauges) periodic(v *leader.View) {
	ahead := map[state.OccurrenceState]int{state.Confirmed: 0, state.Degraded: 0, state.Reconfirmed: 0, state.RunningNow: 0}
	for _, o := range v.Agenda() {
		ahead[o.State]++
	}
	for st, n := range ahead {
		g.set(descOccurrences, float64(n), string(st))
	}
	over := map[state.OccurrenceState]int{state.Met: 0, state.Missed: 0}
	now := time.Now()
	for _, job := range v.PeriodicJobs() {
		if job.SignOff.State != state.SignedOff {
			continue
		}
		for _, o := range v.Occurrences(job.Name) {
			if _, counts := over[o.State]; counts && o.Due.After(now.Add(-deadlineWindow)) && !o.Due.After(now) {
				over[o.State]++
			}
		}
	}
	for st, n := range over {
		g.set(descDeadlines, float64(n), string(st))
	}
}

// reprovisionStats of the server that leads.
func (c clusterCollector) reprovisionStats(ch chan<- prometheus.Metric) {
	f := c.s.cluster.ReprovisionStats()
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	put(descPeriodicRuns, prometheus.GaugeValue, float64(f.Runs), "all")
	put(descPeriodicRuns, prometheus.GaugeValue, float64(f.Late), "late")
	put(descGranted, prometheus.GaugeValue, f.Granted)
	put(descBorrowed, prometheus.GaugeValue, f.Borrowed)
	put(descGrants, prometheus.CounterValue, float64(f.Grants))
	put(descGrantedSeconds, prometheus.CounterValue, f.GrantedSeconds)
	put(descBorrowedSeconds, prometheus.CounterValue, f.BorrowedSeconds)
}
