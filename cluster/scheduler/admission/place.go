package admission

import (
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Answer is the answer to a request: a plan to propose, or a refusal with its reasons.
type Answer struct {
	Plan     *state.Plan // nil if refused
	Decision state.Decision
	// Queued: the plan only records the VC, it does not fit now.
	Queued bool
	// Unchanged is the VC where it already is what the request asks for: there is nothing to plan.
	Unchanged *state.VC
	// VM is the one that the request is about, as the plan makes it; nil: the whole VC.
	VM *state.VM
}

// Create answers a request for a new VC. vc is complete (ids and defaults filled in) except for its allocations.
func Create(s *state.Snapshot, vc state.VC, env placement.Env) Answer {
	vc.Goal = state.GoalRun
	return recordRun(s, place(s, vc, 0, "create", env))
}

// Start answers a request to run a VC that is stopped or has VMs that failed or were stopped alone.
func Start(s *state.Snapshot, vc state.VC, env placement.Env) Answer {
	vc.Goal, env.StartStopped = state.GoalRun, true
	return recordRun(s, place(s, vc, vc.ModifyIndex, "start", env))
}

// Scale answers a request to run a VC with other groups than it has now. The
// VC keeps its name and group names; counts and needs may differ.
func Scale(s *state.Snapshot, vc state.VC, env placement.Env) Answer {
	if vc.Goal != state.GoalRun {
		return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: "scaled", VC: &vc, VCVersion: vc.ModifyIndex,
			VMs: placement.VMsToRemove(s, vc), Text: "size and needs changed; they hold from its next start"}}
	}
	return place(s, vc, vc.ModifyIndex, "scale", env)
}

// Consider returns what admission would decide on a VC now, without a plan.
func Consider(s *state.Snapshot, vc state.VC, env placement.Env) state.Decision {
	p, wanted := problemWith(s, vc, env)
	adm, _ := p.admitBeside(s, &vc, wanted, env)
	return decision(p, adm, s.Index(), env)
}

// problemWith is the problem of everything that runs, of vc in its new form, and of the lost VMs that are to start beside it.
func problemWith(s *state.Snapshot, vc state.VC, env placement.Env, beside ...lostVC) (*problem, []state.VM) {
	wanted := placement.WantedVMs(s, vc, env)
	return problemOf(s, vc, env, wanted, placement.VMsToRemove(s, vc), beside...), wanted
}

// problemOf is problemWith for a VC that is to have the VMs wanted, and whose VMs leaving are on their way out.
func problemOf(s *state.Snapshot, vc state.VC, env placement.Env, wanted, leaving []state.VM, beside ...lostVC) *problem {
	skip := []string{vc.ID}
	for _, b := range beside {
		skip = append(skip, b.vc.ID)
	}
	p := newProblem(s, skip...)
	p.CloseHosts(env.Unavailable)
	if env.StartStopped {
		for _, vm := range s.VMsOf(vc.ID) {
			p.Release(vm)
		}
	}
	vc = placement.WithoutEstimates(vc, wanted)
	byGroup := map[string][]state.VM{}
	for _, vm := range wanted {
		byGroup[vm.Group] = append(byGroup[vm.Group], vm)
	}
	for _, g := range vc.Groups {
		if vms := byGroup[g.Name]; len(vms) > 0 {
			p.AddRequested(vc, g, vms)
		}
	}
	for _, vm := range leaving {
		p.ChargeLeaving(vm)
	}
	p.ChargeStopping(s, vc.ID, wanted, leaving)
	for _, b := range beside {
		p.addLost(s, placement.WithoutEstimates(b.vc, b.vms), b.vms)
	}
	p.Bar(s, env)
	p.SubtractReserves()
	p.applyMargin(s, vc.ID, env, &vc)
	return p
}

