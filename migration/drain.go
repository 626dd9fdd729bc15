package migration

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// DrainRequest is which hosts are to be drained, and within which bounds.
type DrainRequest struct {
	// Hosts by index. They take no VM meanwhile, not for a staging hop either.
	Hosts []int

	// Budget is the most bytes that may be moved; math.Inf(1): no bound.
	Budget float64

	// Partial: VMs that can leave do so, though others cannot. Without Partial either all leave or nothing moves.
	Partial bool

	// OptionalBytes bounds the bytes of optional moves, besides those that the drain takes. Optional moves are made only if the
	// minimum yield rises by at least MinGain, relative to what it is. 0: there are none; math.Inf(1): no bound.
	OptionalBytes, MinGain float64

	// Deadline is when the moves are to have ended, in seconds from their beginning; 0: none.
	Deadline float64
}

// Drained is how hosts are drained.
type Drained struct {
	// Plan moves off the hosts what can leave. It is not Feasible, and has no steps, if a VM
	// cannot leave and DrainRequest.Partial is not set.
	Plan

	// Blockers are the VMs that cannot leave, by group and number.
	Blockers []Blocker

	// Late are the steps that are predicted to end after the deadline.
	Late []int
}

// Empties says whether nothing is left on the hosts in the end.
func (d *Drained) Empties() bool { return d.Feasible && len(d.Blockers) == 0 }

// Drain plans how to drain hosts. All VMs that run there leave; VMs on other hosts move where there is no room for them
// otherwise. Rules and floors hold at every instant. Of the plans within the budget that Drain finds, it returns the one with the
// fewest bytes, or, where OptionalBytes allows it, the one with the greatest minimum yield, and of several such the one with the
// fewest bytes. Where no VM has to leave, nothing moves. Every VM must have a host.
func Drain(p Problem, d DrainRequest) (Drained, error) {
	e, err := newEmptying(p, d)
	if err != nil {
		return Drained{}, fmt.Errorf("empty hosts: %w", err)
	}
	return e.run()
}

// emptying is what Drain does.
type emptying struct {
	p        Problem           // with floors no higher than what the VMs have now, and the hosts cordoned
	q        allocator.Problem // the same, with unlimited memory
	f        *fleet
	d        DrainRequest
	leaves   []bool // [host]
	steps    int64
	caps     []float64 // [group]: before
	minYield float64
	mean     float64
	broken   []bool // [host]: a rule or the memory is not kept there now
	stuck    map[int]cause
	why      map[int]finding // [vm]: of those that are left

	orderSteps int64   // left for searches of orders
	last       finding // of the last question that found no order
}

func newEmptying(p Problem, d DrainRequest) (*emptying, error) {
	e := &emptying{p: p, d: d, leaves: make([]bool, len(p.Hosts)), steps: p.Steps, stuck: map[int]cause{}, why: map[int]finding{}, orderSteps: orderSteps}
	if math.IsNaN(d.Budget) || math.IsNaN(d.MinGain) || math.IsNaN(d.Deadline) || math.IsNaN(d.OptionalBytes) {
		return nil, fmt.Errorf("budget %v, extra %v, least gain %v, deadline %v: not a number", d.Budget, d.OptionalBytes, d.MinGain, d.Deadline)
	}
	if e.steps > 0 {
		e.orderSteps = min(orderFactor*e.steps, orderSteps)
	}
	if e.steps <= 0 || e.steps > askSteps {
		e.steps = askSteps // for each placement that is asked for
	}
	e.p.Hosts = slices.Clone(p.Hosts)
	for _, j := range d.Hosts {
		if j < 0 || j >= len(p.Hosts) {
			return nil, fmt.Errorf("host %d of %d", j, len(p.Hosts))
		}
		e.leaves[j], e.p.Hosts[j].Cordoned = true, true
	}
	var err error
	if e.f, err = e.p.fleet(); err != nil {
		return nil, err
	}
	if vm := slices.Index(e.f.home, -1); vm >= 0 {
		return nil, fmt.Errorf("VM %s runs on no host", e.f.name(vm))
	}
	if err := e.before(); err != nil {
		return nil, err
	}
	e.broken = e.f.brokenHosts(e.f.home)
	return e, nil
}

// before is the yields as they are, and floors that are no more than that.
func (e *emptying) before() error {
	e.q = e.p.allocation()
	for j := range e.q.Hosts {
		e.q.Hosts[j].Memory = allocator.GreatestNumber // the VMs run there already, whatever the memory
	}
	sol, err := allocator.Allocate(e.q)
	if err != nil {
		return fmt.Errorf("the CPU that VMs have now: %w", err)
	}
	e.caps, e.minYield, e.mean = sol.CPU, sol.MinYield, sol.AverageYield
	if e.p.Caps != nil {
		e.caps = slices.Clone(e.p.Caps)
		e.minYield, e.mean = e.f.yields(e.caps, e.q.Groups)
	}
	e.p.Groups = loweredFloors(e.p.Groups, e.caps)
	for g := range e.p.Groups {
		e.q.Groups[g].MinYield = e.p.Groups[g].MinYield
	}
	return nil
}

