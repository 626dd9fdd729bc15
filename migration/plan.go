package migration

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// Plan is what to do, in which order, and what comes of it.
type Plan struct {
	// Feasible: every VM has a host at the end, and every virtual cluster its
	// MinYield, or as much as it had. If not there are no steps, and Reason says why.
	Feasible bool
	Reason   string  // why this plan and none better, or why none; in words
	Takes    float64 // if not Feasible: bytes that would do; +Inf: none are known to

	Hosts [][]int   // [group][vm]: at the end
	CPU   []float64 // [group]: cap at the end, cores
	Steps []Step

	Moves   int     // staging hops included
	Bytes   float64 // of all moves, never above the budget
	Seconds float64 // predicted

	MinYieldBefore, AverageYieldBefore float64 // of the VMs that have hosts, as the caps are
	MinYieldAfter, AverageYieldAfter   float64
	UpperBound                         float64 // of the minimum yield, whatever the budget

	// Passed are better placements that keep to the budget if VMs go directly
	// to their hosts, and why the plan is none of them.
	Passed []Passed
}

// Passed is a placement that cannot be reached within the budget.
type Passed struct {
	MinYield float64
	Bytes    float64 // staging hops included; 0: no order was found
	Reason   string
}

// Point of a curve: a minimum yield, and the fewest bytes it was found for.
type Point struct{ Bytes, MinYield float64 }

// Planner knows the placements of one problem.
type Planner struct {
	s        *search
	caps     []float64 // before
	minYield float64
	mean     float64
}

// New looks for placements. Its work does not depend on what is asked afterwards,
// so that answers agree with each other: a greater budget never gives a lower
// minimum yield.
func New(p Problem) (*Planner, error) {
	f, err := p.fleet()
	if err != nil {
		return nil, fmt.Errorf("a problem of migration: %w", err)
	}
	s := newSearch(f)
	pl := &Planner{s: s}
	if err := pl.before(); err != nil {
		return nil, fmt.Errorf("the CPU that VMs have now: %w", err)
	}
	s.run()
	return pl, nil
}

// before is the yields before the plan: of the VMs that have hosts.
func (pl *Planner) before() error {
	f := pl.s.f
	now := allocator.Problem{Hosts: pl.s.p.Hosts, Groups: slices.Clone(pl.s.p.Groups)}
	for g := range now.Groups {
		q := &now.Groups[g]
		q.Hosts = slices.DeleteFunc(slices.Clone(q.Hosts), func(j int) bool { return j < 0 })
		q.Count = len(q.Hosts)
	}
	sol, err := allocator.Allocate(now)
	if err != nil {
		return err
	}
	pl.caps, pl.minYield, pl.mean = sol.CPU, sol.MinYield, sol.AverageYield
	if f.p.Caps != nil {
		pl.caps = slices.Clone(f.p.Caps)
		pl.minYield, pl.mean = f.yields(pl.caps, now.Groups)
	}
	return nil
}

// yields are the least and the mean yield of virtual clusters, from caps.
func (f *fleet) yields(caps []float64, groups []allocator.Group) (lowest, mean float64) {
	byName := map[string]int{}
	var of []float64
	for g := range groups {
		x := &groups[g]
		if x.Count == 0 {
			continue
		}
		i, ok := byName[x.Cluster]
		if !ok || x.Cluster == "" {
			i = len(of)
			byName[x.Cluster] = i
			of = append(of, 1)
		}
		if x.CPU > 0 {
			of[i] = min(of[i], caps[g]/x.CPU)
		}
	}
	lowest = 1
	for _, y := range of {
		lowest = min(lowest, y)
		mean += y
	}
	if len(of) == 0 {
		return 1, 1
	}
	return lowest, mean / float64(len(of))
}

// good says whether a candidate may be what a plan ends with.
func (pl *Planner) good(c *candidate) bool {
	if !slices.Contains(pl.s.f.home, -1) {
		return true // it is no worse than the present
	}
	return c.missing == 0
}

