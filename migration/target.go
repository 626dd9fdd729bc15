package migration

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/allocator"
)

// candidate is a placement of all VMs. Its worth and its cost do not
// depend on any budget.
type candidate struct {
	at      []int   // [vm]
	broken  int     // hosts where a rule or the memory is not kept
	missing int     // virtual clusters below their MinYield
	yield   float64 // minimum
	direct  float64 // bytes, without staging hops

	ordered bool
	ops     []op
	bytes   float64 // of the ops
	why     string  // there are no ops
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
	steps int64 // left
	ended bool

	stopped bool // by Problem.Stop

	direct bool    // orders are not asked for
	known  float64 // no placement of at most so many bytes is worth more than what was found; -1: nothing is known
}

const (
	// Up to fewVMs VMs the allocator is asked for the placements of all budgets: at most maxBudgets times down from each
	// of budgetShares. Up to someVMs it is asked for the placements of budgetShares; up to manyVMs only if rules require
	// VMs beside others, or no other search finds a placement.
	fewVMs     = 12
	maxBudgets = 24
	someVMs    = 48
	manyVMs    = 2000

	askSteps = 1_000_000 // of one question to the allocator

	sameBytes = 1e-9
	sameYield = 1e-9
)

// budgetShares are budgets, as parts of the bytes of all VMs that may move.
var budgetShares = [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}

func newSearch(f *fleet) *search {
	s := &search{f: f, p: f.p.allocation(), bound: 1, steps: f.p.Steps, known: -1}
	if s.steps <= 0 {
		s.steps = DefaultSteps
	}
	reclaimable := 0.0
	for g := range f.p.Groups {
		if f.p.Groups[g].Count > 0 {
			reclaimable = max(reclaimable, f.p.Groups[g].Reclaimable)
		}
	}
	reserves := allocator.NewReserves[float64](len(s.p.Hosts), f.p.LargestOnly)
	for vm, j := range f.home {
		if j >= 0 {
			reserves[j].Add(f.of(vm).Reclaimable)
		}
	}
	for j := range s.p.Hosts { // the reserve counts one VM more than there are, the largest: that several may need more is for order to see
		s.p.Hosts[j].Memory = max(0, f.p.Hosts[j].room(reserves[j].With(reclaimable)), f.used[j])
	}
	s.cost = make([][]float64, len(f.p.Groups))
	for vm, g := range f.group {
		c := f.bytes[vm]
		if f.pinned[vm] {
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
	if len(f.p.Hosts) == 0 {
		return
	}
	s.bound = allocator.UpperBound(s.p)
	if !slices.Contains(f.home, -1) {
		s.add(slices.Clone(f.home))
	}
	if len(s.found) == 0 {
		s.best(0, askSteps)
	}
	if len(s.found) == 0 && !f.rules.Required() {
		if at := s.room(); at != nil {
			s.add(at)
		}
	}
	if len(s.found) > 0 && !f.rules.Required() {
		s.shed()
	}
	s.ask()
	for i := range s.found {
		if c := &s.found[i]; c.broken > 0 {
			s.bound = max(s.bound, c.yield) // it was proved of placements that keep the rules
		}
	}
	slices.SortStableFunc(s.found, func(a, b candidate) int { return a.better(&b) })
}

// shed adds the placements that moving VMs off the fullest hosts of the first candidate leads to, and searches
// levels from that candidate.
func (s *search) shed() {
	f, begin := s.f, s.found[0]
	highest := 0.0
	for g := range f.p.Groups {
		highest = max(highest, f.p.Groups[g].MinYield)
	}
	newShedding(s, slices.Clone(begin.at)).run(s, func(at []int, level float64) int {
		if 1/level < highest {
			s.add(at) // a floor binds: the level does not say what yield the others get
			return -1
		}
		c := candidate{at: at, direct: f.cost(at), broken: begin.broken, yield: 1 / level}
		if f.p.Rules != nil || begin.broken > 0 {
			c.broken = f.broken(at)
		}
		s.found = append(s.found, c)
		return len(s.found) - 1
	})
	if begin.broken == 0 && len(f.home) <= maxFront {
		s.known = s.searchLevels(begin, highest)
		if begin.yield < highest || slices.Contains(f.home, -1) {
			s.known = -1
		}
	}
}

// ask asks the allocator for the best placements of budgets that are not known, fewer of them the more VMs there are.
func (s *search) ask() {
	f, n := s.f, len(s.f.home)
	switch {
	case n <= fewVMs:
		if !math.IsInf(s.known, 1) { // otherwise nothing is left to be found
			s.fronts(s.known)
		}
	case n <= someVMs || n <= manyVMs && (f.rules.Required() || len(s.found) == 0):
		for _, share := range budgetShares {
			if f.total*share > s.known {
				s.best(f.total*share, askSteps)
			}
		}
	}
}

// fronts searches for the best placements of all budgets that are not known. It goes down from each
// of budgetShares: the next budget is a little less than what the placement found costs.
func (s *search) fronts(known float64) {
	for i := len(budgetShares) - 1; i >= 0; i-- {
		budget := s.f.total * budgetShares[i]
		if budget <= known {
			return
		}
		for range maxBudgets {
			c := s.best(budget, askSteps)
			if c == nil || c.direct <= 0 {
				break
			}
			if budget = c.direct * (1 - sameBytes); i > 0 && budget < s.f.total*budgetShares[i-1] {
				break
			}
		}
	}
	s.best(0, askSteps)
}

// done says whether the work is to end, some steps more having been done.
func (s *search) done(steps int64) bool {
	s.steps -= steps
	if s.ended {
		return true
	}
	s.stopped = s.stopped || s.f.p.Stop != nil && s.f.p.Stop()
	s.ended = s.stopped || s.steps <= 0
	return s.ended
}

// best asks the allocator for a placement within a budget; nil: none was found,
// or there is no time to ask.
func (s *search) best(budget float64, steps int64) *candidate {
	if s.ended {
		return nil
	}
	defer s.done(steps)
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

// add judges a placement, and keeps it.
func (s *search) add(at []int) *candidate {
	c := candidate{at: at, direct: s.f.cost(at)}
	if !s.judge(&c) {
		return nil
	}
	s.found = append(s.found, c)
	return &s.found[len(s.found)-1]
}

// judge finds what a placement is worth.
func (s *search) judge(c *candidate) bool {
	sol, err := s.divide(c.at)
	if err != nil {
		return false
	}
	c.yield, c.missing, c.broken = sol.MinYield, len(sol.Shortfall), s.f.broken(c.at)
	return true
}

// order orders the moves of a candidate, once.
func (s *search) order(c *candidate) bool {
	if !c.ordered {
		c.ordered = true
		if c.ops, c.why = newOrder(s.f, c.at).find(); c.why == "" {
			for _, o := range c.ops {
				if o.from >= 0 {
					c.bytes += s.f.bytes[o.vm]
				}
			}
		}
	}
	return c.why == ""
}

// divide is the CPU of all VMs in a placement.
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
	for _, b := range f.brokenHosts(at) {
		if b {
			n++
		}
	}
	return n
}