// loweredFloors are groups whose virtual clusters must not get less than they have, where that is below
// their floor already.
func loweredFloors(groups []Group, caps []float64) []Group {
	has := map[string]float64{}
	yield := func(g int) float64 {
		if groups[g].CPU <= 0 {
			return 1
		}
		return min(1, caps[g]/groups[g].CPU)
	}
	for g := range groups {
		if y, ok := has[groups[g].Cluster]; groups[g].Cluster != "" && groups[g].Count > 0 && (!ok || yield(g) < y) {
			has[groups[g].Cluster] = yield(g)
		}
	}
	out := slices.Clone(groups)
	for g := range out {
		y, ok := has[out[g].Cluster]
		if !ok {
			y = yield(g)
		}
		if y < out[g].MinYield {
			out[g].MinYield = y * (1 - 1e-9)
		}
	}
	return out
}

func (e *emptying) run() (Drained, error) {
	var going []int // that have to go
	for vm, j := range e.f.home {
		switch {
		case !e.leaves[j]:
		case e.f.pinned[vm]:
			e.stuck[vm] = pinned
		default:
			going = append(going, vm)
		}
	}
	var found []candidate
	if len(e.stuck) == 0 || e.d.Partial {
		found = e.candidates(going, true)
	}
	all := len(going)
	if len(found) == 0 {
		if going = e.maximal(going); e.d.Partial {
			found = e.candidates(going, true)
		}
	}
	out := Drained{Plan: Plan{MinYieldBefore: e.minYield, AverageYieldBefore: e.mean, UpperBound: 1, Takes: math.Inf(1)}}
	if len(found) > 0 && (e.d.Partial || len(going) == all && len(e.stuck) == 0) {
		out.Plan = e.plan(e.arranged(e.choose(found)))
	}
	e.blockers(&out)
	e.late(&out)
	out.Reason = e.summary(&out, all)
	return out, nil
}

// late finds the steps that miss the deadline.
func (e *emptying) late(out *Drained) {
	for i, s := range out.Steps {
		if e.d.Deadline > 0 && s.Kind == Move && s.Begins+s.Seconds > e.d.Deadline {
			out.Late = append(out.Late, i)
		}
	}
}

func (e *emptying) summary(out *Drained, going int) string {
	names := make([]string, len(e.d.Hosts))
	for i, j := range e.d.Hosts {
		names[i] = "host " + e.p.Hosts[j].Name
	}
	what := listed(names)
	text := ""
	switch n := len(out.Blockers); {
	case !out.Feasible && n > 0:
		return fmt.Sprintf("%s cannot be emptied: %s cannot leave; nothing is moved", what, Counted(n, "VM"))
	case !out.Feasible:
		return fmt.Sprintf("no way was found to empty %s", what)
	case n > 0:
		text = fmt.Sprintf("%s of %s %s %d of %s off %s; %s cannot leave", Counted(out.Moves, "move"), size(out.Bytes), verb(out.Moves, "take"), going+e.count(pinned)-n, Counted(going+e.count(pinned), "VM"), what, Counted(n, "VM"))
	case going == 0:
		return what + " runs no VM"
	default:
		text = fmt.Sprintf("%s of %s to empty %s", Counted(out.Moves, "move"), size(out.Bytes), what)
	}
	text += yieldChange(out.MinYieldBefore, out.MinYieldAfter)
	if len(out.Late) > 0 {
		text += fmt.Sprintf("; %s would end after the deadline: the moves take about %.0f s", Counted(len(out.Late), "move"), out.Seconds)
	}
	return text
}

func (e *emptying) count(c cause) (n int) {
	for _, x := range e.stuck {
		if x == c {
			n++
		}
	}
	return n
}

func listed(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "no host"
	case n == 1:
		return names[0]
	case n <= 4:
		text := names[0]
		for _, name := range names[1 : n-1] {
			text += ", " + name
		}
		return text + " and " + names[n-1]
	}
	return fmt.Sprintf("%s, %s and %d more", names[0], names[1], len(names)-2)
}

// bound of the minimum yield once the hosts are empty, or as they are if something stays there.
func (e *emptying) bound() float64 {
	q := e.p.allocation()
	for j := range q.Hosts { // what is there may stay, also where it is more than the memory
		q.Hosts[j].Memory = max(q.Hosts[j].Memory, e.f.used[j])
	}
	if len(e.stuck) == 0 {
		kept := 0
		for j, h := range q.Hosts {
			if !e.leaves[j] {
				q.Hosts[kept] = h
				kept++
			}
		}
		q.Hosts = q.Hosts[:kept]
	}
	for g := range q.Groups {
		q.Groups[g].Hosts = nil
	}
	if len(q.Hosts) == 0 {
		return 1
	}
	return allocator.UpperBound(q)
}

// choose takes one of the candidates, the cheapest first: a dearer one only if it gains enough.
func (e *emptying) choose(found []candidate) *candidate {
	best := &found[0]
	for i := range found[1:] {
		if c := &found[1+i]; c.yield > best.yield+sameYield && c.yield >= found[0].yield*(1+e.d.MinGain) {
			best = c
		}
	}
	return best
}

// plan makes the steps.
func (e *emptying) plan(c *candidate) Plan {
	pl := &Planner{s: &search{f: e.f, p: e.q, bound: e.bound()}, caps: e.caps, minYield: e.minYield, mean: e.mean}
	p := pl.blank()
	pl.fill(&p, c)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind == Move && e.leaves[s.From] && !s.Staging {
			s.Reason = fmt.Sprintf("host %s is to be emptied; host %s has room for it", e.p.Hosts[s.From].Name, e.p.Hosts[s.To].Name)
		}
	}
	return p
}
