package allocator

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/allocator/search"
)

// Rules say which VMs may, must or should run where, by group.
type Rules struct {
	Labels   []map[string]string // [group]; nil: none
	Affinity []*Affinity         // [group]; nil: no rule

	// ByCluster: "vc:NAME" is looked for among Group.Cluster only, never among
	// the names of groups.
	ByCluster bool
}

// Affinity of a group. A term is "host:NAME", "vc:NAME" (a virtual cluster, by
// Cluster, or by the name of a group) or "label=value" (groups with that label).
type Affinity struct {
	// Spread "host": no two VMs of the group on one host.
	Spread string
	// Require: of the hosts named, the VM is on one; of every other term, another
	// VM that it names is on the same host.
	Require []string
	// Prefer: terms as in Require, as many of them met as the minimum yield allows
	// and the search finds.
	Prefer []string
	// Avoid: the VM is on none of the hosts named, and no other VM that a term
	// names is on the same host.
	Avoid []string
}

// Validate reports the first rule that is not understood or names what is not there.
func (r *Rules) Validate(p Problem) error { return r.validate(&p) }

func (r *Rules) validate(p *Problem) error {
	if r == nil {
		return nil
	}
	if len(r.Affinity) > len(p.Groups) || len(r.Labels) > len(p.Groups) {
		return fmt.Errorf("rules for %d groups of %d", max(len(r.Affinity), len(r.Labels)), len(p.Groups))
	}
	names := r.names(p)
	for g, a := range r.Affinity {
		if a == nil {
			continue
		}
		if a.Spread != "" && a.Spread != "host" {
			return fmt.Errorf("group %s: affinity.spread: %q is not known (host is)", groupName(p.Groups, g), a.Spread)
		}
		for _, terms := range [][]string{a.Require, a.Prefer, a.Avoid} {
			for _, term := range terms {
				if _, ok := names.lookUp(term); !ok {
					return fmt.Errorf("group %s: affinity: %q names no host or virtual cluster, and is no label=value", groupName(p.Groups, g), term)
				}
			}
		}
	}
	return nil
}

// names finds what terms stand for.
type names struct {
	hosts  map[string][]uint64 // as bit sets of hosts
	groups map[string][]uint64 // "vc:NAME" and "label=value", as bit sets of groups
}

// meant is what a term stands for: one of the two is nil.
type meant struct{ hosts, groups []uint64 }

func (r *Rules) names(p *Problem) names {
	n := names{hosts: map[string][]uint64{}, groups: map[string][]uint64{}}
	add := func(to map[string][]uint64, key string, i, size int) {
		if to[key] == nil {
			to[key] = make([]uint64, (size+63)/64)
		}
		to[key][i>>6] |= 1 << (i & 63)
	}
	used := map[string]bool{}
	for _, a := range r.Affinity {
		if a != nil {
			for _, terms := range [][]string{a.Require, a.Prefer, a.Avoid} {
				for _, term := range terms {
					used[term] = true
				}
			}
		}
	}
	for j := range p.Hosts {
		if t := "host:" + p.Hosts[j].Name; used[t] {
			add(n.hosts, t, j, len(p.Hosts))
		}
	}
	for g := range p.Groups {
		for i, name := range []string{p.Groups[g].Cluster, p.Groups[g].Name} {
			if i > 0 && r.ByCluster {
				break
			}
			if t := "vc:" + name; name != "" && used[t] {
				add(n.groups, t, g, len(p.Groups))
			}
		}
		if g < len(r.Labels) {
			for k, v := range r.Labels[g] {
				if t := k + "=" + v; used[t] {
					add(n.groups, t, g, len(p.Groups))
				}
			}
		}
	}
	return n
}

func (n *names) lookUp(term string) (m meant, ok bool) {
	if hosts, ok := n.hosts[term]; ok {
		return meant{hosts: hosts}, true
	}
	if groups, ok := n.groups[term]; ok {
		return meant{groups: groups}, true
	}
	// A term may name a label that no group has.
	return meant{groups: []uint64{}}, !strings.HasPrefix(term, "host:") && !strings.HasPrefix(term, "vc:") && strings.Contains(term, "=")
}

// rules puts everything that restricts hosts into the model.
func (w *work) rules(anyHome bool) {
	p := w.p
	hosts := len(p.Hosts)
	cordoned := slices.ContainsFunc(p.Hosts, func(h Host) bool { return h.Cordoned })
	if w.s.Rules == nil && !cordoned && !w.moves && !(w.s.Stay && anyHome) {
		return
	}
	r := &search.Rules{Budget: -1}
	w.m.Rules = r
	if w.moves {
		r.Home = w.home
		r.Cost, r.Budget = w.costs()
	}
	r.Class = make([]int32, len(w.home))
	copy(r.Class, w.group)
	byGroup := w.s.Rules.meant(p, r)
	open := fill(hosts)
	for j := range p.Hosts {
		if p.Hosts[j].Cordoned {
			open[j>>6] &^= 1 << (j & 63)
		}
	}
	if byGroup == nil && !cordoned && !w.s.Stay {
		return
	}
	r.Allowed = make([][]uint64, len(w.home))
	newcomer := make([][]uint64, len(p.Groups))
	for vm, g := range w.group {
		home := w.home[vm]
		if w.s.Stay && home >= 0 {
			r.Allowed[vm] = make([]uint64, len(open))
			r.Allowed[vm][home>>6] |= 1 << (home & 63)
			continue
		}
		if newcomer[g] == nil {
			newcomer[g] = slices.Clone(open)
			if byGroup != nil && byGroup[g] != nil {
				for k := range open {
					newcomer[g][k] &= byGroup[g][k]
				}
			}
		}
		r.Allowed[vm] = newcomer[g]
		if home >= 0 && p.Hosts[home].Cordoned && (byGroup == nil || byGroup[g] == nil || byGroup[g][home>>6]>>(home&63)&1 != 0) {
			r.Allowed[vm] = slices.Clone(newcomer[g])
			r.Allowed[vm][home>>6] |= 1 << (home & 63)
		}
	}
}

