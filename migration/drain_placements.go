package migration

import (
	"cmp"
	"slices"

	"evenkeel/allocator"
)

// quickSteps of a question to the allocator whether some VMs can leave.
const quickSteps = 200_000

// candidates are placements in which these VMs have left, that keep rules and floors and can be reached within
// the budget: the cheapest that is found, and, if well, the one with the greatest minimum yield.
func (e *emptying) candidates(vms []int, well bool) []candidate {
	if len(vms) == 0 {
		return e.sound([]candidate{{at: slices.Clone(e.f.home)}}, false)
	}
	if e.last = (finding{proof: e.impossible(vms)}); e.last.proof != "" {
		return nil
	}
	well = well && e.d.OptionalBytes > 0
	found := e.simple(vms)
	few := len(e.f.home) <= someVMs
	if !few && !well {
		if found := e.sound(found, false); len(found) > 0 {
			return found
		}
	}
	s, err := e.without(vms)
	if err != nil {
		return e.sound(found, false)
	}
	steps := e.steps
	if !well { // one of many questions
		steps = min(steps, quickSteps)
	}
	if few {
		s.best(0, steps)
	}
	if well { // unless no placement could gain enough
		if found := e.sound(e.taken(&found, s), false); len(found) > 0 && found[0].yield*(1+e.d.MinGain) >= e.bound()-sameYield {
			return found
		}
		s.run()
	}
	if found := e.sound(e.taken(&found, s), well); len(found) > 0 {
		return found
	}
	if !e.f.rules.Required() {
		if at := s.room(); at != nil {
			s.found = append(s.found, candidate{at: at})
		}
	}
	if few || e.f.rules.Required() && len(e.f.home) <= manyVMs {
		s.best(s.f.total, steps)
	}
	if found := e.sound(e.taken(&found, s), well); len(found) > 0 {
		return found
	}
	if c := e.searchOrders(vms); c != nil {
		return e.sound([]candidate{*c}, false)
	}
	return nil
}

// taken are placements that a search found, besides others.
func (e *emptying) taken(found *[]candidate, s *search) []candidate {
	for i := range s.found {
		*found = append(*found, candidate{at: s.found[i].at, yield: s.found[i].yield})
	}
	s.found = nil
	return *found
}

// without is the search in which VMs that have to go have no host, so that to place them is free.
func (e *emptying) without(vms []int) (*search, error) {
	p := e.p
	p.Groups = slices.Clone(e.p.Groups)
	goes := make([]bool, len(e.f.home))
	for _, vm := range vms {
		goes[vm] = true
	}
	for g := range p.Groups {
		q := &p.Groups[g]
		if q.Hosts == nil {
			continue
		}
		q.Hosts = slices.Clone(q.Hosts)
		q.Pinned = slices.Clone(q.Pinned)
		for i := range q.Hosts {
			switch vm := e.f.first[g] + i; {
			case goes[vm]:
				q.Hosts[i] = -1
			case q.Hosts[i] >= 0 && e.leaves[q.Hosts[i]] && !e.f.pinned[vm]:
				q.Pinned = append(q.Pinned, i) // it stays, as things are
			}
		}
	}
	f, err := p.fleet()
	if err != nil {
		return nil, err
	}
	return newSearch(f), nil
}

// simple are placements that move only the VMs that have to leave.
func (e *emptying) simple(vms []int) (found []candidate) {
	for _, m := range manners {
		s := newPlacementTable(e.f)
		for _, vm := range vms {
			s.move(vm, -1)
		}
		if _, stuck := s.place(vms, m); stuck != nil {
			continue
		}
		found = append(found, candidate{at: slices.Clone(s.at)})
		if s.even(vms) {
			found = append(found, candidate{at: slices.Clone(s.at)})
		}
	}
	return found
}

// evenRounds bounds how often even improves.
const evenRounds = 400

// even lets the VMs given go from the host with the least yield to others, one by one, or change places
// with another of them, as long as that makes the least yield greater.
func (s *placementTable) even(vms []int) (better bool) {
	if s.f.rules.Required() {
		return false
	}
	mine := make([][]int, len(s.open))
	for _, vm := range vms {
		mine[s.at[vm]] = append(mine[s.at[vm]], vm)
	}
	for range evenRounds {
		worst, y := -1, 1.0
		for j := range mine {
			if len(mine[j]) > 0 {
				if z := s.yield(j); z < y {
					worst, y = j, z
				}
			}
		}
		if worst < 0 || !s.raise(worst, y*(1+1e-9), mine) {
			return better
		}
		better = true
	}
	return better
}

