package admission

import (
	"fmt"
	"slices"
	"sort"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Restart plans the start of VMs that were lost with their host, or preempted: of the first VC, by priority, then age, some of
// whose VMs fit. Restartable VMs start wherever they fit, the others on their own host once it is back. A VM that could not be
// restarted on its host counts as lost, and may start anywhere. If none fits, the plan records why, if that is news. The plan is
// nil if there is nothing to do.
//
// Restart needs no proof of its own: a VM is lost only once it is proved that no host runs it. VCs whose ids are in refused are left out.
func Restart(s *state.Snapshot, env placement.Env, refused ...string) *state.Plan {
	waiting, lostOf := lostVCs(s, env)
	var news *state.Plan
	for _, vc := range waiting {
		if slices.Contains(refused, vc.ID) {
			continue
		}
		lost := lostOf[vc.ID]
		plan, d := restart(s, vc, lost, env)
		for i := 0; plan == nil && len(lost) > 1 && i < min(len(lost), maxTries); i++ {
			plan, _ = restart(s, vc, lost[i:i+1], env)
		}
		if plan != nil {
			return plan
		}
		if news == nil && vc.Decision.Summary != d.Summary && lost[0].PreemptedAt == 0 {
			waits := vc
			waits.Decision = d
			news = &state.Plan{Basis: s.Index(), Verb: "waiting", VC: &waits, VCVersion: vc.ModifyIndex, Text: d.Summary}
		}
	}
	return news
}

// lostVCs returns the VCs with VMs that may be started again now, by priority, then age, and these VMs by the id of their VC.
func lostVCs(s *state.Snapshot, env placement.Env) (vcs []state.VC, lost map[string][]state.VM) {
	lost = map[string][]state.VM{}
	for _, vc := range s.VCs() {
		if vc.Goal != state.GoalRun || !vc.Admitted {
			continue
		}
		if vms := lostVMs(s, vc, env); len(vms) > 0 {
			vcs = append(vcs, vc)
			lost[vc.ID] = vms
		}
	}
	sortQueue(vcs)
	return vcs, lost
}

// lostVMs returns the lost VMs of a VC that may be started again now, the core ones first. A VM that is not restartable waits
// for its own host.
func lostVMs(s *state.Snapshot, vc state.VC, env placement.Env) []state.VM {
	var out []state.VM
	for _, vm := range s.VMsOf(vc.ID) {
		back := ComesBack(&vm, env.Now)
		if (vm.Phase != state.Lost || vm.Goal != state.GoalRun) && !back {
			continue
		}
		g, _ := vc.GroupOf(vm)
		switch h, there := s.Host(vm.Host); {
		case (back || vc.Restartable() || vm.Order.Elsewhere) && !placement.KeepsPlace(s, g):
			vm.Host = ""
		case !there || h.Lost.Proof != "" || env.Unavailable[vm.Host] != "":
			continue
		}
		out = append(out, vm)
	}
	sort.SliceStable(out, func(a, b int) bool {
		x, _ := vc.GroupOf(out[a])
		y, _ := vc.GroupOf(out[b])
		return x.Role != "elastic" && y.Role == "elastic"
	})
	return out
}

// restart plans the start of these lost VMs of vc, all or none.
func restart(s *state.Snapshot, vc state.VC, lost []state.VM, env placement.Env) (*state.Plan, state.Decision) {
	p := newProblem(s, vc.ID)
	vc = placement.WithoutEstimates(vc, lost)
	p.CloseHosts(env.Unavailable)
	chosen := p.addLost(s, vc, lost)
	p.Bar(s, env)
	p.ClampToUsage()                                                                       // its other VMs stay as they are
	if !slices.ContainsFunc(lost, func(vm state.VM) bool { return vm.PreemptedAt == 0 }) { // VMs that lost their host are not new
		p.applyMargin(s, vc.ID, env, &vc)
	}
	adm := p.admitNew(lost)
	d := decision(p, adm, s.Index(), env)
	why := "lost with their host"
	if lost[0].PreemptedAt > 0 {
		why = "preempted"
	}
	if lost[0].Order.Elsewhere {
		why = "stopped to restart"
	}
	if !adm.Admitted {
		d.Summary = fmt.Sprintf("%d VMs were %s and wait for room: %s", len(lost), why, d.Summary)
		return nil, d
	}
	d.Summary = fmt.Sprintf("%d VMs that were %s are started again: %s", len(lost), why, d.Summary)
	vc.Decision = d
	return restartPlan(s, p, adm.Solution, vc, chosen, d), d
}

// addLost adds a VC whose lost VMs are to start beside those that run. It returns the lost ones by id.
func (p *problem) addLost(s *state.Snapshot, vc state.VC, lost []state.VM) map[string]state.VM {
	chosen := map[string]state.VM{}
	var added []state.VM
	for _, vm := range lost {
		chosen[vm.ID] = vm
	}
	for _, g := range vc.Groups {
		var vms []state.VM
		for _, vm := range s.VMsOf(vc.ID) {
			if vm.Group != g.Name {
				continue
			}
			if again, is := chosen[vm.ID]; is {
				vms = append(vms, again)
			} else if vm.ConsumesResources() && vm.ToRun() {
				vms = append(vms, vm)
			}
		}
		if len(vms) > 0 {
			p.AddRequested(vc, g, vms)
			added = append(added, vms...)
		}
	}
	p.ChargeStopping(s, vc.ID, added)
	return chosen
}

// lostVC is a VC with VMs of it that are to start again.
type lostVC struct {
	vc  state.VC
	vms []state.VM
}

// lostBefore names the first VC, by priority, then age, whose lost VMs fit now, and would not fit beside wanted, VMs of vc that
// are to be placed; "" if there is none. VMs that were admitted once start again before others are admitted.
func lostBefore(s *state.Snapshot, vc state.VC, env placement.Env) string {
	waiting, lostOf := lostVCs(s, env)
	seen := 0
	for _, other := range waiting {
		lost := slices.DeleteFunc(lostOf[other.ID], func(vm state.VM) bool { return vm.PreemptedAt != 0 })
		if other.ID == vc.ID || len(lost) == 0 {
			continue
		}
		if seen++; seen > maxLost {
			break
		}
		if plan, _ := restart(s, other, lost, env); plan == nil {
			continue // it waits for room, whether vc is admitted or not
		}
		p, wanted := problemWith(s, vc, env, lostVC{other, lost})
		if !p.admit(wanted).Admitted {
			return other.Name
		}
	}
	return ""
}

func restartPlan(s *state.Snapshot, p *problem, sol allocator.Solution, vc state.VC, chosen map[string]state.VM, d state.Decision) *state.Plan {
	allocs, affected := p.Allocations(sol.CPU, sol.Hosts, vc.ID)
	var vms []state.VM
	for i, ref := range p.Refs {
		if ref.VC.ID != vc.ID {
			continue
		}
		for k, vm := range ref.Members() {
			if _, is := chosen[vm.ID]; !is {
				continue
			}
			vm.Host = p.Hosts[sol.Hosts[i][k]].Name
			vms = append(vms, vm.Start(ref.Group))
			affected[vm.Host] = true
		}
	}
	return &state.Plan{Basis: s.Index(), Verb: "restarted", VC: &vc, VCVersion: vc.ModifyIndex, VMs: vms,
		Allocations: allocs, AffectedHosts: placement.SortedNames(affected), Text: d.Summary}
}
