package allocator_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

// This file checks affinity from its definition alone, VM by VM.

// ruleBroken reports the first rule that a VM on its host breaks, of those VMs
// for which of(group, vm) holds; avoiding is checked against all VMs there are.
func ruleBroken(p allocator.Problem, r *allocator.Rules, hosts [][]int, of func(g, vm int) bool) error {
	type where struct{ g, vm int }
	onHost := map[int][]where{}
	for g := range hosts {
		for vm, j := range hosts[g] {
			onHost[j] = append(onHost[j], where{g, vm})
		}
	}
	rule := func(g int) allocator.Affinity {
		if g < len(r.Affinity) && r.Affinity[g] != nil {
			return *r.Affinity[g]
		}
		return allocator.Affinity{}
	}
	is := func(g int, term string) bool {
		if name, ok := strings.CutPrefix(term, "vc:"); ok {
			return p.Groups[g].Cluster == name
		}
		k, v, _ := strings.Cut(term, "=")
		if g >= len(r.Labels) {
			return false
		}
		got, ok := r.Labels[g][k]
		return ok && got == v
	}
	for j, vms := range onHost {
		for _, x := range vms {
			others := slices.DeleteFunc(slices.Clone(vms), func(o where) bool { return o == x })
			a := rule(x.g)
			for _, term := range a.Avoid {
				if term == "host:"+p.Hosts[j].Name && of(x.g, x.vm) {
					return fmt.Errorf("VM %v is on host %d, which it avoids", x, j)
				}
				for _, o := range others {
					if !strings.HasPrefix(term, "host:") && is(o.g, term) && (of(x.g, x.vm) || of(o.g, o.vm)) {
						return fmt.Errorf("VM %v avoids %s, and %v is with it on host %d", x, term, o, j)
					}
				}
			}
			for _, o := range others {
				if a.Spread == "host" && o.g == x.g && (of(x.g, x.vm) || of(o.g, o.vm)) {
					return fmt.Errorf("VMs %v and %v are spread and together on host %d", x, o, j)
				}
			}
			if !of(x.g, x.vm) {
				continue
			}
			named, found := false, false
			for _, term := range a.Require {
				if strings.HasPrefix(term, "host:") {
					named = true
					found = found || term == "host:"+p.Hosts[j].Name
				} else if !slices.ContainsFunc(others, func(o where) bool { return is(o.g, term) }) {
					return fmt.Errorf("VM %v requires %s, and has none on host %d", x, term, j)
				}
			}
			if named && !found {
				return fmt.Errorf("VM %v is on host %d, not on one of %v", x, j, a.Require)
			}
		}
	}
	return nil
}

// drawRules draws labels and rules for the groups of p from the given one on.
func drawRules(t *rapid.T, p allocator.Problem, r *allocator.Rules, from int) *allocator.Rules {
	out := &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(p.Groups)), Affinity: make([]*allocator.Affinity, len(p.Groups))}
	copy(out.Labels, r.Labels)
	copy(out.Affinity, r.Affinity)
	terms := []string{"app=a", "app=b", "tier=x", "vc:gone", "host:gone"}
	for _, h := range p.Hosts {
		terms = append(terms, "host:"+h.Name)
	}
	for _, g := range p.Groups {
		terms = append(terms, "vc:"+g.Cluster)
	}
	some := func(what string, limit int) (list []string) {
		for range rapid.IntRange(0, limit).Draw(t, what) {
			list = append(list, rapid.SampledFrom(terms).Draw(t, "term"))
		}
		return list
	}
	for g := from; g < len(p.Groups); g++ {
		out.Labels[g] = map[string]string{"app": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app")}
		if rapid.Bool().Draw(t, "rule") {
			out.Affinity[g] = &allocator.Affinity{Spread: rapid.SampledFrom([]string{"", "host"}).Draw(t, "spread"),
				Require: some("require", 1), Prefer: some("prefer", 2), Avoid: some("avoid", 2)}
		}
	}
	return out
}
