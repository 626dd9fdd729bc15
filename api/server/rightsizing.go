package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// Rightsizer is what the API asks about estimated needs.
type Rightsizer interface {
	// Rightsizing is how it stands, by the server that leads.
	Rightsizing(ctx context.Context) (leader.RightsizingStatus, error)
	RightsizingStats() leader.RightsizingStats
}

func (s *Server) registerRightsizing(api huma.API) {
	get(api, route{"getRightsizing", "/v1/cluster/rightsizing", tagCluster, "What is reclaimed of what was declared",
		"What VMs are given that use less than was declared, or in the shadow what they would be given; what went wrong, or would have; and which VMs are left alone, and why."},
		func(ctx context.Context, _ *struct{}) (*answerOf[v1.Rightsizing], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			now, err := s.cluster.Rightsizing(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.Rightsizing]{Body: rightsizingOf(now)}, nil
		})
}

func rightsizingOf(x leader.RightsizingStatus) v1.Rightsizing {
	return v1.Rightsizing{Mode: string(x.Settings.Mode), Needs: x.Settings.Needs, Aggressiveness: x.Settings.Aggressiveness, EvaluatedAt: x.EvaluatedAt,
		Reclaimed: v1.Resources{CPU: x.Reclaimed.CPU, Memory: v1.Size(x.Reclaimed.Memory)}, Waiting: append([]string{}, x.Waiting...),
		Admission: admission(x.Admission),
		Stages: each(x.Stages, func(y leader.StageStatus) v1.RightsizingStage {
			return v1.RightsizingStage{Stage: y.Stage, On: y.On, Effect: resources(y.Effect)}
		}),
		VMs: each(x.VMs, func(m rightsizing.Recommendation) v1.RightsizedVM {
			return v1.RightsizedVM{VM: m.Name, VirtualCluster: m.VC, Host: m.Host, CPU: m.CPU, Need: m.Need, Memory: v1.Size(m.Memory), Balloon: v1.Size(m.Next),
				UnderPressure: m.UnderPressure, ShortCPU: m.ShortCPU, ShortMemory: v1.Size(m.ShortMemory), Excluded: m.Excluded != "", Reason: m.Text}
		}),
		Hours: each(x.Hours, func(h state.RightsizingHour) v1.RightsizingHour {
			return v1.RightsizingHour{From: h.From, Mode: string(h.Mode), Minutes: h.Minutes, Reclaimed: v1.Resources{CPU: h.Average.CPU, Memory: v1.Size(h.Average.Memory)},
				VMMinutes: h.VMs, ShortCPU: h.ShortCPU, ShortMemory: h.ShortMemory, WorstCPU: h.WorstCPU, WorstMemory: v1.Size(h.WorstMemory), WorstVM: h.WorstVM, Preempted: h.Preempted}
		})}
}

func admission(x leader.AdmissionStatus) v1.Admission {
	return v1.Admission{InForce: x.InForce, Quality: reportedOrNil(x.Quality), Target: x.Target,
		Margins: each(x.Margins, func(p leader.MarginStatus) v1.Margin {
			b := rightsizing.BufferFor(p.Aggressiveness)
			return v1.Margin{Aggressiveness: p.Aggressiveness, Factor: p.Factor, Start: p.Start, Min: p.Min, Max: p.Max, K1: b.K1, K2: b.K2}
		}),
		Hosts: each(x.Hosts, func(h leader.HostHeadroom) v1.HostHeadroom {
			out := v1.HostHeadroom{Host: h.Host, Needs: resources(h.Needs), CountAs: resources(h.Counts), Estimated: resources(h.FreeByEstimates), Headroom: resources(h.Free), Ignored: h.Ignored}
			if !h.Availability.At.IsZero() {
				out.Available = availabilityOf(h.Availability, h.Ignored)
			}
			return out
		})}
}

func availabilityOf(w placement.HostAvailability, ignored string) *v1.HostAvailability {
	return &v1.HostAvailability{CPU: max(0, w.Available.CPU), Memory: v1.Size(max(0, w.Available.Memory)), Used: resources(w.Used), HeardAt: w.At, Ignored: ignored}
}

var (
	descRightsizingMode = desc("rightsizing_mode", "1 for the mode of rightsizing that is set: off, shadow or on; of the leader only.", "mode")
	descReclaimCPU      = desc("rightsizing_reclaimed_cores", "CPU that was declared and is not needed by estimate; in the shadow what would be reclaimed; of the leader only.")
	descReclaimMem      = desc("rightsizing_reclaimed_bytes", "Memory that was declared and is given to others; in the shadow what would be; of the leader only.")
	descRightsizedVMs   = desc("rightsizing_vms", "VMs whose needs are estimated: all, those under memory pressure, those excluded, whose memory is not touched; of the leader only.", "which")
	descShort           = desc("rightsizing_short_vm_minutes_total", "VM-minutes in which a VM was short of what it would have used, or in the shadow would have been; since the server began to lead.", "resource")
	descMargin          = desc("rightsizing_margin_factor", "By how much larger estimated needs count where new VMs are placed, in the shadow would count; of the leader only.", "aggressiveness")
	descQuality         = desc("rightsizing_quality_ratio", "Share of the looks at VMs in the last period at which a VM had what it could use, in the shadow would have; of the leader only.")
	descPreempted       = desc("rightsizing_preempted_vms_total", "VMs that were stopped to make room in memory for others; since the server began to lead.")
)

var rightsizingDescs = []*prometheus.Desc{descRightsizingMode, descReclaimCPU, descReclaimMem, descRightsizedVMs, descShort, descPreempted, descMargin, descQuality}

// rightsizingStats of the server that leads.
func (c clusterCollector) rightsizingStats(ch chan<- prometheus.Metric) {
	f := c.s.cluster.RightsizingStats()
	if f.Mode == "" { // it has not looked yet
		return
	}
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, mode := range []state.RightsizingMode{state.RightsizingOff, state.RightsizingShadow, state.RightsizingOn} {
		put(descRightsizingMode, prometheus.GaugeValue, truth(f.Mode == mode), string(mode))
	}
	put(descReclaimCPU, prometheus.GaugeValue, f.Reclaimed.CPU)
	put(descReclaimMem, prometheus.GaugeValue, float64(f.Reclaimed.Memory))
	put(descRightsizedVMs, prometheus.GaugeValue, float64(f.VMs), "all")
	put(descRightsizedVMs, prometheus.GaugeValue, float64(f.UnderPressure), "under-pressure")
	put(descRightsizedVMs, prometheus.GaugeValue, float64(f.Excluded), "excluded")
	put(descShort, prometheus.CounterValue, f.ShortCPU, "cpu")
	put(descShort, prometheus.CounterValue, f.ShortMemory, "memory")
	if f.Mode != state.RightsizingOff {
		for _, p := range f.Margins {
			put(descMargin, prometheus.GaugeValue, p.Factor, p.Aggressiveness)
		}
		if f.Quality >= 0 {
			put(descQuality, prometheus.GaugeValue, f.Quality)
		}
	}
	put(descPreempted, prometheus.CounterValue, float64(f.Preempted))
}
