package placement

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// bar is why no VM of a group can be placed on a host.
type bar struct {
	why         string
	withoutPool bool
}

// Bar takes hosts out of the candidates of each group of which VMs are to be placed: those that lack its pool, and those that
// list one of the VMs. VMs that have a host stay there.
func (p *Problem) Bar(s *state.Snapshot, env Env) {
	p.pools, p.barred = env.Pools, make([]map[string]bar, len(p.Refs))
	for i, ref := range p.Refs {
		if !slices.Contains(p.Groups[i].Hosts, -1) {
			continue
		}
		barred := map[string]bar{}
		for k, vm := range ref.VMs {
			if env.Lists == nil || p.Groups[i].Hosts[k] >= 0 {
				continue
			}
			for _, host := range env.Lists(vm) {
				barred[host] = bar{why: "its hypervisor still lists VM " + vm.Name}
			}
		}
		for _, h := range p.Rows {
			if env.Pools.Lacking(s, h.Name, ref.Group) {
				barred[h.Name] = bar{p.deficitText(h.Name, ref.Group.Disk.Pool), true}
			}
		}
		for _, vm := range ref.VMs {
			delete(barred, vm.Host)
		}
		p.barred[i] = barred
	}
}

// barredOf returns why no VM of a group can be placed on a host, by host.
func (p *Problem) barredOf(i int) map[string]bar {
	if i >= len(p.barred) {
		return nil
	}
	return p.barred[i]
}

// RefuseBarred refuses VMs for which all hosts are barred.
func (p *Problem) RefuseBarred() (allocator.Admission, bool) {
	for i, ref := range p.Refs {
		barred := p.barredOf(i)
		if len(barred) == 0 || len(barred) < len(p.Rows) {
			continue
		}
		pools := 0
		var reasons []allocator.HostReason
		for _, h := range p.Rows {
			reasons = append(reasons, allocator.HostReason{Host: h.Name, Text: barred[h.Name].why})
			if barred[h.Name].withoutPool {
				pools++
			}
		}
		if pools == len(p.Rows) {
			return p.refuseWithoutPool(ref.Group, reasons), true
		}
		return allocator.Admission{Reasons: reasons, Summary: fmt.Sprintf("no host can start group %s: one of its VMs is left on each that could", ref.Group.Name)}, true
	}
	return allocator.Admission{}, false
}

// CorrectBarred corrects a refusal of the allocator's, which takes barred hosts for rules of the request: what a hypervisor
// lists goes away, and no rule can be left out.
func (p *Problem) CorrectBarred(r allocator.Admission) allocator.Admission {
	for i, ref := range p.Refs {
		for host, b := range p.barredOf(i) {
			r.NeverFits = r.NeverFits && b.withoutPool
			if rule := "host:" + host; !slices.Contains(ref.Group.Affinity.Avoid, rule) {
				r.Advice = slices.DeleteFunc(slices.Clone(r.Advice), func(text string) bool {
					return strings.HasSuffix(text, fmt.Sprintf("%s/%s without %q", ref.VC.Name, ref.Group.Name, "avoid "+rule))
				})
			}
		}
	}
	return r
}

// ExplainBarred puts the reason why a host is barred in place of the rule that stands for it.
func (p *Problem) ExplainBarred(r *allocator.HostReason) {
	if r.Rule.Kind != allocator.ByAvoidHost {
		return
	}
	for i := range p.Refs {
		if b := p.barredOf(i)[r.Host]; b.why != "" {
			r.Rule, r.Text = allocator.Refusal{}, b.why
			return
		}
	}
}