// raise brings host j, and the hosts that take its VMs, above a yield.
func (s *placementTable) raise(j int, y float64, mine [][]int) bool {
	begin := len(s.done)
	bestVM, bestTo, bestBack, best := -1, -1, -1, y
	for _, vm := range slices.Clone(mine[j]) {
		for to := range s.open {
			if to == j || !s.open[to] {
				continue
			}
			try := func(back int) {
				// Make the change, compare the yields, and undo it.
				if back >= 0 {
					s.move(back, -1)
				}
				s.move(vm, -1)
				if s.may(to, []int{vm}) && (back < 0 || s.may(j, []int{back})) {
					z := s.yieldWith(to, []int{vm})
					if back >= 0 {
						z = min(z, s.yieldWith(j, []int{back}))
					} else {
						z = min(z, s.yield(j))
					}
					if z > best {
						bestVM, bestTo, bestBack, best = vm, to, back, z
					}
				}
				s.undo(begin)
			}
			try(-1)
			for _, back := range slices.Clone(mine[to]) {
				if s.f.of(back).CPU < s.f.of(vm).CPU {
					try(back)
				}
			}
		}
	}
	if bestVM < 0 {
		return false
	}
	go_ := func(vm, to int) {
		from := s.at[vm]
		mine[from] = slices.DeleteFunc(mine[from], func(o int) bool { return o == vm })
		mine[to] = append(mine[to], vm)
		s.move(vm, to)
	}
	go_(bestVM, bestTo)
	if bestBack >= 0 {
		go_(bestBack, j)
	}
	return true
}

// sound returns those of the placements found that keep every limit and can be reached within the budget: the
// cheapest, and, if well, the one with the greatest minimum yield that OptionalBytes allows, of equal ones the
// cheapest.
func (e *emptying) sound(found []candidate, well bool) (options []candidate) {
	for i := range found {
		c := &found[i]
		c.direct = e.f.cost(c.at)
		if c.yield == 0 {
			if sol, err := e.divide(c.at); err == nil {
				c.yield = sol.MinYield
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.direct, b.direct), cmp.Compare(b.yield, a.yield))
	})
	cheapest := -1
	for i := range found {
		c := &found[i]
		if cheapest >= 0 && c.direct >= found[cheapest].bytes {
			break
		}
		if e.reach(c) && (cheapest < 0 || c.bytes < found[cheapest].bytes) {
			cheapest = i
		}
	}
	if cheapest < 0 {
		return nil
	}
	options = []candidate{found[cheapest]}
	if !well {
		return options
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.yield, a.yield), cmp.Compare(a.direct, b.direct))
	})
	best := -1
	for i := range found {
		c := &found[i]
		if c.yield <= options[0].yield+sameYield || best >= 0 && c.yield < found[best].yield-sameYield {
			break
		}
		highest := options[0].bytes + e.d.OptionalBytes
		if c.direct > highest || best >= 0 && c.direct >= found[best].bytes || !e.reach(c) || c.bytes > highest || c.yield <= options[0].yield+sameYield {
			continue
		}
		if best < 0 || c.bytes < found[best].bytes {
			best = i
		}
	}
	if best >= 0 {
		options = append(options, found[best])
	}
	return options
}

// reach orders the moves to a placement; false: it costs too much, breaks something, or cannot be reached.
func (e *emptying) reach(c *candidate) bool {
	if c.direct > e.d.Budget || !e.keepsLimits(c) {
		return false
	}
	if !c.ordered {
		if c.ops, c.why = newOrder(e.f, c.at).find(); c.why != "" {
			return false
		}
		c.ordered, c.bytes = true, 0
	}
	c.bytes = 0
	for _, x := range c.ops {
		if x.from >= 0 {
			c.bytes += e.f.bytes[x.vm]
		}
	}
	return c.bytes <= e.d.Budget
}

// keepsLimits says whether a placement keeps floors and rules, where they are kept now, and whether VMs go to
// hosts that take them; it corrects the yield.
func (e *emptying) keepsLimits(c *candidate) bool {
	sol, err := e.divide(c.at)
	if err != nil || len(sol.Shortfall) > 0 {
		return false
	}
	c.yield = sol.MinYield
	comes := make([]bool, len(e.p.Hosts))
	for vm, j := range c.at {
		switch home := e.f.home[vm]; {
		case home == j:
		case j < 0 || e.p.Hosts[j].Cordoned || home >= 0 && e.f.pinned[vm] || !e.f.allowed(vm, j):
			return false
		default:
			comes[j] = true
		}
	}
	for j, broken := range e.f.brokenHosts(c.at) {
		if broken && (comes[j] || !e.broken[j]) {
			return false
		}
	}
	return true
}

// divide is the CPU of all VMs in a placement.
func (e *emptying) divide(at []int) (allocator.Solution, error) {
	return allocator.Allocate(e.f.placed(e.q, at))
}

// brokenHosts are those that do not keep their memory or a rule in a placement.
func (f *fleet) brokenHosts(at []int) []bool {
	n := len(f.p.Hosts)
	broken, used, reserves, groups := make([]bool, n), make([]float64, n), allocator.NewReserves[float64](n, f.p.LargestOnly), make([][]int, n)
	for vm, j := range at {
		used[j] += f.of(vm).Memory
		reserves[j].Add(f.of(vm).Reclaimable)
		if f.p.Rules != nil {
			groups[j] = append(groups[j], f.group[vm])
		}
	}
	for j := range used {
		broken[j] = !fits(used[j], f.p.Hosts[j].room(reserves[j])) && used[j] > 0 || f.p.Rules != nil && !f.rules.Kept(j, groups[j])
	}
	return broken
}
