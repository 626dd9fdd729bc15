package main

import (
	"math"
	"slices"
	"time"

	"evenkeel/allocator"
	"evenkeel/allocator/solvefile"
	"evenkeel/migration"
)

func solveBest(in *solvefile.Instance, r *solvefile.Result, set settings) {
	solveWith(allocator.Best, in, r, set)
}

func solveExact(in *solvefile.Instance, r *solvefile.Result, set settings) {
	solveWith(allocator.Exact, in, r, set)
}

// solveWith runs a search. The clock is here: the allocator has none.
func solveWith(algorithm func(allocator.Problem, allocator.Search) allocator.Outcome, in *solvefile.Instance, r *solvefile.Result, set settings) {
	s := allocator.Search{Seed: uint64(set.seed), Steps: set.effort, Rules: in.Rules(), MoveBudget: in.MaxMigrationBytes}
	late := func() bool { return false }
	if set.timeLimit > 0 {
		// The answer must be put together within the limit, too.
		deadline := time.Now().Add(set.timeLimit - set.timeLimit/50)
		late = func() bool { return !time.Now().Before(deadline) }
		s.Stop = late
	}
	p := in.Problem()
	if err := s.Rules.Validate(p); err != nil {
		r.Status, r.Error = solvefile.Invalid, err.Error()
		return
	}
	moved := placeByMoves(p, s, set.timeLimit)
	if set.effort > 1 && moved.tried {
		s.Steps -= set.effort / 2
	}
	var o allocator.Outcome
	if moved.proved {
		o = moved.Outcome
	} else {
		o = moved.better(algorithm(p, s))
	}
	r.UpperBound = o.UpperBound
	switch o.Verdict {
	case allocator.Infeasible:
		r.Status = solvefile.Infeasible
	case allocator.NotFound:
		r.Status = solvefile.Failed
		if late() {
			r.Status = solvefile.Timeout
		}
	case allocator.Feasible, allocator.Optimal:
		r.Status = solvefile.Feasible
		if o.Verdict == allocator.Optimal {
			r.Status = solvefile.Optimal
		}
		r.MinYield, r.AverageYield, r.MovedBytes = o.Solution.MinYield, o.Solution.AverageYield, o.Moved
		r.Hosts, r.CPU = o.Solution.Hosts, o.Solution.CPU
	}
}

// byMoves is what package migration finds where VMs have hosts already.
type byMoves struct {
	allocator.Outcome
	tried, proved bool
}

const (
	maxMoved   = 50_000               // VMs for which moves are looked for
	timePerVM  = 3 * time.Microsecond // least time limit with which they are
	timeToMove = 0.7                  // of the time limit, at most
)

// placeByMoves looks for moves from where VMs are now. Where few bytes may move it
// finds more than a search for placements. Unless the time limit ends it, a greater
// budget never gives a lower minimum yield.
func placeByMoves(p allocator.Problem, s allocator.Search, limit time.Duration) (found byMoves) {
	m := migration.Problem{Rules: s.Rules}
	for j := range p.Hosts {
		h := &p.Hosts[j]
		m.Hosts = append(m.Hosts, migration.Host{Name: h.Name, CPU: h.CPU, Memory: h.Memory, Cordoned: h.Cordoned})
	}
	vms, placed := 0, false
	for g := range p.Groups {
		q := &p.Groups[g]
		m.Groups = append(m.Groups, migration.Group{Cluster: q.Cluster, Name: q.Name, Count: q.Count, CPU: q.CPU, Memory: q.Memory, MinYield: q.MinYield, Hosts: q.Hosts})
		vms += q.Count
		for _, j := range q.Hosts {
			placed = placed || j >= 0
		}
	}
	if !placed || vms > maxMoved || limit > 0 && limit < time.Duration(vms)*timePerVM {
		return found
	}
	if limit > 0 {
		end := time.Now().Add(time.Duration(float64(limit) * timeToMove))
		m.Stop = func() bool { return !time.Now().Before(end) }
	} else if s.Steps > 0 {
		m.Steps = max(1, s.Steps/2)
	}
	budget := math.Inf(1)
	if s.MoveBudget != nil {
		budget = *s.MoveBudget
	}
	found.tried = true
	at, err := migration.Place(m, budget)
	if err != nil {
		return found // the search for placements says what is wrong
	}
	found.UpperBound = at.UpperBound
	if !at.Found {
		return found
	}
	q := p
	q.Groups = append([]allocator.Group(nil), p.Groups...)
	for g := range q.Groups {
		q.Groups[g].Hosts = at.Hosts[g]
	}
	solution, err := allocator.Allocate(q)
	if err != nil || len(solution.Shortfall) > 0 {
		return found
	}
	found.Verdict, found.Solution, found.Moved = allocator.Feasible, solution, at.Bytes
	found.UpperBound = max(found.UpperBound, solution.MinYield)
	if solution.MinYield >= found.UpperBound-provedAt {
		found.Verdict = allocator.Optimal
		// The search for placements heeds what is preferred, and the policy.
		found.proved = !prefers(s.Rules) && p.Policy == allocator.AsFound
	}
	return found
}

func prefers(r *allocator.Rules) bool {
	return r != nil && slices.ContainsFunc(r.Affinity, func(a *allocator.Affinity) bool { return a != nil && len(a.Prefer) > 0 })
}

// better is the better of two outcomes, and the lesser bound.
func (m byMoves) better(o allocator.Outcome) allocator.Outcome {
	if !m.tried || o.Verdict == allocator.Infeasible {
		return o
	}
	bound := min(o.UpperBound, m.UpperBound)
	if m.Verdict >= allocator.Feasible && (o.Verdict < allocator.Feasible || m.Solution.MinYield > o.Solution.MinYield+provedAt/10) {
		o = m.Outcome
	}
	if o.UpperBound = bound; o.Verdict >= allocator.Feasible {
		o.UpperBound = max(bound, o.Solution.MinYield)
		o.Verdict = allocator.Feasible
		if o.Solution.MinYield >= o.UpperBound-provedAt {
			o.Verdict = allocator.Optimal
		}
	}
	return o
}
