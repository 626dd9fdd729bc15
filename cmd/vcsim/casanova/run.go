package casanova

import (
	"context"
	"slices"
	"sync"
	"time"

	"evenkeel/allocator"
)

// algorithm is one curve of the figures.
type algorithm struct {
	name  string
	solve func(p allocator.Problem, seed uint64) outcome
}

// outcome is what an algorithm made of an instance.
type outcome struct {
	solved         bool
	infeasible     bool // proved
	yield, average float64
	took           time.Duration
}

// Names of the curves that are no algorithm of a table.
const (
	exactName = "MILP (exact)"
	boundName = "LP bound"
)

func placedBy(s allocator.Solution, ok bool) outcome {
	return outcome{solved: ok, yield: s.MinYield, average: s.AverageYield}
}

// mcb is one of MCB1 to MCB8, with the paper's own search.
func mcb(order allocator.ListOrder) algorithm {
	return algorithm{mcbName(order), func(p allocator.Problem, _ uint64) outcome {
		return placedBy(allocator.MCB(p, allocator.MCBOptions{Lists: order, Bisect: true}))
	}}
}

func mcbName(order allocator.ListOrder) string { return "MCB" + string(rune('0'+order)) }

// algorithms of a set. The eight packing heuristics come first.
func (s Set) algorithms() []algorithm {
	bound := algorithm{boundName, func(p allocator.Problem, _ uint64) outcome {
		memory := 0.0
		for _, g := range p.Groups {
			memory += float64(g.Count) * g.Memory
		}
		y := allocator.Bound(p)
		// All CPU is used where the yield is below 1, so that no average is higher.
		return outcome{solved: memory <= float64(len(p.Hosts)), yield: y, average: y}
	}}
	sg := algorithm{"SG", func(p allocator.Problem, _ uint64) outcome { return placedBy(allocator.SG(p)) }}
	if s == Parallel {
		return []algorithm{bound, mcb(8), sg}
	}
	var list []algorithm
	for order := allocator.ListOrder(1); order <= 8; order++ {
		list = append(list, mcb(order))
	}
	list = append(list, bound)
	if s == Small {
		list = append(list, algorithm{exactName, func(p allocator.Problem, seed uint64) outcome {
			o := allocator.Exact(p, allocator.Search{Seed: seed})
			return outcome{
				solved: o.Verdict == allocator.Optimal, infeasible: o.Verdict == allocator.Infeasible,
				yield: o.Solution.MinYield, average: o.Solution.AverageYield,
			}
		}})
	}
	return append(list,
		algorithm{"GR", func(p allocator.Problem, _ uint64) outcome { return placedBy(allocator.GR(p)) }},
		sg,
		algorithm{"GB", func(p allocator.Problem, _ uint64) outcome { return placedBy(allocator.GB(p, allocator.Attempts)) }},
		algorithm{"SGB", func(p allocator.Problem, _ uint64) outcome {
			return placedBy(allocator.SGB(p, allocator.Attempts))
		}},
		algorithm{"RRND", func(p allocator.Problem, seed uint64) outcome { return placedBy(allocator.RRND(p, seed)) }},
		algorithm{"RRNZ", func(p allocator.Problem, seed uint64) outcome { return placedBy(allocator.RRNZ(p, seed)) }})
}

// Compared names the algorithms that the report compares under the other truncation.
func (s Set) Compared() []string {
	if s == Small {
		return append(slices.Clone(publishedOrder), exactName)
	}
	return []string{boundName, "MCB8", "GR", "SG", "RRND", "RRNZ"}
}

// Results is what the algorithms made of a set of instances.
type Results struct {
	Set       Set
	Seed      uint64
	Instances int // of each specification
	How       Truncation

	algorithms []string
	specs      []spec
	outcomes   [][]outcome // [specification x Instances + instance][algorithm]
}

// Options of Run.
type Options struct {
	Seed      uint64
	Instances int // of each specification; 0: as many as the paper
	How       Truncation
	Workers   int

	// Only names the algorithms to run; nil: all of the paper's.
	Only []string

	// Progress is called now and then with how many of all instances are done; nil: not called.
	Progress func(done, all int)
}

// Run draws the instances of a set and runs the algorithms on them.
func Run(ctx context.Context, set Set, o Options) (*Results, error) {
	n := o.Instances
	if n <= 0 {
		n = set.Instances()
	}
	r := &Results{Set: set, Seed: o.Seed, Instances: n, How: o.How, specs: set.specs()}
	var algorithms []algorithm
	for _, a := range append(set.algorithms(), best()) {
		if o.Only == nil && a.name != BestName || slices.Contains(o.Only, a.name) {
			algorithms = append(algorithms, a)
			r.algorithms = append(r.algorithms, a.name)
		}
	}
	r.outcomes = make([][]outcome, len(r.specs)*n)
	var mu sync.Mutex
	done := 0
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, o.Workers) {
		wg.Go(func() {
			for i := range next {
				p := r.specs[i/n].draw(set, o.Seed, i/n, i%n, o.How)
				row := make([]outcome, len(algorithms))
				for a := range algorithms {
					begin := time.Now()
					row[a] = algorithms[a].solve(p, o.Seed+uint64(i))
					row[a].took = time.Since(begin)
				}
				r.outcomes[i] = row
				mu.Lock()
				done++
				if o.Progress != nil {
					o.Progress(done, len(r.outcomes))
				}
				mu.Unlock()
			}
		})
	}
	// Spread over the specifications, so that the time that is left can be estimated.
	for i := 0; i < len(r.outcomes) && ctx.Err() == nil; i++ {
		select {
		case next <- i%len(r.specs)*n + i/len(r.specs):
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return r, ctx.Err()
}
