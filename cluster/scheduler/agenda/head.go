package agenda

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// First returns when, and on which hosts, the first VC of the queue without room gets it: at the earliest known end of VCs that run,
// beside the agenda. It returns nil if no VC waits, or no known end makes room. It counts minimum yields, memory and the rule spread.
// VCs that ask for more than these, or that do not fit on empty hosts, are left out: the next one counts.
func First(s *state.Snapshot, queue []state.VC, env placement.Env) (*placement.Head, error) {
	if len(queue) == 0 {
		return nil, nil
	}
	x := planner{s: s, now: env.Now, unavailable: env.Unavailable, credible: true, jobs: map[string]state.PeriodicJob{}}
	for _, job := range s.PeriodicJobs() {
		if job.SignOff.State == state.SignedOff {
			x.jobs[job.Name] = job
		}
	}
	ends := x.ends()
	if len(ends) == 0 {
		return nil, nil
	}
	empty := x
	if err := errors.Join(x.build(), empty.buildEmpty()); err != nil {
		return nil, fmt.Errorf("reserve for the first of the queue: %w", err)
	}
	for _, o := range s.Agenda() {
		if _, signed := x.jobs[o.Job]; signed && o.Reserves() {
			x.restore(&o)
		}
	}
	tried := 0
	for i := range queue[:min(len(queue), maxHeadsAsked)] {
		vc := &queue[i]
		if !x.knowsNeeds(vc, env) || empty.hostsFrom(vc, 0) == nil {
			continue
		}
		if tried++; tried > maxHeads {
			break
		}
		if x.hostsFrom(vc, 0) != nil {
			continue // it fits now, as far as can be said here
		}
		for k := 0; k < len(ends); k = nextEnd(k, len(ends)) {
			if hosts := x.hostsFrom(vc, ends[k]); hosts != nil {
				return x.head(vc, ends[k], hosts), nil
			}
		}
		return nil, nil // it is the first VC, and no known end makes room for it
	}
	return nil, nil
}

// nextEnd returns which of n ends is tried after the k-th; n: none. If there are many it skips some, but never the last, when most is
// free.
func nextEnd(k, n int) int {
	if k == n-1 {
		return n
	}
	return min(k+1+n/maxHeadTimes, n-1)
}

// knowsNeeds says whether hostsFrom looks at all that a VC asks for: at no other VMs, at no host by name or disk, and at no pool that a
// host lacks.
func (x *planner) knowsNeeds(vc *state.VC, env placement.Env) bool {
	for i := range vc.Groups {
		g := &vc.Groups[i]
		without := func(h state.Host) bool {
			return placement.ClosedFor(h, env.Unavailable) == "" && env.Pools.Lacking(x.s, h.Name, *g)
		}
		if len(g.Affinity.Require)+len(g.Affinity.Avoid) > 0 || slices.ContainsFunc(x.s.Hosts(), without) {
			return false
		}
	}
	return !placement.Requests(x.s, []state.VC{*vc}, env)[0].Bound
}

// ends are the steps of the agenda from which on VCs are gone that run now, each once, ascending.
func (x *planner) ends() (out []int) {
	x.setStep()
	origin := x.now.Truncate(x.step)
	x.s.EachVC(func(vc *state.VC) bool {
		if until := x.endOf(vc); !until.IsZero() && vc.Admitted {
			out = append(out, max(1, int((until.Sub(origin)+x.step-1)/x.step)))
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// hostsFrom are hosts for all VMs of a VC from a step on, as long as it runs; nil if there are none. It leaves the agenda as it is.
func (x *planner) hostsFrom(vc *state.VC, from int) map[string]state.Resources {
	n := min(x.steps-from, int((placement.StaysFor(vc)+x.step-1)/x.step))
	if n < 1 {
		return nil
	}
	out := map[string]state.Resources{}
	var put []string
	defer func() {
		for _, name := range put {
			x.agenda.Remove(name)
		}
	}()
	overhead := slices.Max(x.over)
	for i := range vc.Groups {
		g := &vc.Groups[i]
		if g.Count == 0 {
			continue
		}
		cpu := g.CPU * min(vc.MinYield, 1)
		r := slot("queue/"+vc.ID+"/"+g.Name, from, n, g.Count, func(int) (float64, float64) { return cpu, float64(g.Memory + overhead) }).Request
		if g.Affinity.Spread != "" {
			r.Affinity = &allocator.Affinity{Spread: "host"}
		}
		a, _, err := x.agenda.Accept(r)
		if err != nil || a == nil {
			return nil
		}
		put = append(put, r.Name)
		for _, h := range a.Witness.Hosts {
			name := x.names[h]
			out[name] = state.Resources{CPU: out[name].CPU + cpu, Memory: out[name].Memory + g.Memory + x.over[h]}
		}
	}
	return out
}

func (x *planner) head(vc *state.VC, from int, hosts map[string]state.Resources) *placement.Head {
	h := &placement.Head{VC: vc.ID, At: x.origin.Add(time.Duration(from) * x.step), Hosts: hosts}
	x.s.EachVC(func(other *state.VC) bool {
		until := x.endOf(other)
		there := slices.ContainsFunc(x.s.VMsOf(other.ID), func(vm state.VM) bool { _, is := hosts[vm.Host]; return is && vm.ConsumesResources() })
		if there && !until.IsZero() && !until.After(h.At) {
			h.Ends = append(h.Ends, other.ID)
		}
		return true
	})
	return h
}
