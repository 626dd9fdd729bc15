package rightsizing

import (
	"maps"
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// Preempt plans a preemption: an elastic VM is stopped and starts again once there is room; a whole VC goes back to the queue,
// at the place it had. nil: there is nothing to preempt any more.
func Preempt(s *state.Snapshot, p Preemption, now time.Time) *state.Plan {
	vc, ok := s.VC(p.VC)
	if !ok || vc.Goal != state.GoalRun || !vc.Admitted {
		return nil
	}
	plan := &state.Plan{Basis: s.Index(), Verb: "preempted", VCVersion: vc.ModifyIndex}
	affected := map[string]bool{}
	for _, vm := range s.VMsOf(vc.ID) {
		if p.VM != "" && vm.ID != p.VM || vm.Goal != state.GoalRun {
			continue
		}
		if p.VM != "" && vm.MovingTo != "" {
			return nil
		}
		g, _ := vc.GroupOf(vm)
		if p.VM != "" && g.Role != "elastic" {
			return nil
		}
		vm = vm.Leaving(g, state.GoalStop)
		vm.Reason, vm.Target, vm.PreemptedAt = "preempted: "+p.Reason, 0, now.Unix()
		plan.VMs = append(plan.VMs, vm)
		affected[vm.Host] = true
		plan.Text = "VM " + vm.Name + " is preempted: " + p.Reason
	}
	if len(plan.VMs) == 0 {
		return nil
	}
	if p.VM == "" {
		vc.Admitted, vc.QueuedAt, vc.Groups = false, vc.CreatedAt, state.Declared(vc.Groups)
		plan.Text = "it goes back to the queue: " + p.Reason
		vc.Decision = state.Decision{At: now, Preempted: true, Summary: "preempted: " + p.Reason, Basis: s.Index()}
	}
	plan.VC, plan.AffectedHosts = &vc, slices.Sorted(maps.Keys(affected))
	return plan
}
