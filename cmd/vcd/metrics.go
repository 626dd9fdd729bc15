package main

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// libraryMetric is one metric that is made from what the libraries of Raft and gossip measure.
type libraryMetric struct {
	kind       metricKind
	name, help string
	label      string            // "": none
	from       map[string]string // keys of the library, and for each the value of label
	peer       string            // a label of the library that is shown, under peerName; "": none
	peerName   string
}

type metricKind int

const (
	counter metricKind = iota
	gauge
	seconds // a histogram; the library counts milliseconds
	sizes   // a histogram of numbers
)

// one is what a metric without a label of its own is made from.
func one(keys ...string) map[string]string {
	from := map[string]string{}
	for _, k := range keys {
		from[k] = ""
	}
	return from
}

// libraryMetrics are all that is shown of the libraries' measurements. Whatever else they measure is left out.
var libraryMetrics = []libraryMetric{
	{counter, "evenkeel_raft_commands_total", "Commands that this server, as leader, took for the log.", "", one("raft.apply"), "", ""},
	{counter, "evenkeel_raft_leader_checks_total", "Times that this server asked the majority whether it leads.", "", one("raft.verify_leader"), "", ""},
	{counter, "evenkeel_raft_state_changes_total", "Times that this server became follower, candidate or leader.", "state",
		map[string]string{"raft.state.follower": "follower", "raft.state.candidate": "candidate", "raft.state.leader": "leader"}, "", ""},
	{counter, "evenkeel_raft_timeouts_total", "Times that this server heard from no leader for too long (heartbeat), or as leader from no majority (leader_lease).", "kind",
		map[string]string{"raft.transition.heartbeat_timeout": "heartbeat", "raft.transition.leader_lease_timeout": "leader_lease"}, "", ""},
	{counter, "evenkeel_raft_replicated_entries_total", "Log entries that this server, as leader, sent to a peer.", "", one("raft.replication.appendEntries.logs"), "peer_id", "peer"},
	{seconds, "evenkeel_raft_commit_seconds", "Time from a command to its commit by the majority, on the leader.", "", one("raft.commitTime"), "", ""},
	{seconds, "evenkeel_raft_apply_seconds", "Time to apply a batch of committed entries to the state.", "", one("raft.fsm.apply", "raft.fsm.applyBatch"), "", ""},
	{seconds, "evenkeel_raft_rpc_seconds", "Time to answer a call of another server.", "rpc", map[string]string{"raft.rpc.appendEntries": "append_entries",
		"raft.rpc.processHeartbeat": "heartbeat", "raft.rpc.requestVote": "request_vote", "raft.rpc.installSnapshot": "install_snapshot"}, "", ""},
	{seconds, "evenkeel_raft_replication_seconds", "Time of a call of the leader to a peer, answer included.", "rpc", map[string]string{"raft.replication.appendEntries.rpc": "append_entries",
		"raft.replication.heartbeat": "heartbeat", "raft.replication.installSnapshot": "install_snapshot"}, "peer_id", "peer"},
	{seconds, "evenkeel_raft_last_contact_seconds", "Time since a follower answered, as the leader sees it when it checks its lease.", "", one("raft.leader.lastContact"), "", ""},
	{seconds, "evenkeel_raft_log_write_seconds", "Time to write a batch of entries to the log on disk.", "", one("raft.boltdb.storeLogs"), "", ""},
	{sizes, "evenkeel_raft_log_write_bytes", "Size of a batch of entries that was written to the log on disk.", "", one("raft.boltdb.logBatchSize"), "", ""},
	{sizes, "evenkeel_raft_log_write_entries", "Entries of a batch that was written to the log on disk.", "", one("raft.boltdb.logsPerBatch"), "", ""},
	{seconds, "evenkeel_raft_log_read_seconds", "Time to read an entry of the log on disk.", "", one("raft.boltdb.getLog"), "", ""},
	{seconds, "evenkeel_raft_snapshot_seconds", "Time to write a snapshot of the state and to shorten the log.", "", one("raft.snapshot.takeSnapshot"), "", ""},
	{seconds, "evenkeel_raft_restore_seconds", "Time to restore the state from a snapshot.", "", one("raft.fsm.restore"), "", ""},
	{counter, "evenkeel_gossip_sent_bytes_total", "Bytes of gossip sent.", "protocol", map[string]string{"memberlist.udp.sent": "udp", "memberlist.tcp.sent": "tcp"}, "", ""},
	{counter, "evenkeel_gossip_received_bytes_total", "Bytes of gossip received in datagrams.", "", one("memberlist.udp.received"), "", ""},
	{counter, "evenkeel_gossip_messages_total", "Messages of gossip that said of a member that it is alive, suspected or dead.", "kind",
		map[string]string{"memberlist.msg.alive": "alive", "memberlist.msg.suspect": "suspect", "memberlist.msg.dead": "dead"}, "", ""},
	{gauge, "evenkeel_gossip_members", "Members as gossip has them, by state.", "", one("memberlist.node.instances"), "node_state", "state"},
	{gauge, "evenkeel_gossip_health_score", "How slow this member itself is to answer gossip: 0 is healthy.", "", one("memberlist.health.score"), "", ""},
	{seconds, "evenkeel_gossip_probe_seconds", "Time to ask one member whether it is alive.", "", one("memberlist.probeNode"), "", ""},
}

