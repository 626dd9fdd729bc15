package admission

import (
	"fmt"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Change answers a request to run a VC as another spec has it, as one decision: verb is apply, edit or rollback. restart has the ids of
// its running VMs that must stop and start again for that. It is refused unless all of it fits once they start again. They are stopped
// now, and start as preempted VMs do: once their hosts report that they are stopped, where there is room.
func Change(s *state.Snapshot, vc state.VC, verb string, restart map[string]bool, env placement.Env) Answer {
	if vc.Goal != state.GoalRun {
		return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: pastTense[verb], VC: &vc, VCVersion: vc.ModifyIndex,
			VMs: placement.VMsToRemove(s, vc), Text: "changed; it holds from its next start"}}
	}
	if len(restart) == 0 {
		return place(s, vc, vc.ModifyIndex, verb, env)
	}
	removed := placement.VMsToRemove(s, vc)
	wanted := placement.WantedVMs(s, vc, env)
	var staying, stopping []state.VM
	after := make([]state.VM, 0, len(wanted))
	old, _ := s.VC(vc.ID)
	for _, vm := range wanted {
		if !restart[vm.ID] {
			staying, after = append(staying, vm), append(after, vm)
			continue
		}
		g, _ := old.GroupOf(vm)
		gone := vm
		gone.Phase, gone.Goal, gone.MovingTo = state.Stopped, state.GoalStop, ""
		if next, _ := vc.GroupOf(vm); !placement.KeepsPlace(s, next) {
			gone.Host = ""
		}
		after = append(after, gone)
		vm = vm.Leaving(g, state.GoalStop)
		vm.Reason, vm.Target, vm.PreemptedAt = "restarts: its virtual cluster was changed", 0, state.RestartRequested
		stopping = append(stopping, vm)
	}
	later := env
	later.Lists = withoutOwn(s, env.Lists)
	then := problemOf(s, vc, later, after, removed)
	adm := then.admitNew(after)
	d := decision(then, adm, s.Index(), env)
	if !adm.Admitted {
		return Answer{Decision: d}
	}
	// What holds until they have stopped: they keep their caps and their memory.
	leaving := append(removed, stopping...)
	p := problemOf(s, vc, env, staying, leaving)
	now := allocator.Admission{Admitted: true}
	if len(staying) > 0 {
		if now = p.admitNew(staying); !now.Admitted {
			return Answer{Decision: decision(p, now, s.Index(), env)}
		}
	}
	d.Summary = fmt.Sprintf("%s; %d of its VMs restart", d.Summary, len(stopping))
	vc.Decision, vc.Admitted = d, true
	vc = placement.WithoutEstimates(vc, after)
	plan := &state.Plan{Basis: s.Index(), VC: &vc, VMs: placement.Changed(s, leaving), AffectedHosts: hostsOf(leaving)}
	if len(staying) > 0 {
		plan = planOf(s, p, now.Solution, vc, leaving)
	}
	plan.Verb, plan.VCVersion, plan.Text = pastTense[verb], vc.ModifyIndex, d.Summary
	return Answer{Decision: d, Plan: plan}
}

// withoutOwn does not count the hosts on which the VMs run now: they will have stopped there.
func withoutOwn(s *state.Snapshot, lists func(vm state.VM) []string) func(vm state.VM) []string {
	if lists == nil {
		return nil
	}
	return func(vm state.VM) []string {
		now, _ := s.VM(vm.ID)
		return slices.DeleteFunc(slices.Clone(lists(vm)), func(host string) bool { return host == now.Host || host == now.MovingTo })
	}
}

// hostsOf VMs, in order.
func hostsOf(vms []state.VM) []string {
	set := map[string]bool{}
	for _, vm := range vms {
		set[vm.Host] = true
	}
	return placement.SortedNames(set)
}
