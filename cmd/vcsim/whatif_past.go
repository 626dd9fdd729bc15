package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"evenkeel/api/v1"
	"evenkeel/sim/workload"
)

// minThrottledNoted is the share of the time in which caps throttled a VM from which on a note says so.
const minThrottledNoted = 0.01

// pastOf makes a workload of a history. Every virtual cluster becomes an application that arrives when it was created and outlasts the
// history; every VM becomes a component that uses, at each time, what the VM used then. more (0.3: 30% more, by declared CPU) adds copies of
// some, at another time of their history. floors is memoryMin by group of the workload. notes is text for the user: what the file does not state.
func pastOf(h v1.ClusterHistory, more float64, seed uint64) (w *workload.Workload, floors []float64, notes []string, err error) {
	p := past{h: h, step: float64(h.StepSeconds), end: float64(h.Steps * h.StepSeconds), w: &workload.Workload{}}
	asked := 0.0
	for _, vc := range h.VirtualClusters {
		asked += p.add(vc, 0)
	}
	if len(p.w.Apps) == 0 {
		return nil, nil, nil, errors.New("there is no virtual cluster in the history that ran before its end")
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	order := rng.Perm(len(h.VirtualClusters))
	copies := 0
	for added, i := 0.0, 0; added < more*asked*(1-1e-9); i++ {
		added += p.add(h.VirtualClusters[order[i%len(order)]], 1+rng.IntN(max(1, h.Steps-1)))
		copies = i + 1
	}
	p.w.Sort()
	if copies > 0 {
		notes = append(notes, fmt.Sprintf("%d virtual clusters are played beside the %d of the history", copies, len(p.w.Apps)-copies))
	}
	if p.throttled > 0 {
		notes = append(notes, fmt.Sprintf("caps held %d of %d VMs back in more than 1%% of the time: they would have used more than was measured", p.throttled, p.vms))
	}
	if p.unknown > 0 {
		notes = append(notes, fmt.Sprintf("nothing was measured of %d of %d VMs: they count with what they declared", p.unknown, p.vms))
	}
	return p.w, p.floors, notes, p.w.Validate()
}

// past is a history on its way to a workload.
type past struct {
	h         v1.ClusterHistory
	step, end float64 // seconds
	w         *workload.Workload

	floors                  []float64 // memoryMin, by group of w
	vms, throttled, unknown int
}

// add adds a virtual cluster whose VMs are so many steps ahead of their history, and returns the cores that it declared.
func (p *past) add(vc v1.HistoryVirtualCluster, ahead int) (cores float64) {
	arrival := max(0, vc.CreatedAt.Sub(p.h.From).Seconds())
	if arrival >= p.end {
		return 0
	}
	app := workload.App{Arrival: arrival, Work: 10 * p.end, Priority: int32(max(-1<<30, min(1<<30, vc.Priority))), Source: int32(len(p.w.Apps)), First: int32(len(p.w.Groups))}
	core := false
	for _, g := range vc.Groups {
		for _, vm := range g.VMs {
			cpu, known := p.pattern(vm.CPU, g.CPU)
			memory, _ := p.pattern(vm.Memory, g.Memory)
			begin := float32(arrival/p.step) + float32(ahead)
			p.w.Groups = append(p.w.Groups, workload.Group{Count: 1, Elastic: g.Elastic, CPU: g.CPU, Memory: g.Memory,
				CPUUse: workload.Use{Pattern: cpu, Offset: begin, Step: float32(p.step)}, MemoryUse: workload.Use{Pattern: memory, Offset: begin, Step: float32(p.step)}})
			p.floors = append(p.floors, g.MemoryMin)
			core = core || !g.Elastic
			cores += g.CPU
			if ahead > 0 {
				continue
			}
			p.vms++
			if !known {
				p.unknown++
			}
			if vm.Throttled > minThrottledNoted {
				p.throttled++
			}
		}
	}
	if app.Groups = int32(len(p.w.Groups)) - app.First; app.Groups == 0 {
		return 0
	}
	if !core {
		p.w.Groups[app.First].Elastic = false // something of it must run for it to run
	}
	p.w.Apps = append(p.w.Apps, app)
	return cores
}

// pattern makes a pattern of shares of what was declared. A step without a value repeats the one before; steps before the first value
// repeat that. known: there is a value; without any, all that was declared counts.
func (p *past) pattern(values []*float64, declared float64) (index int32, known bool) {
	last := float32(1)
	for _, v := range values {
		if v != nil && declared > 0 {
			last, known = float32(*v/declared), true
			break
		}
	}
	out := make(workload.Pattern, len(values))
	for i, v := range values {
		if v != nil && declared > 0 {
			last = float32(*v / declared)
		}
		out[i] = last
	}
	p.w.Patterns = append(p.w.Patterns, out)
	return int32(len(p.w.Patterns) - 1), known
}
