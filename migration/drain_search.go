package migration

import "slices"

// maxEscapes bounds the states that searchMoves examines, and maxEscaping the VMs that it moves.
const (
	maxEscapes  = 12_000
	maxEscaping = 14
)

// searchMoves looks for any order of moves by which these VMs leave, whichever hosts they end on. It expands states by the
// fewest bytes that an order through them can cost, so that the first that it finds has the fewest. It takes small problems only.
func (e *emptying) searchMoves(vms []int) *candidate {
	f := e.f
	o := newOrder(f, f.home)
	goes := make([]bool, len(f.home))
	for _, vm := range vms {
		goes[vm] = true
	}
	var may []int
	for vm, j := range f.home {
		if !f.pinned[vm] && (goes[vm] || !e.leaves[j]) {
			may = append(may, vm)
		}
	}
	if len(may) > maxEscaping || len(o.used) >= 1<<16-1 {
		return nil
	}
	e.reserveFor(o, may)
	rest := func(at []int) (bytes float64) {
		for i, vm := range may {
			if goes[vm] && e.leaves[at[i]] {
				bytes += f.bytes[vm]
			}
		}
		return bytes
	}
	home := make([]int, len(may))
	for i, vm := range may {
		home[i] = f.home[vm]
	}
	q := newFrontier(&state{at: home, rest: rest(home)}, maxEscapes)
	for s := q.next(); s != nil; s = q.next() {
		if s.spent+s.rest > e.d.Budget {
			return nil
		}
		o.restore(may, s.at)
		if s.rest == 0 && e.out(may, s.at, goes) {
			if c := e.escaped(may, s); c != nil {
				return c
			}
		}
		for i, vm := range may {
			for to := range o.used {
				if to == s.at[i] || f.p.Hosts[to].Cordoned || !f.allowed(vm, to) || !o.fits(vm, to) {
					continue
				}
				at := slices.Clone(s.at)
				at[i] = to
				if !q.reach(&state{at: at, spent: s.spent + f.bytes[vm], rest: rest(at), before: s, by: op{vm: vm, from: s.at[i], to: to}}) {
					return nil
				}
			}
		}
	}
	return nil
}

// reserveFor takes off each host what it must keep for any of these VMs, whether they end there or wait there.
func (e *emptying) reserveFor(o *order, may []int) {
	f := e.f
	for j := range o.room {
		reserves := o.reserves[j]
		for _, vm := range may {
			if f.home[vm] != j {
				reserves.Add(f.of(vm).Reclaimable)
			}
		}
		o.room[j] = f.p.Hosts[j].room(reserves)
	}
}

// out: no VM that has to leave is still on a host that it has to leave.
func (e *emptying) out(may, at []int, goes []bool) bool {
	for i, vm := range may {
		if goes[vm] && e.leaves[at[i]] {
			return false
		}
	}
	return true
}

// escaped is a state as a placement with the moves to it, if that keeps what has to be kept.
func (e *emptying) escaped(may []int, s *state) *candidate {
	c := &candidate{at: slices.Clone(e.f.home), ordered: true, ops: s.ops()}
	for i, vm := range may {
		c.at[vm] = s.at[i]
	}
	if !e.keepsLimits(c) {
		return nil
	}
	enough := reserves(e.f, c.at)
	staged, with := map[[2]int]bool{}, slices.Clone(enough)
	for i := range c.ops {
		x := &c.ops[i]
		if x.staging = x.to != c.at[x.vm]; !x.staging {
			continue
		}
		at := [2]int{x.vm, x.to}
		if staged[at] || e.f.home[x.vm] == x.to {
			continue
		}
		staged[at] = true
		if with[x.to].Add(e.f.of(x.vm).Reclaimable); with[x.to].Bytes() > enough[x.to].Bytes() {
			return nil
		}
	}
	return c
}
