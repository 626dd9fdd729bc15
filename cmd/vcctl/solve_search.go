package main

import (
	"time"

	"evenkeel/allocator"
	"evenkeel/allocator/solvefile"
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
	o := algorithm(p, s)
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
