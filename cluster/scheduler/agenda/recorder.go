package agenda

import (
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// Sample is what a host last measured of a VM.
type Sample struct {
	At        time.Time
	Cap, Used float64 // cores
	Memory    int64   // bytes that its guest uses; 0: not known
}

// recorder has the skylines of the runs of a term, minute by minute. What a former leader saw is not known here.
type recorder struct {
	runs map[string]*state.RunUsage // by id of the run
}

// observe takes in a minute of all runs that have begun.
func (r *recorder) observe(s *state.Snapshot, now time.Time, samples map[string]Sample) {
	s.EachRun(func(run *state.Run) bool {
		if !run.Ended.IsZero() || run.Started.IsZero() || now.Before(run.Started) {
			return true
		}
		u := r.runs[run.ID]
		if u == nil {
			u = &state.RunUsage{Step: int64(sampleStep / time.Second)}
			r.runs[run.ID] = u
		}
		at := int(now.Sub(run.Started) / time.Second / time.Duration(u.Step))
		for at >= state.MaxRunSteps {
			coarser(u)
			at = int(now.Sub(run.Started) / time.Second / time.Duration(u.Step))
		}
		add(u, at, minuteOf(s, run.VC, now, samples))
		return true
	})
}

// minute is what all VMs of a run used at one time.
type minute struct {
	vms       int
	cores     int64 // thousandths
	memory    int64 // MiB
	throttled bool
	unknown   bool
}

func minuteOf(s *state.Snapshot, vc string, now time.Time, samples map[string]Sample) (m minute) {
	for _, vm := range s.VMsOf(vc) {
		if vm.Phase != state.Running {
			continue
		}
		m.vms++
		x, ok := samples[vm.ID]
		if !ok || now.Sub(x.At) > maxAge {
			m.unknown = true
			continue
		}
		m.cores += int64(1000 * max(0, x.Used))
		m.memory += max(0, x.Memory) >> 20
		m.throttled = m.throttled || x.Cap > 0 && x.Used >= throttledAt*x.Cap
	}
	return m
}

// add puts a minute into a step of a skyline: the most of a step's minutes counts. Steps before it that were not observed are unknown.
func add(u *state.RunUsage, at int, m minute) {
	for len(u.Cores) <= at {
		k := len(u.Cores)
		u.VMs, u.Cores, u.Memory = append(u.VMs, 0), append(u.Cores, 0), append(u.Memory, 0)
		if k < at {
			u.Unknown = append(u.Unknown, k)
			if k > 0 {
				u.VMs[k], u.Cores[k], u.Memory[k] = u.VMs[k-1], u.Cores[k-1], u.Memory[k-1]
			}
		}
	}
	if m.unknown {
		if !slices.Contains(u.Unknown, at) {
			u.Unknown = append(u.Unknown, at)
		}
		if at > 0 && u.Cores[at] == 0 {
			u.VMs[at], u.Cores[at], u.Memory[at] = u.VMs[at-1], u.Cores[at-1], u.Memory[at-1]
		}
		return
	}
	u.VMs[at], u.Cores[at], u.Memory[at] = max(u.VMs[at], m.vms), max(u.Cores[at], m.cores), max(u.Memory[at], m.memory)
	if m.throttled && !slices.Contains(u.Throttled, at) {
		u.Throttled = append(u.Throttled, at)
	}
}

// coarser makes steps twice as long.
func coarser(u *state.RunUsage) {
	n := (len(u.Cores) + 1) / 2
	for k := range n {
		a, b := 2*k, min(2*k+1, len(u.Cores)-1)
		u.VMs[k], u.Cores[k], u.Memory[k] = max(u.VMs[a], u.VMs[b]), max(u.Cores[a], u.Cores[b]), max(u.Memory[a], u.Memory[b])
	}
	u.VMs, u.Cores, u.Memory, u.Step = u.VMs[:n], u.Cores[:n], u.Memory[:n], 2*u.Step
	for _, list := range []*[]int{&u.Throttled, &u.Unknown} {
		for i := range *list {
			(*list)[i] /= 2
		}
		*list = slices.Compact(*list)
	}
}

// ended returns the skylines of runs that have ended, and forgets those of runs that are gone.
func (r *recorder) ended(s *state.Snapshot) (put state.RunUsagePut) {
	there := map[string]bool{}
	s.EachRun(func(run *state.Run) bool {
		there[run.ID] = true
		if u := r.runs[run.ID]; u != nil && !run.Ended.IsZero() {
			put.Runs = append(put.Runs, state.RunUsageOf{Run: run.ID, Usage: *u})
		}
		return len(put.Runs) < maxPut
	})
	if len(put.Runs) < maxPut {
		for id := range r.runs {
			if !there[id] {
				delete(r.runs, id)
			}
		}
	}
	return put
}
