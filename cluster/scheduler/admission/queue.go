package admission

import (
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Queue returns the VCs that wait, in the order in which they are tried. Those of a suspended tenant are not tried: nothing of it is
// started.
func Queue(s *state.Snapshot) []state.VC {
	var waiting []state.VC
	for _, vc := range s.VCs() {
		// The VMs of a VC that was preempted must have stopped first.
		if vc.Goal == state.GoalRun && !vc.Admitted && !slices.ContainsFunc(s.VMsOf(vc.ID), func(vm state.VM) bool { return vm.ConsumesResources() }) {
			tenant, _ := state.SplitName(vc.Name)
			if t, _ := s.Tenant(tenant); t.Suspended {
				continue
			}
			waiting = append(waiting, vc)
		}
	}
	sortQueue(waiting)
	return waiting
}

// Fitting returns the ids of the VCs in the queue that fit now, each beside those before it: by priority, then age. A later VC that
// fits does not wait for an earlier one that does not. VCs whose disks bind them to hosts are in the list whether they fit or not:
// Admit decides on them.
func Fitting(s *state.Snapshot, env placement.Env) []string {
	queue := Queue(s)
	if len(queue) == 0 {
		return nil
	}
	p := newProblem(s, "")
	p.CloseHosts(env.Unavailable)
	p.SubtractReserves()
	p.applyMargin(s, "", env, nil)
	if s.HasAgenda() {
		p.HonorGrants()
	}
	var reserved map[string]state.Resources
	if s.HasAgenda() {
		reserved = placement.Reserved(s, env.Now, env.Now.Add(placement.Horizon), "")
	}
	head := env.WaitingHead(s)
	if head == nil {
		ids := p.fitting(s, queue, env, reserved)
		if s.HasAgenda() {
			return besideAgenda(s, queue, env, ids)
		}
		return ids
	}
	ids := p.fitting(s, queue, env, placement.Together(reserved, head.Hosts))
	free := slices.DeleteFunc(slices.Clone(queue), func(vc state.VC) bool { return env.KeptForHead(s, &vc) != nil })
	return besideAgenda(s, queue, env, append(ids, p.fitting(s, free, env, reserved)...))
}

// fitting are the ids of the VCs of a queue that fit beside what is reserved, each beside those before it.
func (p *problem) fitting(s *state.Snapshot, queue []state.VC, env placement.Env, reserved map[string]state.Resources) (ids []string) {
	if len(reserved) > 0 {
		p = p.beside(reserved)
	}
	if p.headroom != nil {
		p = p.restricted()
	}
	ruled := p.Rules() != nil
	var requests []allocator.Request
	at := make([]int, len(queue)) // request of the VC, -1: none
	for i, r := range placement.Requests(s, queue, env) {
		if at[i] = -1; r.Bound {
			continue
		}
		at[i] = len(requests)
		requests = append(requests, r.Request)
		ruled = ruled || r.Ruled
	}
	rules := p.Labels()
	if !ruled {
		rules = nil
		for i := range requests {
			requests[i].Rules = nil
		}
	}
	answer := allocator.AdmitQueue(p.Problem.Problem, rules, requests, false)
	for i, vc := range queue {
		if at[i] < 0 || answer.Answers[at[i]].Admitted {
			ids = append(ids, vc.ID)
		}
	}
	return ids
}

// Admit returns a plan that admits a VC of the queue; nil if it does not wait any more or does not fit.
func Admit(s *state.Snapshot, id string, env placement.Env) *state.Plan {
	vc, ok := s.VC(id)
	if !ok || vc.Goal != state.GoalRun || vc.Admitted {
		return nil
	}
	if a := place(s, vc, vc.ModifyIndex, "admit", env); a.Plan != nil && !a.Queued {
		return a.Plan
	}
	return nil
}