func fill(n int) []uint64 {
	set := make([]uint64, (n+63)/64)
	for i := range n {
		set[i>>6] |= 1 << (i & 63)
	}
	return set
}

// meant fills in Apart and With, and returns the hosts that each group may run
// on (nil: all).
func (a *Rules) meant(p *Problem, r *search.Rules) (byGroup [][]uint64) {
	if a == nil {
		return nil
	}
	groups := len(p.Groups)
	names := a.names(p)
	byGroup = make([][]uint64, groups)
	apart := func(g, o int) {
		if r.Apart == nil {
			r.Apart = make([][]uint64, groups)
		}
		for _, pair := range [2][2]int{{g, o}, {o, g}} {
			if r.Apart[pair[0]] == nil {
				r.Apart[pair[0]] = make([]uint64, (groups+63)/64)
			}
			r.Apart[pair[0]][pair[1]>>6] |= 1 << (pair[1] & 63)
		}
	}
	for g, rule := range a.Affinity {
		if rule == nil {
			continue
		}
		if rule.Spread != "" {
			apart(g, g)
		}
		var required []uint64
		for _, term := range rule.Require {
			m, _ := names.lookUp(term)
			if m.hosts == nil {
				if r.With == nil {
					r.With = make([][][]uint64, groups)
				}
				r.With[g] = append(r.With[g], m.groups)
				continue
			}
			if required == nil {
				required = make([]uint64, len(m.hosts))
			}
			for k := range m.hosts {
				required[k] |= m.hosts[k]
			}
		}
		byGroup[g] = required
		for _, term := range rule.Avoid {
			m, _ := names.lookUp(term)
			for k, bits := range m.groups {
				for b := range 64 {
					if bits>>b&1 != 0 {
						apart(g, k<<6+b)
					}
				}
			}
			if m.hosts != nil {
				if byGroup[g] == nil {
					byGroup[g] = fill(len(p.Hosts))
				}
				for k := range m.hosts {
					byGroup[g][k] &^= m.hosts[k]
				}
			}
		}
	}
	return byGroup
}

// prefer moves single VMs to hosts that meet more of their preferred terms. No host's level may
// pass the greatest level of the placement, or 1 if that is greater.
func (w *work) prefer(host []int32) {
	a := w.s.Rules
	if a == nil || !slices.ContainsFunc(a.Affinity, func(x *Affinity) bool { return x != nil && len(x.Prefer) > 0 }) {
		return
	}
	x := preferences{w: w, names: a.names(w.p), host: host, highest: max(1, w.m.Level(host)), load: make([]int64, len(w.m.CPU)), tries: 1 << 22 / max(1, len(host))}
	for vm, j := range host {
		x.load[j] += w.m.Weight[vm]
	}
	for range 4 {
		better := false
		for vm := range host {
			if prefer := x.of(vm); len(prefer) > 0 {
				better = x.improve(vm, prefer) || better
			}
		}
		if !better {
			break
		}
	}
}

// preferences is a search for a placement that meets more of the preferred terms of VMs.
type preferences struct {
	w       *work
	names   names
	host    []int32 // [VM]
	highest float64 // level that no host may pass
	load    []int64 // [host]
	tries   int     // that are left
}

// of is what a VM prefers.
func (x *preferences) of(vm int) []string {
	affinity, g := x.w.s.Rules.Affinity, int(x.w.group[vm])
	if g >= len(affinity) || affinity[g] == nil {
		return nil
	}
	return affinity[g].Prefer
}

// met counts the terms that host j meets for a VM.
func (x *preferences) met(vm int, prefer []string, j int32) (n int) {
	for _, term := range prefer {
		m, _ := x.names.lookUp(term)
		if m.hosts != nil && m.hosts[j>>6]>>(j&63)&1 != 0 || m.hosts == nil && x.on(j, m.groups, vm) {
			n++
		}
	}
	return n
}

// on reports whether host j has a VM of a set of groups, other than the VM but.
func (x *preferences) on(j int32, set []uint64, but int) bool {
	for vm, at := range x.host {
		if g := x.w.group[vm]; at == j && vm != but && int(g>>6) < len(set) && set[g>>6]>>(g&63)&1 != 0 {
			return true
		}
	}
	return false
}

// improve moves a VM to a host that meets more of its preferred terms, and reports whether it did.
func (x *preferences) improve(vm int, prefer []string) (better bool) {
	weight := x.w.m.Weight[vm]
	best := x.met(vm, prefer, x.host[vm])
	for j := range int32(len(x.load)) {
		if x.tries--; x.tries < 0 || best == len(prefer) {
			break
		}
		was := x.host[vm]
		if j == was || float64(x.load[j]+weight)/float64(x.w.m.CPU[j]) > x.highest {
			continue
		}
		n := x.met(vm, prefer, j)
		if n <= best {
			continue
		}
		x.host[vm] = j
		if !x.w.m.Check(x.host) {
			x.host[vm] = was
			continue
		}
		x.load[was] -= weight
		x.load[j] += weight
		best, better = n, true
	}
	return better
}
