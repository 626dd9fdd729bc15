package migration

import (
	"fmt"
	"slices"
)

// HostFailure is what becomes of the VMs of a host that dies: they start again on the others, and no other VM is moved for them.
type HostFailure struct {
	Host     int
	VMs      int     // that have to start again
	MinYield float64 // least of all hosts once they have; of those that could start
	Unplaced []Refusal
}

// Refusal of a VM that finds no room.
type Refusal struct {
	Group, VM int
	Cause     Cause
	Why       string
	Advice    []Advice
}

// FailoverCapacity says for each host whether the others can run its VMs if it fails (N+1). restarts says which VMs of a
// group start again; nil: all do. A host's VMs start one after another, those first that are hardest to place. A VM without room
// is left out, and the next ones are still tried.
func FailoverCapacity(p Problem, restarts func(group, vm int) bool) ([]HostFailure, error) {
	e, err := newEmptying(p, DrainRequest{})
	if err != nil {
		return nil, fmt.Errorf("spare room: %w", err)
	}
	f := e.f
	s := newPlacementTable(f)
	yields, after := make([]float64, len(f.p.Hosts)), make([]float64, len(f.p.Hosts))
	for j := range yields {
		yields[j] = s.yield(j)
	}
	out := make([]HostFailure, len(f.p.Hosts))
	for j := range out {
		d := &out[j]
		d.Host = j
		was := s.open[j]
		s.open[j] = false
		var again []int
		vms := slices.Clone(s.on[j])
		slices.Sort(vms)
		for _, vm := range vms {
			if g := f.group[vm]; restarts == nil || restarts(g, vm-f.first[g]) {
				again = append(again, vm)
			}
			s.move(vm, -1)
		}
		d.VMs = len(again)
		s.start(d, again)
		copy(after, yields)
		after[j] = 1
		for _, change := range s.done {
			if k := s.at[change.vm]; k >= 0 {
				after[k] = s.yield(k)
			}
		}
		d.MinYield = slices.Min(after)
		s.undo(0)
		s.open[j] = was
	}
	return out, nil
}

// start places the VMs of a host that died, as many as it can.
func (s *placementTable) start(d *HostFailure, again []int) {
	var out []int
	for {
		_, stuck := s.any(again)
		if stuck == nil {
			break
		}
		out = append(out, stuck...)
		again = slices.DeleteFunc(again, func(vm int) bool { return slices.Contains(stuck, vm) })
	}
	for _, vm := range out { // VMs that failed only because others were tried first
		if to, _ := s.hostFor([]int{vm}, manners[0]); to >= 0 {
			s.move(vm, to)
			continue
		}
		r := Refusal{Group: s.f.group[vm], VM: vm - s.f.first[s.f.group[vm]]}
		r.Cause, r.Why, r.Advice = s.refusal(vm, nil)
		d.Unplaced = append(d.Unplaced, r)
	}
}
