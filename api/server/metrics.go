package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// metrics of the API and, read from a view at each scrape, of the cluster.
type metrics struct {
	handler    http.Handler
	requests   *prometheus.HistogramVec
	admissions *prometheus.CounterVec
	moves      *moveMeter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evenkeel_request_duration_seconds", Help: "Time to answer API requests, by route. Streams count when they end.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"method", "route", "status"}),
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_admissions_total", Help: "Answers of admission that this server gave, dry runs and repeated answers apart.",
		}, []string{"verb", "answer"}),
		moves: newMoveMeter(),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.admissions, clusterCollector{s}, auditCollector{s})
	if s.opts.OpenID != nil {
		registry.MustRegister(openIDCollector{s})
	}
	if s.opts.Members != nil {
		registry.MustRegister(memberCollector{s})
	}
	gatherers := prometheus.Gatherers{registry}
	if s.opts.Gatherer != nil {
		gatherers = append(gatherers, s.opts.Gatherer)
	}
	m.handler = promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return m
}

// request counts one request. The route is a pattern of the mux, so that paths that
// a client makes up do not become metrics.
func (m *metrics) request(method, pattern string, status int, took time.Duration) {
	_, route, ok := strings.Cut(pattern, " ")
	if !ok {
		method, route = "other", "none"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *metrics) admission(verb string, r leader.Result, err error) {
	if verb == "stop" || verb == "delete" || verb == "restart" || verb == "reset" || r.DryRun || r.Replayed {
		return
	}
	var refused *leader.Refused
	switch {
	case errors.As(err, &refused):
		m.admissions.WithLabelValues(verb, "refused").Inc()
	case err != nil:
	case r.VC.Admitted:
		m.admissions.WithLabelValues(verb, "admitted").Inc()
	default:
		m.admissions.WithLabelValues(verb, "queued").Inc()
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("evenkeel_"+name, help, labels, nil)
}

var (
	descIndex    = desc("state_index", "Log index of the state that these figures are of.")
	descMin      = desc("min_yield", "Least yield of the virtual clusters that run; 1 if none does.")
	descYield    = desc("virtual_cluster_yield", "Yield of a virtual cluster.", "virtual_cluster")
	descPromised = desc("virtual_cluster_min_yield", "Least yield that a virtual cluster was promised.", "virtual_cluster")
	descVCs      = desc("virtual_clusters", "Virtual clusters by state.", "state")
	descVMs      = desc("vms", "VMs by phase.", "phase")
	descUp       = desc("host_up", "1 if the host's hypervisor answers; of the leader only.", "host")
	descCordoned = desc("host_cordoned", "1 if the host takes no new VMs.", "host")
	descCPU      = desc("host_cpu_cores", "CPU of a host: its capacity, its allowance, what is allocated, used, and foreign, and what it measures to be available itself (of the leader only).", "host", "of")
	descMemory   = desc("host_memory_bytes", "Memory of a host: its capacity, its allowance, what is allocated, used, and foreign, and what it measures to be available itself (of the leader only).", "host", "of")
	descVMUsed   = desc("vm_cpu_used_cores", "CPU that the virtual CPUs of a VM that runs use; of the leader only.", "vm", "virtual_cluster")
	descVMCap    = desc("vm_cpu_cap_cores", "Cap of a VM that runs; of the leader only.", "vm", "virtual_cluster")
	descVMMemory = desc("vm_memory_used_bytes", "Memory that a VM that runs uses: its balloon less what its guest reports as available, or what the host keeps for it; of the leader only.", "vm", "virtual_cluster")
	descPressure = desc("host_pressure_ratio", "Share of the last ten seconds in which a task of the host waited for the resource (PSI), where its kernel measures it; of the leader only.", "host", "resource")
	descReady    = desc("ready", "1 if the server is ready.")
)

type clusterCollector struct{ s *Server }

// Describe implements prometheus.Collector.
func (clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descIndex, descMin, descYield, descPromised, descVCs, descVMs, descUp, descCordoned, descCPU, descMemory, descReady, descPressure, descVMUsed, descVMCap, descVMMemory,
		descMigrations, descMigratedBytes, descDowntime, descMoving, descPlans, descDrain, descDrainMoved, descDrainVMs} {
		ch <- d
	}
	for _, d := range slices.Concat(rightsizingDescs, tenantDescs, periodicDescs) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c clusterCollector) Collect(ch chan<- prometheus.Metric) {
	g := gauges{ch}
	g.set(descReady, truth(c.s.cluster.Ready() == nil))
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	v, err := c.s.cluster.View(ctx, true)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descIndex, err)
		return
	}
	g.set(descIndex, float64(v.Index()))
	g.set(descMin, v.MinYield())
	g.virtualClusters(v)
	n := v.CountVMs()
	for phase, n := range map[state.Phase]int{state.Starting: n.Starting, state.Running: n.Running, state.Stopping: n.Stopping, state.Stopped: n.Stopped, state.Failed: n.Failed} {
		g.set(descVMs, float64(n), string(phase))
	}
	live := c.s.leads() // hosts report to the leader alone
	for _, row := range v.Hosts() {
		h := v.HostView(row)
		g.host(h, live)
		if live {
			g.hostReport(h)
		}
	}
	if live {
		for _, row := range v.VMs() {
			g.vm(v.VMView(row))
		}
		c.rightsizingStats(ch)
		g.tenants(v)
		c.reprovisionStats(ch)
	}
	g.periodic(v)
	c.moveStats(ch, v)
}