var (
	secondsBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	sizeBuckets    = prometheus.ExponentialBuckets(1, 4, 13) // to 16 Mi
)

// labels of a metric, in order.
func (m libraryMetric) labels() (names []string) {
	for _, name := range []string{m.label, m.peerName} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// collector makes the metric, and what records a value under a value of its label and the library's labels.
func (m libraryMetric) collector() (c prometheus.Collector, record func(values []string, value float64)) {
	switch m.kind {
	case counter:
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.labels())
		return v, func(values []string, value float64) { v.WithLabelValues(values...).Add(max(value, 0)) }
	case gauge:
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.name, Help: m.help}, m.labels())
		return v, func(values []string, value float64) { v.WithLabelValues(values...).Set(value) }
	case seconds:
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.help, Buckets: secondsBuckets}, m.labels())
		return v, func(values []string, value float64) { v.WithLabelValues(values...).Observe(value / 1000) }
	default:
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.help, Buckets: sizeBuckets}, m.labels())
		return v, func(values []string, value float64) { v.WithLabelValues(values...).Observe(value) }
	}
}

// librarySink receives what the libraries measure.
type librarySink struct {
	metrics.BlackholeSink
	of map[string]func(value float64, labels []metrics.Label) // by the library's key
}

// newLibrarySink registers libraryMetrics.
func newLibrarySink(r prometheus.Registerer) (*librarySink, error) {
	s := &librarySink{of: map[string]func(float64, []metrics.Label){}}
	for _, m := range libraryMetrics {
		c, record := m.collector()
		if err := r.Register(c); err != nil {
			return nil, err
		}
		for key, value := range m.from {
			var own []string
			if m.label != "" {
				own = []string{value}
			}
			if m.kind == counter && m.peer == "" {
				record(own, 0) // so that the first event is a change
			}
			s.of[key] = func(value float64, labels []metrics.Label) {
				values := own
				if m.peer != "" {
					peer := ""
					for _, l := range labels {
						if l.Name == m.peer {
							peer = l.Value
						}
					}
					values = append(own[:len(own):len(own)], peer)
				}
				record(values, value)
			}
		}
	}
	return s, nil
}

func (s *librarySink) take(key []string, value float32, labels []metrics.Label) {
	if record := s.of[strings.Join(key, ".")]; record != nil {
		record(float64(value), labels)
	}
}

// SetGauge implements metrics.MetricSink, as those below do.
func (s *librarySink) SetGauge(key []string, v float32) { s.take(key, v, nil) }

// SetGaugeWithLabels records the value of a gauge.
func (s *librarySink) SetGaugeWithLabels(key []string, v float32, l []metrics.Label) {
	s.take(key, v, l)
}

// IncrCounter records by how much a counter grew.
func (s *librarySink) IncrCounter(key []string, v float32) { s.take(key, v, nil) }

// IncrCounterWithLabels records by how much a counter grew.
func (s *librarySink) IncrCounterWithLabels(key []string, v float32, l []metrics.Label) {
	s.take(key, v, l)
}

// AddSample records one measured value.
func (s *librarySink) AddSample(key []string, v float32) { s.take(key, v, nil) }

// AddSampleWithLabels records one measured value.
func (s *librarySink) AddSampleWithLabels(key []string, v float32, l []metrics.Label) {
	s.take(key, v, l)
}

var registerLibraries sync.Once // the libraries send to one sink of the process

// metricsToPrometheus shows what the libraries of Raft and gossip measure at /metrics.
func metricsToPrometheus(log *slog.Logger) {
	registerLibraries.Do(func() {
		sink, err := newLibrarySink(prometheus.DefaultRegisterer)
		if err == nil {
			conf := metrics.DefaultConfig("")
			conf.EnableHostname, conf.EnableRuntimeMetrics = false, false
			_, err = metrics.NewGlobal(conf, sink)
		}
		if err != nil {
			log.Warn("metrics of Raft are not shown", "error", err)
		}
	})
}
