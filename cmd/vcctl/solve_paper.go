package main

import (
	"fmt"

	"evenkeel/allocator"
	"evenkeel/allocator/solvefile"
)

// paperSolvers are the other heuristics of Casanova et al. 2008, by their names there.
func paperSolvers() []solver {
	type heuristic func(allocator.Problem, settings) (allocator.Solution, bool)
	named := func(name string, h heuristic) solver {
		return solver{name: name, solve: func(in *solvefile.Instance, r *solvefile.Result, set settings) {
			solveHeuristic(in, r, func(p allocator.Problem) (allocator.Solution, bool) { return h(p, set) })
		}}
	}
	var list []solver
	for order := allocator.ListOrder(1); order <= 7; order++ {
		list = append(list, named(fmt.Sprintf("mcb%d", order), func(p allocator.Problem, _ settings) (allocator.Solution, bool) {
			return allocator.MCB(p, allocator.MCBOptions{Lists: order})
		}))
	}
	attempts := func(set settings) int {
		if set.effort > 0 {
			return int(min(set.effort, 1<<40))
		}
		return allocator.Attempts
	}
	return append(list,
		named("gr", func(p allocator.Problem, _ settings) (allocator.Solution, bool) { return allocator.GR(p) }),
		named("sg", func(p allocator.Problem, _ settings) (allocator.Solution, bool) { return allocator.SG(p) }),
		named("gb", func(p allocator.Problem, set settings) (allocator.Solution, bool) {
			return allocator.GB(p, attempts(set))
		}),
		named("sgb", func(p allocator.Problem, set settings) (allocator.Solution, bool) {
			return allocator.SGB(p, attempts(set))
		}),
		named("rrnd", func(p allocator.Problem, set settings) (allocator.Solution, bool) {
			return allocator.RRND(p, uint64(set.seed))
		}),
		named("rrnz", func(p allocator.Problem, set settings) (allocator.Solution, bool) {
			return allocator.RRNZ(p, uint64(set.seed))
		}))
}

// solveHeuristic fills in what a heuristic finds, and what can be proved besides.
func solveHeuristic(in *solvefile.Instance, r *solvefile.Result, h func(allocator.Problem) (allocator.Solution, bool)) {
	p := in.Problem()
	if proof := allocator.ProveInfeasible(p); proof != "" {
		r.Status = solvefile.Infeasible
		return
	}
	s, ok := h(p)
	if !ok {
		r.Status, r.UpperBound = solvefile.Failed, allocator.UpperBound(p)
		return
	}
	r.Status = solvefile.Feasible
	if s.MinYield >= s.UpperBound-provedAt {
		r.Status = solvefile.Optimal
	}
	r.MinYield, r.AverageYield, r.UpperBound = s.MinYield, s.AverageYield, s.UpperBound
	r.Hosts, r.CPU = s.Hosts, s.CPU
}