// gauges sends metrics that have one value at each scrape.
type gauges struct{ ch chan<- prometheus.Metric }

func (g gauges) set(d *prometheus.Desc, v float64, labels ...string) {
	g.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (g gauges) virtualClusters(v *leader.View) {
	states := map[state.VCState]int{state.VCQueued: 0, state.VCStarting: 0, state.VCRunning: 0, state.VCStopping: 0, state.VCStopped: 0,
		state.VCDegraded: 0, state.VCFailed: 0, state.VCDeleting: 0}
	for _, row := range v.VCs() {
		vc := v.VCView(row)
		states[vc.State]++
		if vc.Count.Starting+vc.Count.Running > 0 {
			g.set(descYield, vc.Yield, vc.Name)
			g.set(descPromised, vc.MinYield, vc.Name)
		}
	}
	for s, n := range states {
		g.set(descVCs, float64(n), string(s))
	}
}

// host sends what the state knows of a host; live adds what its VMs use.
func (g gauges) host(h leader.HostView, live bool) {
	g.set(descCordoned, truth(h.Cordoned), h.Name)
	for _, of := range []struct {
		name string
		r    state.Resources
	}{{"capacity", h.Capacity}, {"allowance", h.Allowance}, {"allocated", h.Allocated}, {"used", h.Used}, {"foreign", h.Foreign}} {
		if of.name == "used" && !live {
			continue
		}
		g.set(descCPU, of.r.CPU, h.Name, of.name)
		g.set(descMemory, float64(of.r.Memory), h.Name, of.name)
	}
}

// hostReport sends what a host last reported of itself.
func (g gauges) hostReport(h leader.HostView) {
	g.set(descUp, truth(h.State != "unreachable" && h.State != "unknown" && h.State != "lost"), h.Name)
	if w := h.Availability; w != nil && w.Ignored == "" {
		g.set(descCPU, w.Available.CPU, h.Name, "available")
		g.set(descMemory, float64(w.Available.Memory), h.Name, "available")
	}
	if p := h.Pressure; p != nil {
		for resource, v := range map[string]float64{"cpu": p.CPU, "memory": p.Memory, "io": p.IO} {
			if v >= 0 {
				g.set(descPressure, v, h.Name, resource)
			}
		}
	}
}

// vm sends what a VM uses. There are no more series than VMs that were sampled.
func (g gauges) vm(m leader.VMView) {
	if m.SampledAt.IsZero() {
		return
	}
	g.set(descVMUsed, m.Used, m.Name, m.VCName)
	if m.Cap > 0 {
		g.set(descVMCap, m.Cap, m.Name, m.VCName)
	}
	if m.MemoryUsed > 0 {
		g.set(descVMMemory, float64(m.MemoryUsed), m.Name, m.VCName)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
