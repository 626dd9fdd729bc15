package migration

import (
	"math"
	"slices"
)

const (
	budgetTries = 16     // levels, each of the two times
	nearLevel   = 0.0001 // least distance of two levels, as a part of them
	budgetPart  = 4      // of the steps that are left one in so many are for it
)

// useBudget looks between the levels tried, row, for the lowest one that the budget suffices for: first among those that reach comes to,
// and after polish among those that lower comes to as well. Whatever the budget is, as many steps are left afterwards. Of few VMs
// searchLevels goes through the levels of all budgets.
func (h *shedding) useBudget(s *search, row []tried, low float64, found func(at []int, level float64) int, polish func()) {
	budget := s.f.p.Budget
	if s.ended || budget <= 0 || len(h.base) <= maxFront {
		polish()
		return
	}
	part := s.steps / budgetPart
	rest := s.steps - part
	b := s.around(budget, row) // what it orders is not counted: for another budget these are other ones
	s.withSteps(&part, func() { h.bisect(s, &b, low, false, found) })
	s.withSteps(&rest, polish)
	s.withSteps(&part, func() { h.bisect(s, &b, low, true, found) })
	s.withSteps(&rest, func() {})
}

// bounds are the greatest yield that a budget is known to suffice for, and the least one that takes more; +Inf: none is known to.
type bounds struct{ budget, within, beyond float64 }

// withSteps does what takes steps from an account of its own.
func (s *search) withSteps(steps *int64, do func()) {
	s.steps, s.ended = *steps, s.stopped
	if !s.done(0) {
		do()
	}
	*steps = s.steps
}

// around returns the bounds of a budget among the levels tried.
func (s *search) around(budget float64, row []tried) bounds {
	b := bounds{budget, row[0].yield, math.Inf(1)}
	for i := range row {
		if r := &row[len(row)-1-i]; r.yield > b.within && r.cost <= budget && s.sure(r) && s.bytes(r) <= budget {
			b.within = r.yield
		}
	}
	for i := range row {
		if r := &row[i]; r.yield > b.within && r.yield < b.beyond && s.sure(r) {
			b.beyond = r.yield
		}
	}
	return b
}

// bisect halves the distance of two levels, one that the budget suffices for and one that it does not suffice for. further: by lower,
// where reach leaves a host above the level.
//
// A greater budget must not give a lower yield, although it leads to other levels. Therefore bisect begins between two levels that no
// budget touches, and keeps only what lies between the two that bound it then. As long as two budgets agree on which levels they suffice
// for, they try the same ones. At the first level for which only the greater one suffices it has a placement that is better than all
// that the lesser one comes to from then on. Levels bound the search only if their bytes suffice for them: they have an order of moves
// without staging hops.
func (h *shedding) bisect(s *search, b *bounds, low float64, further bool, found func(at []int, level float64) int) {
	top := 1 / b.within
	high, low := top, max(low, 1/b.beyond) // levels
	for range budgetTries {
		t := (high + low) / 2
		if s.ended || high-low < nearLevel*t {
			return
		}
		h.begin(s, t)
		if further {
			h.lower(s, t*above, func(float64) {})
			if s.ended {
				return // with more steps it would not end here
			}
		}
		r := h.end(t, top)
		if r.yield > b.within && r.yield < b.beyond {
			if r.found = found(slices.Clone(h.at), 1/r.yield); r.found < 0 {
				return // a floor binds: levels do not say what is left for the others
			}
		}
		switch {
		case !s.sure(&r):
			low = t
		case s.bytes(&r) <= b.budget:
			b.within, high = r.yield, 1/r.yield
		default:
			b.beyond, low = r.yield, t
		}
	}
}

// sure reports whether all hosts came to a level, and the bytes of its placement suffice for it.
func (s *search) sure(r *tried) bool {
	if r.found < 0 || !r.reached() {
		return false
	}
	c := &s.found[r.found]
	if c.broken > 0 || c.missing > 0 {
		return false
	}
	if s.direct {
		return true
	}
	if !c.ordered {
		s.done(int64(12*len(c.at) + 20*len(s.p.Hosts)))
	}
	return s.order(c) && c.bytes <= c.direct*(1+sameBytes)
}

// bytes is what the placement of a level that is sure takes: the sums of direct moves and of their order may differ by rounding.
func (s *search) bytes(r *tried) float64 {
	c := &s.found[r.found]
	return max(c.direct, c.bytes)
}
