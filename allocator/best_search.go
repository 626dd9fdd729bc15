package allocator

import (
	"math"

	"evenkeel/allocator/search"
)

// search returns the best placement found, host per VM of the model, nil if
// none; or that there is proved to be none.
func (w *work) search() (host []int32, infeasible bool) {
	highest := w.highest
	steps := w.steps
	if highest > 0 {
		steps = w.portion(steps / 2)
	}
	r := w.minimize(steps, nil)
	if r.Infeasible {
		return nil, w.surely()
	}
	if r.Lower > 0 {
		w.bound = min(w.bound, outwards(1/r.Lower))
	}
	if r.Host != nil && (highest == 0 || 1/r.Level >= highest) {
		if highest > 0 && !r.Optimal && w.timed() {
			if more := w.minimize(w.steps, r.Host); more.Host != nil {
				r = more
			}
		}
		w.prefer(r.Host)
		return r.Host, false
	}
	return w.withFloors(r.Host)
}

// surely repeats a proof that there is no placement with limits that are wider
// by provedSlack.
func (w *work) surely() bool {
	m := *w.m
	m.Memory = make([]int64, len(w.m.Memory))
	for j := range m.Memory {
		m.Memory[j] = int64(float64(w.m.Memory[j])*(1+provedSlack)) + 1
	}
	r := search.Minimize(&m, search.Options{Steps: w.steps, Stop: w.s.Stop, Goal: math.Inf(1), Prove: true})
	return r.Infeasible
}

// withFloors searches where some MinYield is above what all others can have:
// the question whether a yield y is reached, with every VM counted at the
// greater of y and its floor, is asked for ever closer y. start may be nil.
func (w *work) withFloors(start []int32) (host []int32, infeasible bool) {
	least, open := -1.0, w.bound // reached, and not known to fail
	proved := w.bound            // no placement reaches more
	try := func(y float64, steps int64) {
		w.weigh(y)
		from := host
		if from == nil {
			from = start
		}
		r := w.minimize(steps, from)
		switch {
		case r.Host != nil && r.Level <= 1:
			host, least = r.Host, max(y, w.realized(r.Host))
		case r.Infeasible || r.Lower > 1+1e-12:
			proved, open = min(proved, y), min(open, y)
		default:
			open = min(open, y)
		}
	}
	rest := w.steps / 2
	try(0, w.portion(rest/2))
	if host == nil {
		return nil, proved == 0 && w.surelyFloors()
	}
	rest /= 2
	for patience := int64(1); ; patience *= 4 {
		for y := open; open-least > provedGap/10 && !w.stopped(); y = least + (open-least)/2 {
			steps := w.portion(rest / 8)
			if w.timed() {
				steps *= patience
			}
			try(y, steps)
			rest -= min(rest/8, steps)
		}
		if !w.timed() || w.stopped() || proved-least <= provedGap/10 || patience > 1<<20 {
			break
		}
		open = proved
	}
	w.bound = min(w.bound, outwards(max(proved, least)))
	w.weigh(least)
	w.prefer(host)
	return host, false
}

// surelyFloors repeats the proof that the floors cannot be kept with wider limits.
func (w *work) surelyFloors() bool {
	w.weigh(0)
	m := *w.m
	m.CPU, m.Memory = make([]int64, len(w.m.CPU)), make([]int64, len(w.m.Memory))
	for j := range m.CPU {
		m.CPU[j] = int64(float64(w.m.CPU[j])*(1+provedSlack)) + 1
		m.Memory[j] = int64(float64(w.m.Memory[j])*(1+provedSlack)) + 1
	}
	r := search.Minimize(&m, search.Options{Steps: w.steps, Stop: w.s.Stop, Goal: 1, Prove: true})
	return r.Infeasible || r.Lower > 1
}

// timed tells whether it is Stop, not the steps, that ends the search.
func (w *work) timed() bool { return w.s.Stop != nil }

// portion is how much of the work one of several searches may do: where Stop
// ends them all, none may wait for it.
func (w *work) portion(steps int64) int64 {
	if w.timed() {
		return min(steps, 50_000+int64(len(w.group))*100)
	}
	return steps
}

