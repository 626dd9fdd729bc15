package allocator

import (
	"math/bits"

	"evenkeel/allocator/search"
)

// Meaning is what rules say of the groups and hosts of one problem, looked up
// once, for callers that check changes one by one.
type Meaning struct {
	hosts [][]uint64
	rules search.Rules
}

// Meaning looks the rules up; nil rules allow everything. The error is that of Validate.
func (r *Rules) Meaning(p Problem) (*Meaning, error) {
	m := &Meaning{}
	if r == nil {
		return m, nil
	}
	if err := r.validate(&p); err != nil {
		return nil, err
	}
	m.hosts = r.meant(&p, &m.rules)
	return m, nil
}

// Allowed says whether VMs of the group may run on the host at all. Cordons are no rule.
func (m *Meaning) Allowed(group, host int) bool {
	return m.hosts == nil || m.hosts[group] == nil || m.hosts[group][host>>6]>>(host&63)&1 != 0
}

// Apart says whether a VM of one group may not be on a host with another VM of the other.
func (m *Meaning) Apart(a, b int) bool {
	return m.rules.Apart != nil && m.rules.Apart[a] != nil && m.rules.Apart[a][b>>6]>>(b&63)&1 != 0
}

// ApartFrom are the groups whose VMs may not be on a host with a VM of the group, ascending.
func (m *Meaning) ApartFrom(group int) (groups []int) {
	if m.rules.Apart == nil {
		return nil
	}
	for i, set := range m.rules.Apart[group] {
		for ; set != 0; set &= set - 1 {
			groups = append(groups, i<<6+bits.TrailingZeros64(set))
		}
	}
	return groups
}

// Required says whether some group's VMs need VMs of others on their host.
func (m *Meaning) Required() bool { return m.rules.With != nil }

// Kept says whether the VMs of one host, given by group, one entry per VM, keep
// every rule there: Allowed, Apart, and that those are there which others require.
func (m *Meaning) Kept(host int, groups []int) bool {
	for i, g := range groups {
		if !m.Allowed(g, host) {
			return false
		}
		for _, o := range groups[:i] {
			if m.Apart(g, o) {
				return false
			}
		}
		if m.rules.With == nil {
			continue
		}
		for _, wanted := range m.rules.With[g] {
			met := false
			for k, o := range groups {
				met = met || k != i && o>>6 < len(wanted) && wanted[o>>6]>>(o&63)&1 != 0
			}
			if !met {
				return false
			}
		}
	}
	return true
}
