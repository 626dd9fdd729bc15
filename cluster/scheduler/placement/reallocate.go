package placement

import (
	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// Reallocate divides the CPU of all hosts again among the VMs that run, where they are. It returns nil where the shares in
// force are right.
func Reallocate(s *state.Snapshot) *state.Plan {
	p := NewProblem(s, "")
	p.ClampToUsage()
	if len(p.Groups) == 0 {
		return nil
	}
	for i := range p.Groups {
		p.Groups[i].MinYield = max(p.Refs[i].VC.MinYield, min(1, capacity.MinCPU/p.Groups[i].CPU))
	}
	p.raiseToGrants(func(ref *GroupRef) float64 { return ref.Granted })
	sol, err := allocator.Allocate(p.Problem)
	if err != nil {
		return nil
	}
	allocs, affected := p.Allocations(sol.CPU, p.places(), "")
	if len(allocs) == 0 {
		return nil
	}
	return &state.Plan{Basis: s.Index(), Verb: "reallocated", Allocations: allocs, AffectedHosts: SortedNames(affected), Text: "shares follow what runs"}
}

// places returns the hosts of VMs.
func (p *Problem) places() [][]int {
	out := make([][]int, len(p.Groups))
	for i := range p.Groups {
		out[i] = p.Groups[i].Hosts
	}
	return out
}
