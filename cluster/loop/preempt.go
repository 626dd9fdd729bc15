package loop

import (
	"time"

	"evenkeel/cluster/state"
)

// preemptedFor is how long a preempted VM waits at least before it is started again.
const preemptedFor = 10 * time.Minute

// Preempt plans a preemption: an elastic VM is stopped and starts again once there is room; a whole VC goes back to the queue,
// at the place it had. nil: there is nothing to preempt any more.
func Preempt(s *state.Snapshot, p Preemption, env Env) *state.Plan {
	vc, ok := s.VC(p.VC)
	if !ok || vc.Goal != state.GoalRun || !vc.Admitted {
		return nil
	}
	plan := &state.Plan{Basis: s.Index(), Verb: "preempted", VCVersion: vc.ModifyIndex}
	old := vc
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
		vm = leaving(vm, old, state.GoalStop)
		vm.Reason, vm.Target, vm.PreemptedAt = "preempted: "+p.Reason, 0, env.Now.Unix()
		plan.VMs = append(plan.VMs, vm)
		affected[vm.Host] = true
		plan.Text = "VM " + vm.Name + " is preempted: " + p.Reason
	}
	if len(plan.VMs) == 0 {
		return nil
	}
	if p.VM == "" {
		vc.Admitted, vc.QueuedAt, vc.Groups = false, vc.CreatedAt, declared(vc.Groups)
		plan.Text = "it goes back to the queue: " + p.Reason
		vc.Decision = state.Decision{At: env.Now, Preempted: true, Summary: "preempted: " + p.Reason, Basis: s.Index()}
	}
	plan.VC, plan.AffectedHosts = &vc, sorted(affected)
	return plan
}

// ComesBack says whether a VM that was preempted has been stopped, and has waited for long enough.
func ComesBack(vm *state.VM, now time.Time) bool {
	return vm.PreemptedAt > 0 && vm.Goal == state.GoalStop && vm.Phase == state.Stopped && now.Sub(time.Unix(vm.PreemptedAt, 0)) >= preemptedFor
}
