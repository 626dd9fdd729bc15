package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

var (
	descMigrations    = desc("migrations_total", "Migrations that ended, by result: done, failed or aborted. Counted from the first scrape of this server on.", "result")
	descMigratedBytes = desc("migrated_bytes_total", "Bytes that migrations sent, memory and disks, aborted ones included, as hypervisors counted them. Counted from the first scrape of this server on.")
	descDowntime      = desc("migration_downtime_seconds", "Downtime of guests at the hand-over. Counted from the first scrape of this server on.")
	descMoving        = desc("migrations_running", "Migrations that are under way.")
	descPlans         = desc("move_plans", "Plans of moves that are kept, by state.", "state")
	descDrain         = desc("host_drain", "1 for the state of a host's drain: draining, drained, blocked or stopped; all 0 where it has none.", "host", "state")
	descDrainMoved    = desc("host_drain_moved_bytes", "Bytes that a host's drain has sent; 0 where it has none.", "host")
	descDrainVMs      = desc("host_drain_vms", "VMs that a host which is to be empty still has; 0 where it has none.", "host")
)

// downtimeBuckets, seconds.
var downtimeBuckets = []float64{.01, .03, .1, .3, 1, 3, 10, 30}

// moveMeter adds up migrations: ends when it first observes them, and bytes as they grow. The state keeps only
// the latest migrations. What the first observation has is not counted: an earlier server may have counted it.
type moveMeter struct {
	mu       sync.Mutex
	begun    bool
	counted  map[string]metered
	results  map[state.MigrationState]float64
	bytes    float64
	downtime map[float64]uint64
	sum      float64
	times    uint64
}

// metered is what was counted of a migration.
type metered struct {
	ended, down bool
	bytes       int64
}

func newMoveMeter() *moveMeter {
	return &moveMeter{counted: map[string]metered{}, downtime: map[float64]uint64{},
		results: map[state.MigrationState]float64{state.MigrationDone: 0, state.MigrationFailed: 0, state.MigrationAborted: 0}}
}

// observe counts what changed since the last observation. rows must be of a state that is up to
// date.
func (m *moveMeter) observe(rows []state.Migration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]metered, len(rows))
	for _, row := range rows {
		was := m.counted[row.ID]
		is := metered{ended: row.State != state.MigrationRunning, down: row.DowntimeMs > 0, bytes: max(was.bytes, row.BytesMoved)}
		now[row.ID] = is
		if !m.begun {
			continue
		}
		if is.ended && !was.ended {
			m.results[row.State]++
		}
		m.bytes += float64(is.bytes - was.bytes)
		if is.down && !was.down {
			m.stood(time.Duration(row.DowntimeMs) * time.Millisecond)
		}
	}
	m.counted, m.begun = now, true
}

func (m *moveMeter) stood(d time.Duration) {
	s := d.Seconds()
	m.sum += s
	m.times++
	for _, b := range downtimeBuckets {
		if s <= b {
			m.downtime[b]++
		}
	}
}

// moveStats of the cluster: its migrations, plans and drains.
func (c clusterCollector) moveStats(ch chan<- prometheus.Metric, v *leader.View) {
	m := c.s.metrics.moves
	if c.s.cluster.Ready() == nil {
		m.observe(v.Migrations())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for result, n := range m.results {
		ch <- prometheus.MustNewConstMetric(descMigrations, prometheus.CounterValue, n, string(result))
	}
	ch <- prometheus.MustNewConstMetric(descMigratedBytes, prometheus.CounterValue, m.bytes)
	buckets := make(map[float64]uint64, len(downtimeBuckets))
	for _, b := range downtimeBuckets {
		buckets[b] = m.downtime[b]
	}
	ch <- prometheus.MustNewConstHistogram(descDowntime, m.times, m.sum, buckets)

	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	running := 0.0
	for _, row := range v.Migrations() {
		if row.State == state.MigrationRunning {
			running++
		}
	}
	gauge(descMoving, running)
	plans := map[state.MovePlanState]float64{state.MovesProposed: 0, state.MovesRunning: 0, state.MovesDone: 0, state.MovesFailed: 0, state.MovesStopped: 0, state.MovesSuperseded: 0}
	for _, p := range v.MovePlans() {
		plans[p.State]++
	}
	for s, n := range plans {
		gauge(descPlans, n, string(s))
	}
	for _, h := range v.Hosts() {
		for _, s := range []state.DrainState{state.DrainRunning, state.DrainDone, state.DrainBlocked, state.DrainStopped} {
			gauge(descDrain, truth(h.Drain.State == s), h.Name, string(s))
		}
		gauge(descDrainMoved, float64(v.DrainView(h).BytesMoved), h.Name)
		left := 0
		if h.Drain.State != "" {
			left = v.LoadOf(h.Name).VMs
		}
		gauge(descDrainVMs, float64(left), h.Name)
	}
}
