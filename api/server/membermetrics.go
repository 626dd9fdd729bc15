package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// Metrics of a cluster of many members. What only the leader knows, only the leader exports.
var (
	descLeads          = desc("server_leader", "1 if the server leads.")
	descContact        = desc("server_last_contact_seconds", "Time since the server heard from the leader; 0 on the leader.")
	descSlowLog        = desc("server_log_slow_seconds", "Time spent in appends to the server's log that took over 1 s each, since the last one that did not; 0: the last one did not.")
	descDiskFree       = desc("data_disk_free_bytes", "Room where the server's log is.")
	descDiskSize       = desc("data_disk_size_bytes", "Size of the file system where the server's log is.")
	descEvery          = desc("snapshot_interval_seconds", "How often the server saves the state by itself; 0: it does not.")
	descSaved          = desc("snapshot_last_success_timestamp_seconds", "When the server last saved the state by itself; 0: never.")
	descVoters         = desc("voters", "Servers that vote.")
	descTolerance      = desc("failure_tolerance", "Servers that may fail before the majority is lost; of the leader only.")
	descArmed          = desc("fencing_enabled", "0 after vcctl cluster fencing disable.")
	descRecoveryFreeze = desc("recovery_freeze_hosts", "Hosts that a restore or a recovery still waits for.")
	descExpiry         = desc("certificate_expiry_timestamp_seconds", "When a certificate ends.", "member", "kind")
	descLife           = desc("certificate_lifetime_seconds", "How long a certificate is good for in all.", "member", "kind")
	descFenced         = desc("fence_attempts_total", "Times that a host was to be turned off by its fence device, by how it ended.", "host", "result")
	descRestartable    = desc("host_restartable_vms", "VMs on the host that are restarted elsewhere if it is lost.", "host")
	descEnforced       = desc("host_lease_enforced", "1 if the host reports that it stops restartable VMs when its lease ends.", "host")
	descGuarded        = desc("host_watchdog_armed", "1 if the host reports that its watchdog is armed.", "host")
	descWatched        = desc("host_watchdog_configured", "1 if the host's configuration names a watchdog; of the leader only.", "host")
	descUnproved       = desc("host_unproved_vms", "Restartable VMs that wait because nothing proves that their host lost them; of the leader only.", "host")
	descUnmanaged      = desc("host_unmanaged_vms", "VMs with this cluster's mark that the cluster does not know; of the leader only.", "host")
	descClock          = desc("host_clock_rate_error_ratio", "How much faster the host's clock runs than the leader's; of the leader only.", "host")
	descDuplicates     = desc("duplicate_vms", "VMs that two hosts report to run while no migration is open; of the leader only.")
	descQueue          = desc("queue_oldest_seconds", "How long the oldest virtual cluster has been queued; 0: none is; of the leader only.")
)

type memberCollector struct{ s *Server }

// Describe implements prometheus.Collector.
func (memberCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeads, descContact, descSlowLog, descDiskFree, descDiskSize, descEvery, descSaved, descVoters, descTolerance, descArmed, descRecoveryFreeze,
		descExpiry, descLife, descFenced, descRestartable, descEnforced, descGuarded, descWatched, descUnproved, descUnmanaged, descClock, descDuplicates, descQueue} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c memberCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	f, err := c.s.opts.Members.Metrics()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descDiskFree, err) // the other metrics are exported all the same
	} else {
		gauge(descDiskFree, float64(f.DiskFree))
		gauge(descDiskSize, float64(f.DiskSize))
	}
	gauge(descLeads, truth(f.Leads))
	if f.Contact >= 0 {
		gauge(descContact, f.Contact.Seconds())
	}
	gauge(descSlowLog, f.SlowLog.Seconds())
	gauge(descEvery, f.SnapshotEvery.Seconds())
	gauge(descSaved, stampOf(f.SnapshotAt))
	for _, cert := range f.Certificates {
		kind := "member"
		if cert.CA {
			kind = "ca"
		}
		gauge(descExpiry, stampOf(cert.Until), cert.Member, kind)
		gauge(descLife, cert.Until.Sub(cert.From).Seconds(), cert.Member, kind)
	}
	v, err := c.s.cluster.View(ctx, true)
	if err != nil {
		return // the other collector says so
	}
	fenced := c.s.opts.Members.Fenced()
	for _, h := range v.Hosts() { // each from 0 on, or the first attempt would be no increase
		n := fenced[h.Name]
		ch <- prometheus.MustNewConstMetric(descFenced, prometheus.CounterValue, float64(n.Proved), h.Name, "proved")
		ch <- prometheus.MustNewConstMetric(descFenced, prometheus.CounterValue, float64(n.Failed), h.Name, "failed")
	}
	c.cluster(v, f.Leads, gauge)
}

func stampOf(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// cluster as the state has it, and as the leader sees it.
func (c memberCollector) cluster(v *leader.View, leads bool, gauge func(*prometheus.Desc, float64, ...string)) {
	meta, _ := v.Meta()
	gauge(descArmed, truth(!meta.FencingDisabled))
	gauge(descRecoveryFreeze, float64(len(meta.RecoveryFreeze.Pending)))
	nodes, _ := c.s.opts.Members.Nodes()
	voters, tolerance := tolerated(nodes)
	gauge(descVoters, float64(voters))
	for _, h := range v.Hosts() {
		n := 0
		for _, vm := range v.VMsOn(h.Name) {
			if vc, _ := v.VC(vm.VC); vm.ConsumesResources() && vc.Restartable() {
				n++
			}
		}
		gauge(descRestartable, float64(n), h.Name)
		gauge(descEnforced, truth(h.Fencing.Enforcing), h.Name)
		gauge(descGuarded, truth(h.Fencing.Watchdog > 0), h.Name)
	}
	if !leads {
		return
	}
	gauge(descTolerance, float64(tolerance))
	gauge(descDuplicates, float64(len(c.s.opts.Members.Duplicates(v))))
	oldest := 0.0
	for _, vc := range v.VCs() {
		if v.VCView(vc).State == state.VCQueued && !vc.QueuedAt.IsZero() {
			oldest = max(oldest, time.Since(vc.QueuedAt).Seconds())
		}
	}
	gauge(descQueue, oldest)
	stats := c.s.opts.Members.HostStats(v)
	for _, row := range v.Hosts() {
		x := stats[row.Name]
		gauge(descUnmanaged, float64(len(v.HostView(row).Unmanaged)), row.Name)
		gauge(descUnproved, float64(x.Unproved), row.Name)
		gauge(descWatched, truth(x.Watched), row.Name)
		if x.RateKnown {
			gauge(descClock, x.Rate, row.Name)
		}
	}
}
