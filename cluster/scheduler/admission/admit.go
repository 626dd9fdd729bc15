package admission

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// problem is the placement of VMs of a VC beside what runs, with what the admission margin leaves for new ones.
type problem struct {
	placement.Problem
	// headroom for new VMs where needs are estimated, by host: see applyMargin. nil: what is left is room.
	headroom       []headroom
	margin         placement.Margin
	aggressiveness map[string]bool // of estimates that are in it
}

func newProblem(s *state.Snapshot, skip ...string) *problem {
	return &problem{Problem: *placement.NewProblem(s, skip...)}
}

// admitNew is admit with a bounded search for a better placement, and with the admission margin. It refuses VMs that fit only if
// estimates are right; its decision says so.
func (p *problem) admitNew(wanted []state.VM) allocator.Admission {
	adm := p.admit(wanted)
	if !adm.Admitted {
		return adm
	}
	adm.Solution = better(p, adm.Solution)
	if p.headroom == nil || p.exceeds(adm.Solution.Hosts) < 0 {
		return adm
	}
	t := p.restricted()
	no := t.admit(wanted)
	if no.Admitted && p.exceeds(no.Solution.Hosts) < 0 {
		if sol, err := p.divide(no.Solution.Hosts); err == nil {
			sol.UpperBound = max(adm.Solution.UpperBound, sol.MinYield)
			no.Solution = sol
			return no
		}
	}
	if no.Admitted { // the allocator's placement exceeds the headroom of a host
		no = allocator.Admission{Asked: adm.Asked, Summary: "no placement was found that leaves every host the room that it is to keep"}
	}
	p.Unavailable, no.NeverFits = t.Unavailable, false
	for i, r := range no.Reasons {
		if at, ok := p.At(r.Host); ok && t.Unavailable[r.Host] == "" && p.headroom != nil {
			if deficit := p.explainHeadroom(at); deficit != "" {
				no.Reasons[i].Text += " (" + deficit + ")"
			}
		}
	}
	no.Summary += "; " + p.explainRefusal()
	no.Advice = append(slices.Clone(no.Advice), p.advice()...)
	return no
}

// admit asks the allocator, and refuses what the allocator does not know of: disks that lie where their VMs may not start.
func (p *problem) admit(wanted []state.VM) allocator.Admission {
	if stuck, is := bound(p, wanted); is {
		return stuck
	}
	if none, is := p.RefuseBarred(); is {
		return none
	}
	adm := allocator.AdmitUnder(p.Problem.Problem, p.Rules())
	if adm.Admitted {
		if stuck, is := p.RefuseMisplaced(adm.Solution.Hosts); is {
			return stuck
		}
		return adm
	}
	return p.CorrectBarred(adm)
}

// better returns a placement of the new VMs with a higher minimum yield, if a bounded search finds one; VMs that have a host
// stay there.
func better(p *problem, s allocator.Solution) allocator.Solution {
	if s.MinYield >= s.UpperBound-1e-6 || len(s.Shortfall) > 0 {
		return s
	}
	o := allocator.Best(p.Problem.Problem, allocator.Search{Seed: 1, Steps: placeEffort, Stay: true, Rules: p.RulesForNew()})
	if o.Verdict == allocator.Infeasible {
		return s // the search allows less than admission did: keep its placement
	}
	if o.Verdict < allocator.Feasible || len(o.Solution.Shortfall) > 0 || o.Solution.MinYield <= s.MinYield+1e-6 || p.BreaksRules(o.Solution.Hosts) {
		s.UpperBound = min(s.UpperBound, max(o.UpperBound, s.MinYield))
		return s
	}
	o.Solution.UpperBound = min(s.UpperBound, o.UpperBound)
	return o.Solution
}

// bound refuses VMs whose disk lies on a host that takes no new VM: they can start only there.
func bound(p *problem, wanted []state.VM) (allocator.Admission, bool) {
	reasons := map[string]allocator.HostReason{}
	for _, vm := range wanted {
		if at, ok := p.At(vm.Host); ok && !vm.ConsumesResources() && p.Hosts[at].Cordoned {
			reasons[vm.Host] = allocator.HostReason{Host: vm.Host, Cordoned: true, Text: "is cordoned, and the disk of VM " + vm.Name + " lies there"}
			if why := p.Unavailable[vm.Host]; why != "" {
				reasons[vm.Host] = allocator.HostReason{Host: vm.Host, Text: why + ", and VM " + vm.Name + " is bound to it"}
			}
		}
	}
	if len(reasons) == 0 {
		return allocator.Admission{}, false
	}
	names := map[string]bool{}
	for name := range reasons {
		names[name] = true
	}
	out := allocator.Admission{Summary: fmt.Sprintf("its VMs are bound to hosts that take none now: %s", strings.Join(placement.SortedNames(names), ", "))}
	for _, name := range placement.SortedNames(names) {
		out.Reasons = append(out.Reasons, reasons[name])
		if reasons[name].Cordoned {
			out.Advice = append(out.Advice, "uncordon host "+name)
		}
	}
	return out, true
}

// divide divides the CPU among all VMs, with the new ones on the given hosts.
func (p *problem) divide(hosts [][]int) (allocator.Solution, error) {
	q := p.Problem.Problem
	q.Groups = slices.Clone(p.Groups)
	for i := range q.Groups {
		q.Groups[i].Hosts = hosts[i]
	}
	return allocator.Allocate(q)
}
