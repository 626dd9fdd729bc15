package allocator

import (
	"math"

	"evenkeel/allocator/search"
)

// search returns the best placement found, host per VM of the model, nil if
// none; or that there is proved to be none.
func (w *work) search() (host []int32, infeasible bool) {
	if w.moves {
		return w.searchMoves()
	}
	if host, infeasible = w.once(); host != nil {
		w.arrange(host)
		w.prefer(host)
	}
	return host, infeasible
}

// once is one search of the model with the budget that its rules have, from
// w.from on. It leaves the weights as the placement wants them.
func (w *work) once() (host []int32, infeasible bool) {
	highest := w.highest
	steps := w.steps
	if highest > 0 {
		steps = w.portion(steps / 2)
	}
	r := w.minimize(steps, w.from)
	if r.Infeasible {
		w.final = true
		return nil, w.surely()
	}
	if r.Lower > 0 {
		w.bound = min(w.bound, outwards(1/r.Lower))
	}
	if r.Near != nil && 1/r.NearLevel >= highest {
		w.near = r.Near
	}
	if r.Host != nil && (highest == 0 || 1/r.Level >= highest) {
		if highest > 0 && !r.Optimal && w.timed() {
			if more := w.minimize(w.steps, r.Host); more.Host != nil {
				r = more
			}
		}
		w.final = r.Optimal
		return r.Host, false
	}
	return w.withFloors(r.Host)
}

// surely repeats a proof that there is no placement with limits that are wider
// by provedSlack.
func (w *work) surely() bool {
	if w.partial {
		return false
	}
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
	lowest, open := -1.0, w.bound // reached, and not known to fail
	proved := w.bound             // no placement reaches more
	even := false                 // a y was met that rounding alone keeps from being reached, or from being proved out of reach
	try := func(y float64, steps int64) {
		w.weigh(y)
		from := host
		if from == nil {
			from = start
		}
		r := w.minimize(steps, from)
		switch {
		case r.Host != nil && r.Level <= 1:
			host, lowest = r.Host, max(y, w.realized(r.Host))
		case r.Infeasible || r.Lower > 1+1e-12:
			proved, open = min(proved, y), min(open, y)
		default:
			open = min(open, y)
			even = even || r.Lower > 1-1e-12
		}
	}
	rest := w.steps / 2
	// Where time is the limit it is used: with ever more work, other draws and proofs.
	for steps := w.portion(rest / 2); ; steps *= 4 {
		try(0, steps)
		if host != nil || proved == 0 || !w.timed() || w.stopped() || steps > math.MaxInt64/64 {
			break
		}
		w.attempt++
	}
	w.attempt = 0
	if host == nil {
		w.final = proved == 0
		return nil, w.final && w.surelyFloors()
	}
	rest /= 2
	for patience := int64(1); ; patience *= 4 {
		for y := open; open-lowest > provedGap/10 && !w.stopped(); y = lowest + (open-lowest)/2 {
			steps := w.portion(rest / 8)
			if w.timed() {
				steps *= patience
			}
			try(y, steps)
			rest -= min(rest/8, steps)
		}
		if !w.timed() || w.stopped() || proved-lowest <= provedGap/10 || patience > 1<<20 {
			break
		}
		open = proved
	}
	if even && proved-lowest > provedGap {
		try(lowest+provedGap/2, w.portion(rest/2))
	}
	w.bound = min(w.bound, outwards(max(proved, lowest)))
	w.final = proved-lowest <= provedGap
	w.weigh(lowest)
	return host, false
}

// surelyFloors repeats the proof that the floors cannot be kept with wider limits.
func (w *work) surelyFloors() bool {
	if w.partial {
		return false
	}
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

// timed says whether it is Stop, not the steps, that ends the search.
func (w *work) timed() bool { return w.s.Stop != nil && !w.partial }

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
	return maxMin(w.p, w.loadsOf(host), w.t.floors())
}

// Up to someVMs Best asks for a proof, too: it is near. Where moves count there
// is one for each of many budgets, so up to fewVMs only.
const (
	someVMs = 48
	fewVMs  = 12
)

// minimize searches the model, level 1 being the goal.
func (w *work) minimize(steps int64, start []int32) search.Result {
	o := search.Options{Seed: w.s.Seed, Steps: max(1, steps), Stop: w.s.Stop, Goal: 1, Gap: w.s.Gap, Prove: w.prove, Start: start}
	if w.highest == 0 {
		// At the upper bound there is nothing left to gain.
		o.Goal = max(1, 1/w.bound/(1-max(w.s.Gap, 1e-13)))
	}
	switch {
	case !w.moves:
		o.Prove = o.Prove || len(w.m.Weight) <= someVMs
	case len(w.m.Weight) <= fewVMs || w.thorough && len(w.m.Weight) <= someVMs:
		o.Prove = true
	}
	if w.attempt > 0 {
		o.Prove = true
		o.Seed += uint64(w.attempt)
	}
	o.Within = w.within
	o.Other = w.start(w.m)
	return search.Minimize(w.m, o)
}
