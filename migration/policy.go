package migration

import (
	"slices"

	"evenkeel/allocator"
)

// arranged is a placement with the VMs that move anyway where Problem.Policy wants them, for no more bytes. It is c itself where the
// policy changes nothing, or where reach refuses what it wants: for a yield, a rule, or an order of moves that is not found.
func (f *fleet) arranged(c *candidate, p allocator.Problem, reach func(*candidate) bool) *candidate {
	if f.p.Policy == allocator.AsFound || slices.Equal(c.at, f.home) || slices.Contains(c.at, -1) {
		return c
	}
	p.Policy = f.p.Policy
	to := make([][]int, len(p.Groups))
	for g := range to {
		to[g] = c.at[f.first[g] : f.first[g]+p.Groups[g].Count]
	}
	var route func(g, vm, host int) bool
	if f.p.NoRoute != nil {
		route = func(g, vm, host int) bool { return f.noRoute(f.home[f.first[g]+vm], host) == "" }
	}
	hosts, ok := allocator.Arrange(p, f.p.Rules, to, route)
	if !ok {
		return c
	}
	other := &candidate{at: slices.Concat(hosts...)}
	if other.direct = f.cost(other.at); !reach(other) || other.bytes > c.bytes {
		return c
	}
	return other
}

// arranged is a placement of a drain by the policy.
func (e *emptying) arranged(c *candidate) *candidate {
	return e.f.arranged(c, newSearch(e.f).p, func(o *candidate) bool { return e.reach(o) && o.yield >= c.yield-sameYield })
}

// arranged is a placement of a re-balance by the policy. A higher minimum yield is passed over, too: a greater budget, for which it may
// not be found, must not give less.
func (pl *Planner) arranged(c *candidate) *candidate {
	return pl.s.f.arranged(c, pl.s.p, func(o *candidate) bool {
		return pl.s.judge(o) && o.broken <= c.broken && o.missing <= c.missing && byYield(o.yield, c.yield) == 0 && pl.s.order(o)
	})
}
