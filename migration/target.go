package migration

import (
	"cmp"
	"slices"

	"evenkeel/allocator"
)

// candidate is a placement of all VMs. What it is worth and what it costs does not
// hang on any budget.
type candidate struct {
	at      []int   // [vm]
	broken  int     // hosts where a rule or the memory is not kept
	missing int     // virtual clusters below their MinYield
	yield   float64 // minimum
	direct  float64 // bytes, if nothing has to be parked

	ordered bool
	ops     []op
	bytes   float64 // of the ops
	why     string  // there are none
}

// better is the order of worth.
func (c *candidate) better(d *candidate) int {
	return cmp.Or(cmp.Compare(c.broken, d.broken), cmp.Compare(c.missing, d.missing), cmp.Compare(d.yield, c.yield), cmp.Compare(c.direct, d.direct))
}

// search is what New does.
type search struct {
	f     *fleet
	p     allocator.Problem // hosts without what has to stay free, but with room for what is there
	cost  [][]float64
	found []candidate
	bound float64
}

const (
	// Up to fewVMs the placements of all budgets are asked for, down from each
	// of budgetShares at most mostBudgets; up to someVMs those of budgetShares; up to
	// manyVMs these, too, if nothing else finds any.
	fewVMs      = 12
	mostBudgets = 24
	someVMs     = 48
	manyVMs     = 2000

	sameBytes = 1e-9
	sameYield = 1e-9
)

// budgetShares are budgets, as parts of the bytes of all VMs that may move.
var budgetShares = [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}

func newSearch(f *fleet) *search {
	s := &search{f: f, p: f.p.allocation(), bound: 1}
	growth := 0.0
	for g := range f.p.Groups {
		if f.p.Groups[g].Count > 0 {
			growth = max(growth, f.p.Groups[g].Growth)
		}
	}
	for j := range s.p.Hosts {
		s.p.Hosts[j].Memory = max(0, f.p.Hosts[j].room(growth), f.used[j])
	}
	s.cost = make([][]float64, len(f.p.Groups))
	for vm, g := range f.group {
		c := f.bytes[vm]
		if f.held[vm] {
			c = 2*f.total + 1 // more than any budget that is asked for
		}
		s.cost[g] = append(s.cost[g], c)
	}
	for g := range s.cost {
		if s.cost[g] == nil {
			s.cost[g] = []float64{}
		}
	}
	return s
}

// run collects candidates.
func (s *search) run() {
	f := s.f
	steps := f.p.Steps
	if steps <= 0 {
		steps = DefaultSteps
	}
	if len(f.p.Hosts) == 0 {
		return
	}
	s.bound = allocator.UpperBound(s.p)
	if !slices.Contains(f.home, -1) {
		s.add(slices.Clone(f.home))
	}
	few := len(f.home) <= fewVMs
	if few {
		s.fronts(steps)
	} else if len(s.found) == 0 {
		s.best(0, steps)
	}
	if len(s.found) == 0 && !f.rules.Required() {
		if at := s.room(); at != nil {
			s.add(at)
		}
	}
	if len(s.found) > 0 && !f.rules.Required() {
		highest := 0.0
		for g := range f.p.Groups {
			highest = max(highest, f.p.Groups[g].MinYield)
		}
		begin := s.found[0]
		newShed(s, slices.Clone(begin.at)).run(func(at []int, level float64) {
			if 1/level < highest {
				s.add(at) // some floor binds: what others then have must be looked at
				return
			}
			c := candidate{at: at, direct: f.cost(at), broken: begin.broken, yield: 1 / level}
			if f.p.Rules != nil || begin.broken > 0 {
				c.broken = f.broken(at)
			}
			s.found = append(s.found, c)
		})
	}
	if n := len(f.home); !few && (n <= someVMs || n <= manyVMs && (f.rules.Required() || len(s.found) == 0)) {
		for _, share := range budgetShares {
			s.best(f.total*share, steps)
		}
	}
	slices.SortStableFunc(s.found, func(a, b candidate) int { return a.better(&b) })
}

// fronts searches for the best placements of all budgets, from some on
// downwards, the next being what the one before costs and a little less.
func (s *search) fronts(steps int64) {
	for i := len(budgetShares) - 1; i >= 0; i-- {
		budget := s.f.total * budgetShares[i]
		for range mostBudgets {
			c := s.best(budget, steps)
			if c == nil || c.direct <= 0 {
				break
			}
			if budget = c.direct * (1 - sameBytes); i > 0 && budget < s.f.total*budgetShares[i-1] {
				break
			}
		}
	}
	s.best(0, steps)
}

// best asks the allocator for a placement within a budget.
func (s *search) best(budget float64, steps int64) *candidate {
	o := allocator.Best(s.p, allocator.Search{Steps: steps, Rules: s.f.p.Rules, MoveBudget: &budget, MoveBytes: s.cost})
	if o.Verdict < allocator.Feasible {
		return nil
	}
	if budget >= s.f.total {
		s.bound = min(s.bound, max(o.UpperBound, o.Solution.MinYield))
	}
	at := make([]int, 0, len(s.f.home))
	for g := range o.Solution.Hosts {
		at = append(at, o.Solution.Hosts[g]...)
	}
	return s.add(at)
}

// add judges a placement.
func (s *search) add(at []int) *candidate {
	c := candidate{at: at, direct: s.f.cost(at)}
	sol, err := s.divide(at)
	if err != nil {
		return nil
	}
	c.yield, c.missing = sol.MinYield, len(sol.Shortfall)
	c.broken = s.f.broken(at)
	s.found = append(s.found, c)
	return &s.found[len(s.found)-1]
}

// divide is the CPU of everybody in a placement.
func (s *search) divide(at []int) (allocator.Solution, error) {
	return allocator.Allocate(s.f.placed(s.p, at))
}

// placed is the problem with all VMs in a placement.
func (f *fleet) placed(p allocator.Problem, at []int) allocator.Problem {
	p.Groups = slices.Clone(p.Groups)
	for g := range p.Groups {
		first := f.first[g]
		p.Groups[g].Hosts = at[first : first+p.Groups[g].Count]
	}
	return p
}

// broken is how many hosts do not keep their memory or a rule in a placement.
func (f *fleet) broken(at []int) (n int) {
	hosts := len(f.p.Hosts)
	used, growth, groups := make([]float64, hosts), make([]float64, hosts), make([][]int, hosts)
	for vm, j := range at {
		used[j] += f.of(vm).Memory
		growth[j] = max(growth[j], f.of(vm).Growth)
		if f.p.Rules != nil {
			groups[j] = append(groups[j], f.group[vm])
		}
	}
	for j := range used {
		if !fits(used[j], f.p.Hosts[j].room(growth[j])) && used[j] > 0 || f.p.Rules != nil && !f.rules.Kept(j, groups[j]) {
			n++
		}
	}
	return n
}
