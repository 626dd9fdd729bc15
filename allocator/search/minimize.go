package search

import "math"

// Options bound the work of Minimize.
type Options struct {
	Seed  uint64
	Steps int64       // about 10 ns each; 0: no limit
	Stop  func() bool // polled; nil: never
	Goal  float64     // a level at which to stop: nothing is gained below it
	Gap   float64     // stop at a level within this share of the bound, in [0, 1)
	Prove bool        // go on until the optimum is proved

	// Within >= 0: beside the best placement the best that costs at most this.
	Within int64

	Start []int32 // a placement to begin with, host per VM; not used if it breaks a rule

	// Other is asked, once, for a placement of another kind, where the start is above the goal; level is that
	// of the start, infinite if there is none. nil is no placement. The better of the two is improved.
	Other func(level float64) []int32
}

// Result is what Minimize found.
type Result struct {
	Host       []int32 // [vm]; nil: no placement was found
	Level      float64 // of the placement
	Lower      float64 // no placement has a lower level
	Relaxed    float64 // as Lower, whatever the budget
	Optimal    bool    // Level is proved to be least, or is at most the goal
	Infeasible bool    // proved: there is no placement

	Near      []int32 // with Options.Within: of the placements on the way that cost no more, the best
	NearLevel float64
}

// fewVMs is up to how many VMs a proof is quicker than a search.
const fewVMs = 14

// A start of more than manyVMs VMs whose level is within nearFloor of the level at which the search ends is improved
// before a placement of another kind is asked for: asking takes longer.
const (
	nearFloor = 0.005
	manyVMs   = 256
)

// Minimize finds a placement with a small greatest level.
func Minimize(m *Model, o Options) Result {
	steps := o.Steps
	if steps <= 0 {
		steps = math.MaxInt64 / 4
	}
	// A proof of a few VMs is quicker than the better of the bounds.
	r := Result{Lower: m.lowerLevel(!o.Prove || len(m.Weight) > fewVMs || m.Rules != nil)}
	r.Relaxed = r.Lower
	if NoMemory(m) {
		r.Infeasible = true
		return r
	}
	f := newFinder(m, o.Seed, steps, o.Stop)
	f.within = -1
	if m.budgeted() || m.Rules != nil && m.Rules.Home != nil {
		f.within = o.Within
	}
	lowest := max(o.Goal, r.Lower*(1+1e-12)) // no lower level is worth anything
	floor := max(lowest, r.Lower/(1-o.Gap))
	p := f.fill(lowest)
	if p != nil {
		_, r.Level = p.top()
		r.Host, r.Optimal = p.host, true
		return r
	}
	if o.Start != nil && m.Check(o.Start) {
		p = placementOf(m, o.Start)
	} else if host := f.evenly(floor); host != nil {
		if r.Level = m.Level(host); r.Level <= floor {
			r.Host, r.Optimal = host, r.Level <= lowest
			return r
		}
		p = placementOf(m, host)
	} else if p = f.dealt(); p == nil {
		p = f.other(nil, o.Other)
		o.Other = nil
		if p == nil && !(o.Prove && len(m.Weight) <= fewVMs) {
			p = f.byMemory()
		}
	}
	small := len(m.Weight) <= 256
	if p == nil {
		if !small {
			return r
		}
		if p, r.Infeasible = f.anywhere(); p == nil {
			return r
		}
	}
	rival := f.rival(p, o.Other, lowest, floor)
	if !o.Prove || !small {
		p = f.contest(p, rival, floor)
	} else {
		if rival != nil {
			p = rival
		}
		f.prove(p, lowest, o.Gap, &r)
	}
	_, r.Level = p.top()
	r.Host = p.host
	if r.Level <= max(lowest, r.Lower) {
		r.Optimal = true
	}
	f.note(p, r.Level)
	r.Near, r.NearLevel = f.near, f.nearLevel
	return r
}

// rival returns the placement that ask has if it is better than p, else nil. A p near the end is improved first: see nearFloor.
func (f *finder) rival(p *placement, ask func(level float64) []int32, lowest, floor float64) *placement {
	if _, t := p.top(); t > floor && t <= lowest*(1+nearFloor) && len(f.m.Weight) > manyVMs && ask != nil {
		f.spend(int64(len(f.m.Weight))*400, func() { f.improve(p, floor) })
	}
	if _, t := p.top(); t <= floor {
		return nil
	}
	if rival := f.other(p, ask); rival != p {
		return rival
	}
	return nil
}

