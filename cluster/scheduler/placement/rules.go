package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// Rules returns the labels and the affinity of all groups of the problem, nil if no group has a rule.
func (p *Problem) Rules() *allocator.Rules {
	barred := slices.ContainsFunc(p.barred, func(hosts map[string]bar) bool { return len(hosts) > 0 })
	if !barred && !slices.ContainsFunc(p.Refs, func(r GroupRef) bool { return !r.Group.Affinity.Empty() }) {
		return nil
	}
	return p.Labels()
}

// Labels returns the rules of all groups, also if there is none: others may name their labels.
func (p *Problem) Labels() *allocator.Rules {
	r := &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(p.Refs)), Affinity: make([]*allocator.Affinity, len(p.Refs))}
	for i, ref := range p.Refs {
		r.Labels[i] = ref.Group.Labels
		if a, barred := ref.Group.Affinity, p.barredOf(i); !a.Empty() || len(barred) > 0 {
			avoid := slices.Clone(a.Avoid)
			for _, host := range slices.Sorted(maps.Keys(barred)) {
				avoid = append(avoid, "host:"+host)
			}
			r.Affinity[i] = &allocator.Affinity{Spread: a.Spread, Require: a.Require, Prefer: a.Prefer, Avoid: avoid}
		}
	}
	return r
}

// KnownTerms returns the terms of a rule without those that name a host or a VC that is not there.
func KnownTerms(there map[string]bool, terms []string) []string {
	return slices.DeleteFunc(slices.Clone(terms), func(t string) bool {
		return !there[t] && (strings.HasPrefix(t, "host:") || strings.HasPrefix(t, "vc:"))
	})
}

// RulesForNew returns the rules as far as VMs to be placed can keep them: VMs that stay require and prefer nothing any more,
// and names that match nothing are left out.
func (p *Problem) RulesForNew() *allocator.Rules {
	r := p.Rules()
	if r == nil {
		return nil
	}
	there := map[string]bool{}
	for name := range p.index {
		there["host:"+name] = true
	}
	for _, ref := range p.Refs {
		there["vc:"+ref.VC.Name] = true
	}
	for i, a := range r.Affinity {
		if a == nil {
			continue
		}
		kept := &allocator.Affinity{Spread: a.Spread, Avoid: KnownTerms(there, a.Avoid)}
		if slices.Contains(p.Groups[i].Hosts, -1) {
			kept.Require, kept.Prefer = KnownTerms(there, a.Require), KnownTerms(there, a.Prefer)
		}
		r.Affinity[i] = kept
	}
	return r
}

// broken returns the rules that a placement does not keep, of the VMs for which of holds.
func (p *Problem) broken(hosts [][]int, of func(vm state.VM) bool) []allocator.Broken {
	r := p.Rules()
	if r == nil {
		return nil
	}
	return slices.DeleteFunc(r.Broken(p.Problem, hosts), func(b allocator.Broken) bool { return !of(p.Refs[b.Group].VMs[b.VM]) })
}

// BreaksRules says whether a placement breaks a rule of a VM that does not run yet.
func (p *Problem) BreaksRules(hosts [][]int) bool {
	return len(p.broken(hosts, func(vm state.VM) bool { return !vm.ConsumesResources() })) > 0
}

// RefuseMisplaced refuses VMs whose disk lies on a host from which a rule keeps them now.
func (p *Problem) RefuseMisplaced(hosts [][]int) (allocator.Admission, bool) {
	broken := p.broken(hosts, func(vm state.VM) bool { return !vm.ConsumesResources() && vm.Host != "" })
	if len(broken) == 0 {
		return allocator.Admission{}, false
	}
	out := allocator.Admission{Summary: "its disks lie on hosts that its rules keep it from"}
	seen := map[string]bool{}
	for _, b := range broken {
		vm := p.Refs[b.Group].VMs[b.VM]
		if seen[vm.Host] {
			continue
		}
		seen[vm.Host] = true
		out.Reasons = append(out.Reasons, allocator.HostReason{Host: vm.Host, Cordoned: p.Hosts[b.Host].Cordoned, Rule: b.Rule,
			Text: fmt.Sprintf("%s; and the disk of VM %s lies there", b.Text, vm.Name)})
	}
	return out, true
}

// RulesOf describes the rules of a VC: for each group how many of the VMs that run keep each rule, and which VM breaks which.
func RulesOf(s *state.Snapshot, vc state.VC) []string {
	var lines []string
	p := NewProblem(s, "")
	p.SubtractReserves()
	r := p.Rules()
	if r == nil {
		return nil
	}
	hosts := make([][]int, len(p.Groups))
	for i := range hosts {
		hosts[i] = p.Groups[i].Hosts
	}
	for i, ref := range p.Refs {
		if ref.VC.ID != vc.ID || r.Affinity[i] == nil {
			continue
		}
		a := r.Affinity[i]
		// say adds how many VMs of the group keep a rule that is the only one.
		say := func(rule string, only allocator.Affinity) {
			alone := allocator.Rules{ByCluster: true, Labels: r.Labels, Affinity: make([]*allocator.Affinity, len(p.Refs))}
			alone.Affinity[i] = &only
			var texts []string
			for _, b := range alone.Broken(p.Problem, hosts) {
				if b.Group == i && b.VM < ref.real {
					texts = append(texts, fmt.Sprintf("VM %s on host %s does not", ref.VMs[b.VM].Name, p.Hosts[b.Host].Name))
				}
			}
			n := ref.real
			line := fmt.Sprintf("group %s: %s: kept by %d of %d VMs", ref.Group.Name, rule, n-len(texts), n)
			if len(texts) > 0 {
				line += "; " + texts[0]
			}
			lines = append(lines, line)
		}
		if a.Spread != "" {
			say("spread "+a.Spread, allocator.Affinity{Spread: a.Spread})
		}
		if on := hostTerms(a.Require); len(on) > 0 {
			say("require "+strings.Join(on, ", "), allocator.Affinity{Require: on})
		}
		for _, t := range a.Require {
			if !strings.HasPrefix(t, "host:") {
				say("require "+t, allocator.Affinity{Require: []string{t}})
			}
		}
		for _, t := range a.Avoid {
			say("avoid "+t, allocator.Affinity{Avoid: []string{t}})
		}
		for _, t := range a.Prefer {
			say("prefer "+t, allocator.Affinity{Require: []string{t}})
		}
	}
	return lines
}

func hostTerms(terms []string) []string {
	return slices.DeleteFunc(slices.Clone(terms), func(t string) bool { return !strings.HasPrefix(t, "host:") })
}
