package moves

import (
	"fmt"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// StillValid says why a plan that was made earlier is not valid any more; "" = it is: its VMs are where they were, its hosts
// take VMs, and it raises the minimum yield.
func (f *Fleet) StillValid(p state.MovePlan) string {
	place := map[string]string{}
	for _, step := range p.Steps {
		vm, ok := f.s.VM(step.VM)
		at := f.Host(step.To)
		from, moves := place[step.VM]
		if !moves {
			from = vm.Host
		}
		switch {
		case !ok || vm.Goal != state.GoalRun || vm.Phase != state.Running:
			return "VM " + step.VMName + " does not run any more"
		case f.pinned[step.VM].why != "":
			return "VM " + step.VMName + " " + f.pinned[step.VM].why
		case from != step.From:
			return "VM " + step.VMName + " runs on host " + vm.Host + " now"
		case at < 0 || f.Hosts[at].Cordoned:
			return "host " + step.To + " takes no VMs now"
		}
		place[step.VM] = step.To
	}
	lowest := 1.0
	for i := range f.groups {
		lowest = min(lowest, f.groups[i].group.Yield())
	}
	_, with, err := f.Outcome(p)
	if err != nil {
		return err.Error()
	}
	if with < min(p.MinYieldAfter, 1)*(1-1e-6) && with <= lowest*(1+1e-6) {
		return fmt.Sprintf("the minimum yield would go from %.4f to %.4f", lowest, with)
	}
	return ""
}

// Outcome returns the minimum yield after a new division of the CPU: without the moves of a plan that have not begun, and with
// them.
func (f *Fleet) Outcome(p state.MovePlan) (without, with float64, err error) {
	place := map[string]int{}
	for _, step := range p.Steps {
		if at := f.Host(step.To); at >= 0 && !step.State.Ended() && step.State != state.StepMoving {
			place[step.VM] = at
		}
	}
	q := allocator.Problem{}
	for _, h := range f.Hosts {
		q.Hosts = append(q.Hosts, allocator.Host{Name: h.Name, CPU: h.CPU, Memory: allocator.GreatestNumber})
	}
	for _, g := range f.Groups {
		q.Groups = append(q.Groups, allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, CPU: g.CPU, Memory: g.Memory, Hosts: g.Hosts})
	}
	sol, err := allocator.Allocate(q)
	if err != nil {
		return 0, 0, fmt.Errorf("share CPU: %w", err)
	}
	without = sol.MinYield
	for i := range q.Groups {
		hosts := slices.Clone(q.Groups[i].Hosts)
		for k := range hosts {
			if at, moves := place[f.VM(i, k).ID]; moves {
				hosts[k] = at
			}
		}
		q.Groups[i].Hosts = hosts
	}
	if sol, err = allocator.Allocate(q); err != nil {
		return 0, 0, fmt.Errorf("share CPU: %w", err)
	}
	return without, sol.MinYield, nil
}

// Needs is the log index of the last change of what a VC needs.
func Needs(s *state.Snapshot) uint64 {
	last := uint64(0)
	s.EachVC(func(vc *state.VC) bool { last = max(last, vc.ModifyIndex); return true })
	return last
}
