package allocator

import (
	"math"
	"slices"

	"evenkeel/allocator/search"
)

// Search says how much work Best and Exact may do, and what restricts them
// beyond the problem. The zero value is a search with the default effort.
type Search struct {
	Seed uint64

	// Steps bounds the work, deterministically; one is about 10 ns on a machine
	// of 2020. 0: DefaultSteps, or no bound if Stop is given.
	Steps int64

	// Gap ends the search as soon as the minimum yield is within this share of
	// its upper bound, in [0, 1): with 0.0001 at 99.99% of it.
	Gap float64

	// Stop is asked now and then whether to end; nil: never. The best so far is
	// returned. Answers are then as repeatable as Stop is.
	Stop func() bool

	// Rules beyond capacity and MinYield; nil: none.
	Rules *Rules

	// MoveBudget is the most memory of VMs that may change hosts (sec. 6, eq. 31).
	// nil: no bound. VMs without a host are free.
	MoveBudget *float64

	// MoveBytes is what moving each VM costs, by group and VM, where that is not
	// its memory; nil: the memory of all. Finite, >= 0. Outcome.Moved adds up the same.
	MoveBytes [][]float64

	// Stay keeps every VM that has a host there.
	Stay bool
}

// DefaultSteps is about a tenth of a second.
const DefaultSteps = 10_000_000

// Verdict is what a search can say of a problem.
type Verdict int

const (
	NotFound   Verdict = iota // no placement was found, which proves nothing
	Infeasible                // proved: there is none
	Feasible                  // a placement
	Optimal                   // a placement, and proved: no other has a greater minimum yield
)

// Outcome is the answer of a search.
type Outcome struct {
	Verdict    Verdict
	Solution   Solution // if a placement was found
	UpperBound float64  // on the minimum yield, also without a placement; 0 if infeasible
	Moved      float64  // memory of the VMs whose host differs from the one they had
}

// provedGap is how near its upper bound a minimum yield is optimal.
const provedGap = 1e-9

// Best places all VMs of p with a high minimum yield: wherever they are now,
// unless s says otherwise. It improves on a first placement until the yield is
// proved optimal or the work is used up, and so is the better the more work it
// may do. With equal problems, seeds and steps (and no Stop) answers are equal.
//
// A virtual cluster's MinYield is a constraint. Cordoned hosts keep VMs they
// have and take no other.
//
// An Outcome with Verdict Infeasible is returned for a malformed problem, too.
func Best(p Problem, s Search) Outcome { return solve(p, s, false) }

// maxSearched is up to how many VMs Best searches; beyond, it is MCB8.
const maxSearched = 1_000_000

// work is one call of Best or Exact.
type work struct {
	p     *Problem
	s     Search
	t     tenancy
	prove bool
	m     *search.Model
	moves bool // what moves counts
	home  []int32
	group []int32 // [vm of the model]
	task  []int32
	scale float64 // weights of the model per CPU
	unit  float64 // sizes of the model per memory
	steps int64
	bound float64

	counted float64 // UpperBound
	highest float64 // of all floors
	started bool    // start was asked for
	attempt int     // how often the search for any placement within the floors has failed

	rung
}

func solve(p Problem, s Search, prove bool) Outcome {
	if p.Validate() != nil || s.Rules.validate(&p) != nil || !(s.Gap >= 0 && s.Gap < 1) || !s.costsKnown(&p) {
		return Outcome{Verdict: Infeasible}
	}
	t := tenancyOf(p.Groups)
	if proveInfeasible(&p, t) != "" {
		return Outcome{Verdict: Infeasible}
	}
	w := &work{p: &p, s: s, t: t, prove: prove, counted: UpperBound(p), steps: s.Steps}
	w.bound = w.counted
	if w.steps <= 0 {
		w.steps = DefaultSteps
		if s.Stop != nil {
			w.steps = math.MaxInt64 / 8
		} else if prove {
			w.steps *= 100
		}
	}
	for _, f := range w.t.floor {
		w.highest = max(w.highest, f)
	}
	vms := 0
	for g := range p.Groups {
		vms += p.Groups[g].Count
	}
	if vms > maxSearched {
		return w.without()
	}
	w.model(vms)
	host, infeasible := w.search()
	switch {
	case infeasible:
		return Outcome{Verdict: Infeasible}
	case host == nil:
		return w.without()
	}
	return w.outcome(host)
}

// without is the answer where the search found nothing: what MCB8 finds, if
// nothing stands against it.
func (w *work) without() Outcome {
	none := Outcome{Verdict: NotFound, UpperBound: w.bound}
	if w.s.Rules != nil || w.s.MoveBudget != nil || w.s.Stay {
		return none
	}
	s, ok := MCB8(*w.p)
	if !ok || len(s.Shortfall) > 0 {
		return none
	}
	o := Outcome{Verdict: Feasible, Solution: s, UpperBound: max(min(w.bound, s.UpperBound), s.MinYield)}
	o.Solution.UpperBound = o.UpperBound
	o.Moved = w.s.moved(w.p, s.Hosts)
	if s.MinYield >= o.UpperBound-provedGap {
		o.Verdict = Optimal
	}
	return o
}

// outcome divides the CPU for the placement that was found.
func (w *work) outcome(host []int32) Outcome {
	p := w.p
	room := make([]int, len(host))
	for vm, j := range host {
		room[vm] = int(j) // VMs of the model are in the order of the groups
	}
	hosts := make([][]int, len(p.Groups))
	for g := range hosts {
		n := p.Groups[g].Count
		hosts[g], room = room[:n:n], room[n:]
	}
	w.s.keepHomes(p, hosts)
	var cpu []float64
	var used []float64
	if len(host) == len(p.Groups) && len(w.t.members) == len(p.Groups) && w.highest == 0 && !slices.ContainsFunc(hosts, func(at []int) bool { return len(at) != 1 }) {
		used = make([]float64, len(p.Hosts))
		for g, j := range host {
			used[j] += p.Groups[g].Memory
		}
		cpu = (&singles{p: p, on: host}).divide()
	} else {
		placed := *p
		placed.Groups = append([]Group(nil), p.Groups...)
		for g := range placed.Groups {
			placed.Groups[g].Hosts = hosts[g]
		}
		loads, _ := countLoads(&placed)
		used = memoryUsed(p, loads)
		cpu = divide(p, loads, w.t)
	}
	for j := range used {
		if used[j] > p.Hosts[j].Memory*(1+provedSlack) {
			return w.without() // amounts too far apart for whole numbers
		}
	}
	s := solutionWith(p, w.t, hosts, cpu, w.counted)
	if len(s.Shortfall) > 0 {
		return w.without()
	}
	o := Outcome{Verdict: Feasible, Solution: s, UpperBound: max(min(w.bound, s.UpperBound), s.MinYield), Moved: w.s.moved(p, hosts)}
	o.Solution.UpperBound = o.UpperBound
	if s.MinYield >= o.UpperBound-provedGap {
		o.Verdict = Optimal
	}
	return o
}
