package loop

import (
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// Queue returns the VCs that wait, in the order in which they are tried.
func Queue(s *state.Snapshot) []state.VC {
	var waiting []state.VC
	for _, vc := range s.VCs() {
		if vc.Goal == state.GoalRun && !vc.Admitted && !slices.ContainsFunc(s.VMsOf(vc.ID), func(vm state.VM) bool { return vm.ConsumesResources() }) { // one that was preempted is gone first
			waiting = append(waiting, vc)
		}
	}
	sortQueue(waiting)
	return waiting
}

// Fitting returns the ids of the VCs in the queue that fit now, each beside those before it: by priority, then age. A later VC
// that fits does not wait for an earlier one that does not. Whether a VC fits whose disks lie on hosts is not known: it is in
// the list, and Admit decides on it.
func Fitting(s *state.Snapshot, env Env) []string {
	queue := Queue(s)
	if len(queue) == 0 {
		return nil
	}
	p := newProblem(s, "")
	p.shut(env.Unavailable)
	p.finish()
	p.applyMargin(s, "", env, nil)
	if p.headroom != nil {
		p = p.restricted()
	}
	env.NewID = func() string { return "" } // no VM is made
	ruled := p.rules() != nil
	var requests []allocator.Request
	at := make([]int, len(queue)) // request of the VC, -1: none
	for i, vc := range queue {
		q := problem{index: p.index, hosts: p.hosts, overhead: p.overhead, minMemory: p.minMemory}
		at[i] = len(requests)
		byGroup := map[string][]state.VM{}
		for _, vm := range wantedVMs(s, vc, env) {
			byGroup[vm.Group] = append(byGroup[vm.Group], vm)
			if vm.Host != "" {
				at[i] = -1
			}
		}
		if at[i] < 0 {
			continue
		}
		for _, g := range vc.Groups {
			if vms := byGroup[g.Name]; len(vms) > 0 {
				q.add(vc, g, vms, vc.MinYield, true)
			}
		}
		requests = append(requests, allocator.Request{Groups: q.Groups, Rules: q.labels(), Priority: vc.Priority})
		ruled = ruled || q.rules() != nil
	}
	rules := p.labels()
	if !ruled {
		rules = nil
		for i := range requests {
			requests[i].Rules = nil
		}
	}
	answer := allocator.AdmitQueue(p.Problem, rules, requests, false)
	var ids []string
	for i, vc := range queue {
		if at[i] < 0 || answer.Answers[at[i]].Admitted {
			ids = append(ids, vc.ID)
		}
	}
	return ids
}

// Admit returns a plan that admits a VC of the queue; nil if it does not wait any more or does not fit.
func Admit(s *state.Snapshot, id string, env Env) *state.Plan {
	vc, ok := s.VC(id)
	if !ok || vc.Goal != state.GoalRun || vc.Admitted {
		return nil
	}
	if a := place(s, vc, vc.ModifyIndex, "admit", env); a.Plan != nil && !a.Queued {
		return a.Plan
	}
	return nil
}

// AdmitQueue returns a plan that admits the first VC of the queue that fits now; nil if none does.
func AdmitQueue(s *state.Snapshot, env Env) *state.Plan {
	for _, id := range Fitting(s, env) {
		if p := Admit(s, id, env); p != nil {
			return p
		}
	}
	return nil
}
