package admission

import (
	"fmt"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Change answers a request to run a VC as another spec has it, as one decision; verb is apply, edit or rollback. restart has the ids of
// its running VMs that must stop and start again. These keep their hosts, with their CPU and memory, but for those that must leave
// (mustLeave). If not all fit so, all that no disk binds may start elsewhere. Change refuses unless all fit once they start again.
func Change(s *state.Snapshot, vc state.VC, verb string, restart map[string]bool, env placement.Env) Answer {
	if vc.Goal != state.GoalRun {
		return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: pastTense[verb], VC: &vc, VCVersion: vc.ModifyIndex,
			VMs: placement.VMsToRemove(s, vc), Text: "changed; it holds from its next start"}}
	}
	if len(restart) == 0 {
		return place(s, vc, vc.ModifyIndex, verb, env)
	}
	leave := mustLeave(s, vc, restart, env)
	a := change(s, vc, verb, restart, leave, env)
	if a.Plan == nil && len(leave) < len(restart) {
		return change(s, vc, verb, restart, restart, env)
	}
	return a
}

// mustLeave returns those VMs of restart that cannot start again where they are: they move, a rule of vc keeps them from their host, or
// the host does not have the additional memory that they get, beside what is reserved and kept there. A VM that its disk binds to the
// host stays there all the same: see change.
func mustLeave(s *state.Snapshot, vc state.VC, restart map[string]bool, env placement.Env) map[string]bool {
	leave, grown := map[string]bool{}, map[string]int64{}
	misplaced, reserved := placement.Misplaced(s, vc), reservedBeside(s, &vc, env)
	old, _ := s.VC(vc.ID)
	for _, vm := range s.VMsOf(vc.ID) {
		if !restart[vm.ID] {
			continue
		}
		was, _ := old.GroupOf(vm)
		next, _ := vc.GroupOf(vm)
		h, _ := s.Host(vm.Host)
		more := max(0, vm.Restarting(was, "", false).Start(next).ChargeOn(h, next).Memory-vm.ChargeOn(h, was).Memory)
		if vm.MovingTo != "" || misplaced[vm.ID] != "" || more > 0 && grown[vm.Host]+more > s.LedgerOf(vm.Host).Free().Memory-reserved[vm.Host].Memory {
			leave[vm.ID] = true
			continue
		}
		grown[vm.Host] += more
	}
	return leave
}

// change is Change for VMs that restart, those in leave wherever there is room.
func change(s *state.Snapshot, vc state.VC, verb string, restart, leave map[string]bool, env placement.Env) Answer {
	removed := placement.VMsToRemove(s, vc)
	wanted := placement.WantedVMs(s, vc, env)
	var staying, stopping []state.VM
	after := make([]state.VM, 0, len(wanted))
	old, _ := s.VC(vc.ID)
	const why = "restarts: its virtual cluster was changed"
	for _, vm := range wanted {
		g, _ := old.GroupOf(vm)
		next, _ := vc.GroupOf(vm)
		switch {
		case !restart[vm.ID]:
			staying, after = append(staying, vm), append(after, vm)
			continue
		case !leave[vm.ID] || vm.MovingTo == "" && placement.KeepsPlace(s, next):
			vm = vm.Restarting(g, why, false)
			staying, after = append(staying, vm), append(after, vm)
			continue
		}
		gone := vm
		gone.Phase, gone.Goal, gone.MovingTo = state.Stopped, state.GoalStop, ""
		if !placement.KeepsPlace(s, next) {
			gone.Host = ""
		}
		after = append(after, gone)
		stopping = append(stopping, vm.Restarting(g, why, true))
	}
	later := env
	later.Lists = withoutOwn(s, env.Lists)
	then := problemOf(s, vc, later, after, removed)
	adm, _ := then.admitBeside(s, &vc, after, later)
	d := decision(then, adm, s.Index(), env)
	if !adm.Admitted {
		return Answer{Decision: d}
	}
	// Until they have stopped, these VMs keep their caps and their memory.
	leaving := append(removed, stopping...)
	p := problemOf(s, vc, env, staying, leaving)
	now := allocator.Admission{Admitted: true}
	if len(staying) > 0 {
		if now, _ = p.admitBeside(s, &vc, staying, env); !now.Admitted {
			return Answer{Decision: decision(p, now, s.Index(), env)}
		}
	}
	d.Summary = fmt.Sprintf("%s; %d of its VMs restart", d.Summary, len(restart))
	if len(stopping) > 0 {
		d.Summary += fmt.Sprintf(", %d of them where there is room", len(stopping))
	}
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