// Plan is the best that can be done if at most budget bytes are moved: 0: only
// caps change; math.Inf(1): any number.
func (pl *Planner) Plan(budget float64) Plan {
	p := pl.blank()
	for i := range pl.s.found {
		c := &pl.s.found[i]
		if !(c.direct <= budget) || !pl.good(c) {
			continue
		}
		switch {
		case !pl.s.order(c):
			p.pass(c, c.why)
		case c.bytes > budget:
			p.pass(c, fmt.Sprintf("VMs that have to wait on a third host on the way bring it to %s, and the budget is %s", size(c.bytes), size(budget)))
		default:
			pl.fill(&p, pl.arranged(c))
			p.Reason = pl.why(&p, budget)
			return p
		}
	}
	p.Takes = math.Inf(1)
	for i := range pl.s.found {
		if c := &pl.s.found[i]; pl.good(c) && c.direct < p.Takes && pl.s.order(c) {
			p.Takes = min(p.Takes, c.bytes)
		}
	}
	switch {
	case len(pl.s.found) == 0:
		p.Reason = "no placement was found in which every VM has a host and every virtual cluster its least yield, whatever is moved"
	case math.IsInf(p.Takes, 1):
		p.Reason = "placements were found, but no order of moves that leads to one"
	default:
		p.Reason = fmt.Sprintf("room for all VMs takes %s of moves, and the budget is %s", size(p.Takes), size(budget))
	}
	return p
}

func (pl *Planner) blank() Plan {
	return Plan{MinYieldBefore: pl.minYield, AverageYieldBefore: pl.mean, UpperBound: pl.s.bound}
}

func (p *Plan) pass(c *candidate, why string) {
	if len(p.Passed) < maxPassed {
		p.Passed = append(p.Passed, Passed{MinYield: c.yield, Bytes: c.bytes, Reason: why})
	}
}

// maxPassed is how many placements that were passed over are named.
const maxPassed = 5

// Cheapest is the plan with the fewest bytes that reaches a minimum yield.
func (pl *Planner) Cheapest(minYield float64) Plan {
	best := -1
	for i := range pl.s.found {
		c := &pl.s.found[i]
		if c.yield < minYield-sameYield || !pl.good(c) || best >= 0 && c.direct >= pl.s.found[best].bytes || !pl.s.order(c) {
			continue
		}
		if best < 0 || c.bytes < pl.s.found[best].bytes {
			best = i
		}
	}
	if best < 0 {
		p := pl.blank()
		p.Takes = math.Inf(1)
		p.Reason = fmt.Sprintf("no plan was found that brings the minimum yield to %.4f; no placement can have more than %.4f", minYield, pl.s.bound)
		return p
	}
	p := pl.blank()
	pl.fill(&p, pl.arranged(&pl.s.found[best]))
	p.Reason = fmt.Sprintf("the fewest bytes found for a minimum yield of %.4f", minYield)
	return p
}

// Curve is the minimum yield over the bytes moved: with at least Bytes of a point,
// and less than those of the next, Plan reaches MinYield of that point. Both rise
// from point to point.
func (pl *Planner) Curve() []Point {
	var all []*candidate
	for i := range pl.s.found {
		if c := &pl.s.found[i]; pl.good(c) && pl.s.order(c) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), a.better(b)) })
	var curve []Point
	var best *candidate
	for _, c := range all {
		if best != nil && c.better(best) >= 0 {
			continue
		}
		best = c
		if n := len(curve); n == 0 || c.yield > curve[n-1].MinYield+sameYield {
			curve = append(curve, Point{c.bytes, c.yield})
		}
	}
	return curve
}

// fill makes the steps to a candidate.
func (pl *Planner) fill(p *Plan, c *candidate) {
	f := pl.s.f
	p.Feasible = true
	p.Hosts = make([][]int, len(f.p.Groups))
	for g := range p.Hosts {
		p.Hosts[g] = slices.Clone(c.at[f.first[g] : f.first[g]+f.p.Groups[g].Count])
	}
	sol, err := pl.s.divide(c.at)
	if err != nil {
		return // it was divided before
	}
	p.CPU, p.MinYieldAfter, p.AverageYieldAfter = sol.CPU, sol.MinYield, sol.AverageYield
	s := newSchedule(f, pl.caps, sol.CPU, c.at, min(pl.minYield, sol.MinYield))
	p.Steps = s.run(c.ops)
	for i := range p.Steps {
		step := &p.Steps[i]
		p.Seconds = max(p.Seconds, step.Begins+step.Seconds)
		if step.Kind == Move {
			p.Moves++
			p.Bytes += step.Bytes
		}
	}
	f.explain(p.Steps, c.at)
}