func (w *work) stopped() bool { return w.s.Stop != nil && w.s.Stop() }

// realized is the minimum yield that the placement allows, with the floors kept.
func (w *work) realized(host []int32) float64 {
	p := *w.p
	p.Groups = append([]Group(nil), w.p.Groups...)
	for g := range p.Groups {
		p.Groups[g].Hosts = make([]int, p.Groups[g].Count)
	}
	for vm, j := range host {
		p.Groups[w.group[vm]].Hosts[w.task[vm]] = int(j)
	}
	loads, _ := countLoads(&p)
	floor := make([]float64, len(p.Groups))
	for g := range floor {
		floor[g] = w.t.floor[w.t.of[g]]
	}
	return maxMin(&p, loads, floor)
}

// Up to someVMs Best asks for a proof, too: it is near. Where moves are bounded,
// up to fewVMs: what is found with a proof by one budget only may be better than
// what is found without by a larger one.
const (
	someVMs = 48
	fewVMs  = 12
)

// minimize searches the model, level 1 being the goal.
func (w *work) minimize(steps int64, start []int32) search.Result {
	o := search.Options{Seed: w.s.Seed, Steps: steps, Stop: w.s.Stop, Goal: 1, Gap: w.s.Gap, Prove: w.prove, Start: start}
	if w.highest == 0 {
		// At the upper bound there is nothing left to gain.
		o.Goal = max(1, 1/w.bound/(1-max(w.s.Gap, 1e-13)))
	}
	if !w.moves {
		o.Prove = o.Prove || len(w.m.Weight) <= someVMs
		return search.Minimize(w.m, o)
	}
	o.Prove = o.Prove || len(w.m.Weight) <= fewVMs || w.s.MoveBudget == nil && len(w.m.Weight) <= someVMs
	return w.minimizeMoves(o)
}

// minimizeMoves searches with a budget for moves. So that more bytes never give
// less, everything that a larger budget tries includes what smaller ones tried:
// a ladder of budgets that does not depend on the one that is given is climbed,
// each search going on from the placement of the one below. Of the first
// budget above the given one all placements on the way count that keep to it.
// Last, where that can be proved, the optimum for the very budget is taken.
func (w *work) minimizeMoves(o search.Options) search.Result {
	rules := *w.m.Rules
	m := *w.m
	m.Rules = &rules
	var total, least int64
	for vm, c := range rules.Cost {
		if w.home[vm] >= 0 && c > 0 {
			total += c
			if least == 0 || c < least {
				least = c
			}
		}
	}
	const free = int64(-1)
	budget := w.m.Rules.Budget
	if budget < 0 || budget >= total {
		budget = free
	}
	ladder := []int64{0}
	for b := least; b > 0 && b < total; b *= 2 {
		ladder = append(ladder, b)
	}
	ladder = append(ladder, free)

	best := search.Result{Level: math.Inf(1)}
	rung := o
	rung.Prove = false
	rung.Steps = w.portion(max(1, o.Steps/int64(2*len(ladder))))
	for _, b := range ladder {
		rules.Budget = b
		rung.Start = best.Host
		rung.Within = -1
		above := budget != free && (b == free || b > budget)
		if above {
			rung.Within = budget
		}
		if b == free && !(above && w.timed()) {
			rung.Steps = max(1, o.Steps/2)
		}
		r := search.Minimize(&m, rung)
		if r.Infeasible && b == free {
			return r
		}
		best.Lower = max(best.Lower, r.Relaxed)
		if above {
			r.Host, r.Level = r.Near, r.NearLevel
		}
		if r.Host != nil && r.Level < best.Level {
			best.Host, best.Level = r.Host, r.Level
		}
		if above || best.Level <= o.Goal {
			break
		}
	}
	if (o.Prove || w.timed()) && best.Level > o.Goal {
		rules.Budget = budget
		o.Start = best.Host
		r := search.Minimize(&m, o)
		if r.Infeasible || r.Optimal || w.timed() && r.Host != nil {
			return r
		}
		best.Lower = max(best.Lower, r.Lower)
	}
	best.Optimal = best.Host != nil && best.Level <= max(o.Goal, best.Lower)
	return best
}
