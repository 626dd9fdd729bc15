package allocator

import "slices"

// Searches with a budget for moves. A greater budget must never give a worse result, whatever
// the work. So every search that is made has a budget, a start and an effort that
// do not depend on the budget asked for, and the placements that count for a
// budget are those that count for any smaller one, and more:
//
//   - a ladder of budgets (none, the smallest VM, doublings of it, no limit) is
//     climbed, each search going on from the best placement of those below, up
//     to the first rung that is not below the budget asked for;
//   - of that rung all placements on the way count that keep to the budget;
//   - where the rung is proved, budgets between it and the one below are searched,
//     too. The next is chosen by what was found. Smaller budgets are searched only where
//     the search above was proved: no smaller budget can then lead to more.
//
// unlimited stands for no budget.
const unlimited = int64(-1)

// rung is one search among several, each with a budget for moves of its own.
type rung struct {
	from     []int32 // where it begins; nil: anywhere
	partial  bool    // it may not use up the time, and its failure is not the end
	thorough bool    // it asks for a proof with more VMs than usual
	within   int64   // >= 0: a placement on the way counts if moves cost no more
	near     []int32 // the best that does
	final    bool    // no placement within the budget is better than the one it found
	proved   float64 // upper bound for the budget asked for
}

// maxRounds is how many budgets between two rungs are searched.
const maxRounds = 12

// budgets is the state of searchMoves.
type budgets struct {
	w     *work
	asked int64
	bound float64 // of any budget
	found candidate
	below candidate // the best of searches with a budget that is at most the one asked for
}

// candidate is a placement, and what it is worth.
type candidate struct {
	host  []int32
	yield float64
	cost  int64
}

func (b *budgets) candidate(host []int32) candidate {
	w := b.w
	c := candidate{host: host, yield: -1}
	if host == nil {
		return c
	}
	if w.highest > 0 {
		c.yield = w.realized(host)
	} else {
		c.yield = min(1, 1/w.m.Level(host))
	}
	for vm, j := range host {
		if home := w.home[vm]; home >= 0 && home != j {
			c.cost += w.m.Rules.Cost[vm]
		}
	}
	return c
}

func (b *budgets) better(c candidate) {
	if c.host != nil && c.yield > b.found.yield {
		b.found = c
	}
}

// within says whether the first budget is at most the second.
func within(a, b int64) bool { return b == unlimited || a != unlimited && a <= b }

// search is one search with a budget. infeasible: no placement keeps to the
// budget asked for.
func (b *budgets) search(budget, steps int64) (c candidate, final, infeasible bool) {
	w := b.w
	w.m.Rules.Budget = budget
	w.weigh(1)
	w.from, w.near, w.within, w.final = b.below.host, nil, -1, false
	w.steps, w.bound = steps, b.bound
	reached := within(b.asked, budget)
	if reached && budget != b.asked {
		w.within = max(0, b.asked)
	}
	host, _ := w.once()
	infeasible = reached && host == nil && w.final
	proved := w.bound
	w.bound = b.bound
	w.weigh(1) // once may have asked with other weights
	c = b.candidate(host)
	if within(budget, b.asked) {
		b.better(c)
		if c.yield > b.below.yield {
			b.below = c
		}
	} else {
		b.better(b.candidate(w.near))
		if c.host != nil && c.cost <= b.asked {
			b.better(c)
		}
	}
	if reached {
		w.proved = min(w.proved, proved)
	}
	return c, w.final, infeasible
}

// searchMoves is search where moves are bounded, or at least count.
func (w *work) searchMoves() (host []int32, infeasible bool) {
	rules := *w.m.Rules
	w.m.Rules = &rules
	var total, lowest int64
	for vm, c := range rules.Cost {
		if w.home[vm] >= 0 && c > 0 {
			total += c
			if lowest == 0 || c < lowest {
				lowest = c
			}
		}
	}
	b := &budgets{w: w, asked: rules.Budget, bound: w.bound, found: candidate{yield: -1}, below: candidate{yield: -1}}
	if b.asked < 0 || b.asked >= total {
		b.asked = unlimited
	}
	w.proved = w.bound
	ladder := []int64{0}
	for rung := lowest; rung > 0 && rung < total; rung *= 2 {
		ladder = append(ladder, rung)
	}
	ladder = append(ladder, unlimited)

	all := w.steps
	w.partial = true
	low := int64(-1)
	for _, rung := range ladder {
		steps := max(1, all/int64(4*len(ladder)))
		if w.s.Stop != nil {
			steps = min(steps, 50_000+int64(len(w.group))*100)
		} else if rung == unlimited {
			steps = max(1, all/2)
		}
		top, final, none := b.search(rung, steps)
		if none {
			return b.end(all, true)
		}
		if b.found.yield >= b.bound-provedGap/10 {
			break // there is no more
		}
		if within(b.asked, rung) {
			if final && rung != b.asked && w.s.Stop == nil {
				return b.end(all, b.between(low, top, max(1, all/(4*maxRounds))))
			}
			break
		}
		low = rung
	}
	return b.end(all, false)
}

// between searches with budgets above low and below what the placement costs
// that is proved to be the best there is with any more. infeasible: no placement
// keeps to the budget asked for.
func (b *budgets) between(low int64, top candidate, steps int64) (infeasible bool) {
	for round := range maxRounds {
		if top.cost <= b.asked || top.yield <= b.below.yield+provedGap/10 || top.cost-low < 2 {
			return false
		}
		budget := top.cost - 1
		if round%2 == 1 {
			budget = low + (top.cost-low)/2
		}
		c, final, none := b.search(budget, steps)
		if within(budget, b.asked) {
			low = budget
			continue
		}
		if !final || c.host == nil {
			return none
		}
		top = c
	}
	return false
}

// end is the answer. Where time, not work, is the limit, the rest of it goes to
// the very budget; so does a quarter of the work where there is none larger.
func (b *budgets) end(steps int64, infeasible bool) ([]int32, bool) {
	w := b.w
	w.partial = false
	if !infeasible && b.found.yield < w.proved-provedGap/10 && (w.s.Stop != nil || b.asked == unlimited) {
		b.below = b.found
		if w.s.Stop == nil {
			steps = max(1, steps/4)
		}
		w.thorough = b.asked == unlimited
		_, _, infeasible = b.search(b.asked, steps)
	}
	w.m.Rules.Budget = b.asked
	w.bound = w.proved
	if infeasible {
		w.weigh(1)
		return nil, w.surely() || w.highest > 0 && w.surelyFloors()
	}
	if b.found.host == nil {
		return nil, false
	}
	host := slices.Clone(b.found.host)
	if w.highest > 0 {
		w.weigh(min(1, b.found.yield))
	}
	w.arrange(host)
	w.prefer(host)
	return host, false
}
