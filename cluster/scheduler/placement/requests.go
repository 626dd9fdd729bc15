package placement

import (
	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// Request is a VC that waits, in the terms of the allocator.
type Request struct {
	allocator.Request
	// Bound: some of its VMs can start on one host only, on which their disks lie. The allocator's request has no groups then.
	Bound bool
	// Ruled: some of its groups have rules.
	Ruled bool
}

// Requests returns VCs that wait as requests to the allocator, with their labels and rules, in the same order.
func Requests(s *state.Snapshot, waiting []state.VC, env Env) []Request {
	empty := Problem{} // no host: nothing of them runs
	s.EachHost(func(h *state.Host) bool {
		empty.overhead = max(empty.overhead, h.VMOverhead)
		return true
	})
	if m, ok := s.Meta(); ok {
		empty.minMemory = m.Settings.MinMemory
	}
	env.NewID = func() string { return "" } // no VM is made
	out := make([]Request, len(waiting))
	for i, vc := range waiting {
		p := empty
		byGroup := map[string][]state.VM{}
		for _, vm := range WantedVMs(s, vc, env) {
			byGroup[vm.Group] = append(byGroup[vm.Group], vm)
			out[i].Bound = out[i].Bound || vm.Host != ""
		}
		if out[i].Bound {
			continue
		}
		for _, g := range vc.Groups {
			if vms := byGroup[g.Name]; len(vms) > 0 {
				p.add(vc, g, vms, vc.MinYield, true)
			}
		}
		out[i].Request = allocator.Request{Groups: p.Groups, Rules: p.Labels(), Priority: vc.Priority}
		out[i].Ruled = p.Rules() != nil
	}
	return out
}
