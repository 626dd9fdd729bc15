package casanova

import (
	"fmt"
	"os"
	"path/filepath"

	"evenkeel/allocator"
)

// BestName is the name of the product's own algorithm, which runs only where
// Options.Only names it: it is none of the paper's.
const BestName = "best"

// Effort of best on an instance, and on one for which that finds nothing.
const (
	effort     = 300_000
	moreEffort = 100_000_000
)

func best() algorithm {
	return algorithm{BestName, func(p allocator.Problem, seed uint64) outcome {
		o := allocator.Best(p, allocator.Search{Seed: seed, Steps: effort})
		if o.Verdict == allocator.NotFound {
			o = allocator.Best(p, allocator.Search{Seed: seed, Steps: moreEffort})
		}
		return outcome{
			solved: o.Verdict >= allocator.Feasible, infeasible: o.Verdict == allocator.Infeasible,
			yield: o.Solution.MinYield, average: o.Solution.AverageYield,
		}
	}}
}

// WriteOpen writes dir/casanova-best.md: how many instances best placed or
// proved infeasible, and every one that is left open.
func (r *Results) WriteOpen(dir, command string) error {
	a, solved, infeasible := r.column(BestName), 0, 0
	var open []int
	for i, row := range r.outcomes {
		switch o := &row[a]; {
		case o.solved:
			solved++
		case o.infeasible:
			infeasible++
		default:
			open = append(open, i)
		}
	}
	p := &page{}
	p.line("# Failures of `best` on the %s instances", r.Set)
	p.line("")
	p.line("Written by `%s`: the instances of [the simulations](casanova.md), %d steps each, %d where that finds nothing.", command, effort, moreEffort)
	p.line("")
	p.line("%d instances: %d placed, %d proved infeasible, %d left open.", len(r.outcomes), solved, infeasible, len(open))
	if len(open) > 0 {
		p.line("")
		p.line("Left open means that no placement was found and that no bound excludes one. Memory is what all tasks ask for, in percent of")
		p.line("what all hosts have; large are tasks that ask for more than half of a host's.")
		p.line("")
		p.line("| tasks | slack | variation of CPU, memory | instance | memory | large |")
		p.line("|---|---|---|---|---|---|")
	}
	for _, i := range open {
		s := r.specs[i/r.Instances]
		memory, large := 0.0, 0
		for _, g := range s.draw(r.Set, r.Seed, i/r.Instances, i%r.Instances, r.How).Groups {
			memory += float64(g.Count) * g.Memory
			if g.Memory > 0.5 {
				large += g.Count
			}
		}
		p.line("| %d | %.1f | %.2f, %.2f | %d | %.2f%% | %d |", s.tasks, s.slack, s.cpuCV, s.memCV, i%r.Instances, 100*memory/float64(s.hosts), large)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory of the report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "casanova-best.md"), []byte(p.String()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