func all(n int) []int32 {
	a := make([]int32, n)
	for i := range a {
		a[i] = int32(i)
	}
	return a
}

// moveTo moves the VMs to where the completion put them.
func (f *finder) moveTo(p *placement) {
	for i, vm := range f.pack.vms {
		j := f.pack.hosts[f.pack.assign[i]]
		if p.host[vm] >= 0 {
			p.move(vm, j)
		} else {
			p.put(vm, j)
		}
	}
}

// anywhere looks for a placement with no regard to loads. It reports that there
// is none only where that is proved.
func (f *finder) anywhere() (p *placement, none bool) {
	m := f.m
	roomW := make([]int64, len(m.CPU))
	for j := range roomW {
		roomW[j] = unlimited
	}
	f.pack.load(m, all(len(m.Weight)), all(len(m.CPU)), roomW, m.Memory)
	fits := func(steps int64) (found bool) {
		f.spend(steps, func() { found = f.pack.solve(&f.steps, f.stop) })
		return found
	}
	if patterned(m) {
		if fits(int64(len(m.Weight)) * 10_000) {
			p = newPlacement(m)
			f.moveTo(p)
			return p, false
		}
		if !f.pack.gaveUp {
			return nil, true
		}
		q := newPartition(m)
		found, final := q.ask(q.cat.weight, &f.steps, f.stop)
		if found {
			p = newPlacement(m)
			q.moveTo(p)
			return p, false
		}
		if final {
			return nil, true
		}
		f.pack.load(m, all(len(m.Weight)), all(len(m.CPU)), roomW, m.Memory)
	}
	if !fits(math.MaxInt64) {
		return nil, !f.pack.gaveUp
	}
	p = newPlacement(m)
	f.moveTo(p)
	return p, false
}

// prove improves p until no placement of all VMs with a lower level is left, or its level is at
// most lowest, or within the gap of the bound.
func (f *finder) prove(p *placement, lowest, gap float64, r *Result) {
	m := f.m
	floor := lowest
	raise := func(lower float64) {
		r.Lower = max(r.Lower, lower)
		floor = max(floor, r.Lower/(1-gap))
	}
	raise(0)
	vms, hosts, roomW := all(len(m.Weight)), all(len(m.CPU)), make([]int64, len(m.CPU))
	// Improvement and proof take turns, with ever more work: either may be what
	// the model is easy for.
	turn := int64(len(m.Weight)) * 400
	if len(m.Weight) <= fewVMs {
		for range 4 {
			a, t := p.top()
			if t <= floor || !f.pairs(p, a, t) {
				break
			}
		}
		turn = math.MaxInt64 / 512
	}
	covers := len(m.Weight) > fewVMs && patterned(m)
	var q *partition
	share := int64(50_000_000)
	for first := true; !f.done(); first = false {
		if !first || len(m.Weight) > fewVMs {
			f.spend(turn, func() { f.improve(p, floor) })
		}
		// below asks for a placement with all levels under t. It reports whether
		// that is settled.
		below := func(t float64) (found, final bool) {
			for j := range roomW {
				roomW[j] = under(m.CPU[j], t, false)
			}
			f.pack.load(m, vms, hosts, roomW, m.Memory)
			f.spend(16*turn, func() { found = f.pack.solve(&f.steps, f.stop) })
			if found {
				f.moveTo(p)
			} else if !f.pack.gaveUp {
				raise(t)
			}
			return found, !f.pack.gaveUp
		}
		_, t := p.top()
		open := t // not refuted in this turn
		for !f.done() && t > floor {
			found, final := below(open)
			switch {
			case found:
				_, t = p.top()
				open = t
				continue
			case final && open == t:
				r.Optimal = true
				return
			}
			if first && covers {
				break
			}
			// The bound is raised where that is easier.
			open = (open + r.Lower) / 2
			if final || open-r.Lower < (t-r.Lower)/8 {
				break
			}
		}
		if t <= floor {
			return
		}
		// What is not solved at once is easier with patterns, where these serve.
		if covers {
			if q == nil {
				q = newPartition(m)
			}
			solved := false
			f.spend(share, func() { solved = f.cover(q, p, lowest, gap, r) })
			raise(0)
			if solved {
				return
			}
			turn, share = max(turn, share/32), 2*share
		}
		turn *= 2
	}
}

// spend does work with at most this many of the steps that are left.
func (f *finder) spend(steps int64, work func()) {
	mine := min(f.steps, steps)
	rest := f.steps - mine
	f.steps = mine
	work()
	f.steps = rest + max(0, f.steps)
}
