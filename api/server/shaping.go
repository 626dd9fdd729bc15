package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/api/v1"
	"evenkeel/cluster/control"
	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// Shaper is what the API asks about estimated needs.
type Shaper interface {
	// Shaping is how it stands, by the server that leads.
	Shaping(ctx context.Context) (control.ShapingStatus, error)
	ShapingFigures() control.ShapingFigures
}

func (s *Server) registerShaping(api huma.API) {
	get(api, "getShaping", "/v1/cluster/shaping", tagCluster, "What is reclaimed of what was declared",
		"What VMs are given that use less than was declared, or in the shadow what they would be given; what went wrong, or would have; and which VMs are left alone, and why.",
		func(ctx context.Context, _ *struct{}) (*answerOf[v1.Shaping], error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			now, err := s.cluster.Shaping(bounded)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return &answerOf[v1.Shaping]{Body: shaping(now)}, nil
		})
}

func shaping(x control.ShapingStatus) v1.Shaping {
	return v1.Shaping{Mode: string(x.Settings.Mode), Needs: x.Settings.Needs, Aggressiveness: x.Settings.Aggressiveness, LookedAt: x.Looked,
		Reclaimed: v1.Resources{CPU: x.Reclaimed.CPU, Memory: v1.Size(x.Reclaimed.Memory)}, Waiting: append([]string{}, x.Waiting...),
		Admission: admission(x.Admission),
		VMs: each(x.VMs, func(m loop.Shaped) v1.ShapedVM {
			return v1.ShapedVM{VM: m.Name, VirtualCluster: m.VC, Host: m.Host, CPU: m.CPU, Need: m.Need, Memory: v1.Size(m.Memory), Balloon: v1.Size(m.Next),
				Pressed: m.Pressed, ShortCPU: m.ShortCPU, ShortMemory: v1.Size(m.ShortMemory), LeftAlone: m.Alone != "", Reason: m.Text}
		}),
		Hours: each(x.Hours, func(h state.ShapingHour) v1.ShapingHour {
			return v1.ShapingHour{From: h.From, Mode: string(h.Mode), Minutes: h.Minutes, Reclaimed: v1.Resources{CPU: h.Average.CPU, Memory: v1.Size(h.Average.Memory)},
				VMMinutes: h.VMs, ShortCPU: h.ShortCPU, ShortMemory: h.ShortMemory, WorstCPU: h.WorstCPU, WorstMemory: v1.Size(h.WorstMemory), WorstVM: h.WorstVM, Preempted: h.Preempted}
		})}
}

func admission(x control.AdmissionStatus) v1.Admission {
	return v1.Admission{InForce: x.InForce, Quality: told(x.Quality), Target: x.Target,
		Penalties: each(x.Penalties, func(p control.PenaltyStatus) v1.Penalty {
			b := loop.BufferFor(p.Aggressiveness)
			return v1.Penalty{Aggressiveness: p.Aggressiveness, Factor: p.Factor, Start: p.Start, Min: p.Min, Max: p.Max, K1: b.K1, K2: b.K2}
		}),
		Hosts: each(x.Hosts, func(h control.HostRoom) v1.HostRoom {
			out := v1.HostRoom{Host: h.Host, Needs: resources(h.Needs), CountAs: resources(h.Counts), Estimated: resources(h.Plain), Room: resources(h.Room), Ignored: h.Ignored}
			if !h.Word.At.IsZero() {
				out.Available = hostWord(h.Word, h.Ignored)
			}
			return out
		})}
}

func hostWord(w loop.Word, ignored string) *v1.HostWord {
	return &v1.HostWord{CPU: max(0, w.Available.CPU), Memory: v1.Size(max(0, w.Available.Memory)), Used: resources(w.Used), HeardAt: w.At, Ignored: ignored}
}

func patchShaping(to *state.ShapingSettings, q *v1.ShapingPatch) {
	if q == nil {
		return
	}
	if q.Mode != nil {
		to.Mode = state.ShapingMode(*q.Mode)
	}
	take(&to.Needs, q.Needs)
	take(&to.Aggressiveness, q.Aggressiveness)
}

var (
	descShapingMode = desc("shaping_mode", "1 for the mode of shaping that is set: off, shadow or on; of the leader only.", "mode")
	descReclaimCPU  = desc("shaping_reclaimed_cores", "CPU that was declared and is not needed by estimate; in the shadow what would be reclaimed; of the leader only.")
	descReclaimMem  = desc("shaping_reclaimed_bytes", "Memory that was declared and is given to others; in the shadow what would be; of the leader only.")
	descShapedVMs   = desc("shaping_vms", "VMs whose needs are estimated: all, those short of memory now (pressed), those whose memory is left alone; of the leader only.", "which")
	descShort       = desc("shaping_short_vm_minutes_total", "VM-minutes in which a VM was short of what it would have used, or in the shadow would have been; since the server began to lead.", "resource")
	descPenalty     = desc("shaping_penalty_factor", "By how much larger estimated needs count where new VMs are placed, in the shadow would count; of the leader only.", "aggressiveness")
	descQuality     = desc("shaping_quality_ratio", "Share of the looks at VMs in the last period at which a VM had what it could use, in the shadow would have; of the leader only.")
	descPreempted   = desc("shaping_preempted_vms_total", "VMs that were stopped to make room in memory for others; since the server began to lead.")
)

var shapingDescs = []*prometheus.Desc{descShapingMode, descReclaimCPU, descReclaimMem, descShapedVMs, descShort, descPreempted, descPenalty, descQuality}

// shapingFigures of the server that leads.
func (c clusterCollector) shapingFigures(ch chan<- prometheus.Metric) {
	f := c.s.cluster.ShapingFigures()
	if f.Mode == "" { // it has not looked yet
		return
	}
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, mode := range []state.ShapingMode{state.ShapingOff, state.ShapingShadow, state.ShapingOn} {
		put(descShapingMode, prometheus.GaugeValue, truth(f.Mode == mode), string(mode))
	}
	put(descReclaimCPU, prometheus.GaugeValue, f.Reclaimed.CPU)
	put(descReclaimMem, prometheus.GaugeValue, float64(f.Reclaimed.Memory))
	put(descShapedVMs, prometheus.GaugeValue, float64(f.VMs), "all")
	put(descShapedVMs, prometheus.GaugeValue, float64(f.Pressed), "pressed")
	put(descShapedVMs, prometheus.GaugeValue, float64(f.Alone), "left alone")
	put(descShort, prometheus.CounterValue, f.ShortCPU, "cpu")
	put(descShort, prometheus.CounterValue, f.ShortMemory, "memory")
	if f.Mode != state.ShapingOff {
		for _, p := range f.Penalties {
			put(descPenalty, prometheus.GaugeValue, p.Factor, p.Aggressiveness)
		}
		if f.Quality >= 0 {
			put(descQuality, prometheus.GaugeValue, f.Quality)
		}
	}
	put(descPreempted, prometheus.CounterValue, float64(f.Preempted))
}
