package placement

import (
	"fmt"

	"evenkeel/cluster/state"
)

// Misplaced returns the running VMs of a VC that are where a rule of its new form keeps them from, by id, each with the rule that it
// breaks there.
func Misplaced(s *state.Snapshot, vc state.VC) map[string]string {
	p := NewProblem(s, vc.ID)
	byGroup := map[string][]state.VM{}
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.ConsumesResources() && vm.Goal == state.GoalRun {
			byGroup[vm.Group] = append(byGroup[vm.Group], vm)
		}
	}
	for _, g := range vc.Groups {
		if vms := byGroup[g.Name]; len(vms) > 0 && g.Count > 0 {
			p.add(vc, g, vms, 0, false)
		}
	}
	hosts := make([][]int, len(p.Groups))
	for i := range hosts {
		hosts[i] = p.Groups[i].Hosts
	}
	out := map[string]string{}
	for _, b := range p.broken(hosts, func(vm state.VM) bool { return vm.VC == vc.ID }) {
		vm := p.Refs[b.Group].VMs[b.VM]
		out[vm.ID] = fmt.Sprintf("on host %s: %s", vm.Host, b.Text)
	}
	return out
}