// place asks admission for vc and turns the answer into a plan.
func place(s *state.Snapshot, vc state.VC, version uint64, verb string, env placement.Env) Answer {
	p, wanted := problemWith(s, vc, env)
	adm, claimed := p.admitBeside(s, &vc, wanted, env)
	if adm.Admitted {
		if first := lostBefore(s, vc, env); first != "" {
			adm = allocator.Admission{Asked: adm.Asked, Summary: "virtual cluster " + first + " lost VMs with their host, which start first and would not fit beside it"}
		}
	}
	d := decision(p, adm, s.Index(), env)
	if !adm.Admitted && !adm.NeverFits && env.Advise != nil {
		if text := env.Advise(s, vc); text != "" {
			d.Advice = append(d.Advice, text)
		}
	}
	vc.Decision = d
	if !adm.Admitted {
		wait := vc.OnFull == state.Queue && !adm.NeverFits && (!state.ChangesSpec(verb) || !vc.Admitted) && !anyRunning(s, vc)
		if !wait {
			return Answer{Decision: d}
		}
		vc.Admitted = false
		if vc.QueuedAt.IsZero() {
			vc.QueuedAt = env.Now // a VC that waits already keeps its place
		}
		return Answer{Decision: d, Queued: true, Plan: &state.Plan{Basis: s.Index(), Verb: "queued", VC: &vc, VCVersion: version,
			VMs: placement.Changed(s, withoutOrders(s, vc, env)), Text: "queued: " + d.Summary}}
	}
	vc = placement.WithoutEstimates(vc, wanted)
	vc.Admitted, vc.QueuedAt = true, time.Time{}
	plan := planOf(s, p, adm.Solution, vc, placement.VMsToRemove(s, vc))
	plan.Verb, plan.VCVersion, plan.Text = pastTense[verb], version, d.Summary
	if plan.Occurrence = claimed.ID; claimed.ID != "" && claimed.State == state.RunningNow {
		plan.Occurrence = "" // the VC is already its run
	}
	return Answer{Decision: d, Plan: plan}
}

// planOf is the plan that puts a solution into force: vc in its new form, with its VMs where the solution has them, and those that
// leave.
func planOf(s *state.Snapshot, p *problem, sol allocator.Solution, vc state.VC, leaving []state.VM) *state.Plan {
	allocs, affected := p.Allocations(sol.CPU, sol.Hosts, vc.ID)
	vms := leaving
	for i, ref := range p.Refs {
		if ref.VC.ID != vc.ID {
			continue
		}
		for k, vm := range ref.Members() {
			vm.Host = p.Hosts[sol.Hosts[i][k]].Name
			vms = append(vms, vm.Start(ref.Group))
			affected[vm.Host] = true
		}
	}
	for _, vm := range vms {
		affected[vm.Host] = true
	}
	return &state.Plan{Basis: s.Index(), VC: &vc, VMs: placement.Changed(s, vms), Allocations: allocs, AffectedHosts: placement.SortedNames(affected)}
}

// withoutOrders returns the VMs of vc that were stopped alone, for a VC whose start has to wait. They will start with the VC, so their
// hosts keep no memory for them. It returns none unless env.StartStopped.
func withoutOrders(s *state.Snapshot, vc state.VC, env placement.Env) (vms []state.VM) {
	for _, vm := range s.VMsOf(vc.ID) {
		if env.StartStopped && vm.Order.StoppedBy != "" && vm.Goal == state.GoalStop {
			g, _ := vc.GroupOf(vm)
			vms = append(vms, vm.Leaving(g, state.GoalStop))
		}
	}
	return vms
}

// anyRunning says whether some VM of vc runs: then it is not one that waits to run.
func anyRunning(s *state.Snapshot, vc state.VC) bool {
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.ConsumesResources() && vm.Goal == state.GoalRun {
			return true
		}
	}
	return false
}

var pastTense = map[string]string{"create": "created", "start": "started", "scale": "scaled", "admit": "admitted",
	"apply": "changed", "edit": "changed", "rollback": "rolled-back"}

// Stop answers a request to stop a VC: always yes.
func Stop(s *state.Snapshot, vc state.VC, _ placement.Env) Answer {
	return leave(s, vc, state.GoalStop, "stopped", "stop requested")
}

// Delete answers a request to delete a VC: always yes.
func Delete(s *state.Snapshot, vc state.VC, _ placement.Env) Answer {
	return leave(s, vc, state.GoalDelete, "deleting", "deletion requested")
}

func leave(s *state.Snapshot, vc state.VC, goal state.Goal, verb, text string) Answer {
	old := vc
	vc.Goal, vc.Admitted, vc.QueuedAt, vc.Groups = goal, false, time.Time{}, state.Declared(vc.Groups)
	affected := map[string]bool{}
	var vms []state.VM
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Goal == state.GoalDelete {
			continue
		}
		g, _ := old.GroupOf(vm)
		vms = append(vms, vm.Leaving(g, goal))
		affected[vm.Host] = true
	}
	return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: verb, VC: &vc, VCVersion: old.ModifyIndex,
		VMs: placement.Changed(s, vms), AffectedHosts: placement.SortedNames(affected), Text: text}}
}
