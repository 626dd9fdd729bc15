package allocator

import "slices"

// movement is a problem whose VMs have hosts, of which some move.
type movement struct {
	p           *Problem
	t           tenancy
	rules       *Rules
	route       func(vm, host int32) bool // nil: every VM can be sent to every host
	group, home []int32                   // [vm]; home -1: it has no host
}

// arranged is a placement in which the policy has put the VMs that are away from their homes in host. All can have the yield y there,
// or their floor, as in host. nil: the policy changes nothing.
func (m *movement) arranged(host []int32, y float64) []int32 {
	p := m.p
	need, closed := m.t.floors(), make([]bool, len(p.Hosts))
	for g, floor := range need {
		need[g] = max(y, floor) * p.Groups[g].CPU
	}
	for j := range closed {
		closed[j] = p.Hosts[j].Cordoned
	}
	x := newArrangement(p, m.t, closed, need)
	if m.rules != nil {
		x.rules = newBoard(p, m.rules, nil, need)
	}
	var vms []int
	for vm, j := range host {
		if g := int(m.group[vm]); m.home[vm] == j {
			x.keep(g, int(j), 1)
			if x.rules != nil {
				x.rules.put(g, int(j))
			}
		} else {
			x.add(g, int(j))
			vms = append(vms, vm)
		}
	}
	if m.route != nil {
		x.route = func(mover, host int32) bool { return m.route(int32(vms[mover]), host) } //nolint:gosec // an index of host
	}
	if !x.run(p.Policy) {
		return nil
	}
	other := slices.Clone(host)
	for i, vm := range vms {
		other[vm] = x.movers[i].host
	}
	return other
}

// Arrange puts the VMs that move, or start, where p.Policy wants them. p has where VMs are, to where they are to be: all of them
// somewhere. route says whether a VM, by group and number, can be sent to a host; nil: all can. No VM moves that stays in to, and the
// minimum yield is the same or more. ok: the answer differs from to.
func Arrange(p Problem, rules *Rules, to [][]int, route func(group, vm, host int) bool) (hosts [][]int, ok bool) {
	vms := 0
	for g := range p.Groups {
		vms += p.Groups[g].Count
	}
	if p.Policy == AsFound || vms > maxSearchedArranged {
		return to, false
	}
	m := &movement{p: &p, t: tenancyOf(p.Groups), rules: rules}
	var host, number []int32
	for g := range p.Groups {
		for k, j := range to[g] {
			home := int32(-1)
			if at := p.Groups[g].Hosts; at != nil {
				home = int32(at[k]) //nolint:gosec // of a host
			}
			m.group, m.home, number, host = append(m.group, int32(g)), append(m.home, home), append(number, int32(k)), append(host, int32(j)) //nolint:gosec // of VMs and hosts
		}
	}
	if route != nil {
		m.route = func(vm, j int32) bool { return route(int(m.group[vm]), int(number[vm]), int(j)) }
	}
	before := m.minYield(to)
	other := m.arranged(host, before)
	if other == nil {
		return to, false
	}
	hosts = make([][]int, len(to))
	for vm, j := range other {
		hosts[m.group[vm]] = append(hosts[m.group[vm]], int(j))
	}
	if m.minYield(hosts) < before-sameMinYield {
		return to, false // rounding
	}
	return hosts, true
}

// minYield is what the placement allows, with the floors kept.
func (m *movement) minYield(hosts [][]int) float64 {
	p := *m.p
	p.Groups = slices.Clone(m.p.Groups)
	for g := range p.Groups {
		p.Groups[g].Hosts = hosts[g]
	}
	loads, _ := countLoads(&p)
	return maxMin(&p, loads, m.t.floors())
}
