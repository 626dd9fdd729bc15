package admission

import (
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// StopVM answers a request to stop one VM and to keep it so: always yes.
func StopVM(s *state.Snapshot, vc state.VC, vm state.VM, by string) Answer {
	g, _ := vc.GroupOf(vm)
	return oneVM(s, vc, vm.StopAlone(g, by), "stop requested: it stays stopped, and its memory is kept")
}

// RestartVM answers a request to stop one VM and to start it again on its host: always yes.
func RestartVM(s *state.Snapshot, vc state.VC, vm state.VM, by string) Answer {
	g, _ := vc.GroupOf(vm)
	return oneVM(s, vc, vm.Restarting(g, "restarted by "+by, false), "restart requested")
}

// ResetVM answers a request to reset one VM: always yes. Its id is that of the operation.
func ResetVM(s *state.Snapshot, vc state.VC, vm state.VM) Answer {
	vm.Order.Reset = state.Reset{State: state.ResetAsked}
	return oneVM(s, vc, vm, "reset requested")
}

// oneVM is the plan that changes one VM and nothing else.
func oneVM(s *state.Snapshot, vc state.VC, vm state.VM, text string) Answer {
	return Answer{VM: &vm, Plan: &state.Plan{Basis: s.Index(), Verb: "vm-changed", VC: &vc, VCVersion: vc.ModifyIndex,
		VMs: placement.Changed(s, []state.VM{vm}), AffectedHosts: []string{vm.Host}, Text: text}}
}

// StartVM answers a request to start one VM that does not run, beside those of its VC that do.
func StartVM(s *state.Snapshot, vc state.VC, vm state.VM, env placement.Env) Answer {
	was := vm
	g, _ := vc.GroupOf(vm)
	vm.Order, vm.ChargedMemory = state.VMOrder{}, 0
	if !placement.KeepsPlace(s, g) {
		vm.Host = ""
	}
	lost := []state.VM{vm}
	p := newProblem(s, vc.ID)
	p.Release(was)
	vc = placement.WithoutEstimates(vc, lost)
	p.CloseHosts(env.Unavailable)
	chosen := p.addLost(s, vc, lost)
	p.Bar(s, env)
	p.ClampToUsage() // its other VMs stay as they are
	p.applyMargin(s, vc.ID, env, &vc)
	adm, _ := p.admitBeside(s, &vc, lost, env)
	d := decision(p, adm, s.Index(), env)
	if !adm.Admitted {
		return Answer{Decision: d}
	}
	plan := restartPlan(s, p, adm.Solution, vc, chosen, d)
	plan.Text = "start requested: " + d.Summary
	if was.Host != "" {
		hosts := map[string]bool{was.Host: true}
		for _, name := range plan.AffectedHosts {
			hosts[name] = true
		}
		plan.AffectedHosts = placement.SortedNames(hosts)
	}
	return Answer{Plan: plan, Decision: d, VM: &plan.VMs[0]}
}
