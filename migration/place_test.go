package migration_test

import (
	"fmt"
	"math"
	"testing"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// Placements without an order are the best there are where allocator.Exact proves
// which these are, and their bounds hold.
func TestPlaceAgainstTheExactSolver(t *testing.T) {
	proved, tight := 0, 0
	for seed := range uint64(6) {
		p := unbalanced(seed, 4, 12)
		last := 0.0
		for _, share := range shares {
			budget := math.Floor(memoryOf(p) * share)
			got, err := migration.Place(p, budget)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0.0
			for g := range p.Groups {
				if got.Hosts[g][0] != p.Groups[g].Hosts[0] {
					bytes += p.Groups[g].Memory
				}
			}
			if !got.Found || bytes != got.Bytes || bytes > budget || got.MinYield < last {
				t.Errorf("seed %d, %v: %+v, %v bytes of %v, less allowed: %v", seed, share, got, bytes, budget, last)
			}
			last = got.MinYield
			o := allocator.Exact(asAllocation(p), allocator.Search{Steps: 20_000_000, MoveBudget: &budget})
			if o.Verdict != allocator.Optimal {
				continue
			}
			proved++
			if got.MinYield < o.Solution.MinYield*(1-1e-8) || got.UpperBound < o.Solution.MinYield-1e-9 {
				t.Errorf("seed %d, %v: %v, at most %v; the greatest is %v", seed, share, got.MinYield, got.UpperBound, o.Solution.MinYield)
			}
			if got.UpperBound <= got.MinYield+1e-8 {
				tight++
			}
		}
	}
	if proved < 24 || tight < 20 {
		t.Errorf("%d proved, %d bounds tight", proved, tight)
	}
}

// More steps never give less, one step gives something, and a search that is stopped at
// once still gives a plan.
func TestStepsBoundTheWork(t *testing.T) {
	for _, size := range [][2]int{{8, 24}, {12, 60}, {40, 300}} {
		p := scattered(3, size[0], size[1])
		budget := memoryOf(p) * 0.15
		last := 0.0
		for _, p.Budget = range []float64{budget, 0} {
			last = 0
			for _, steps := range []int64{1, 1000, 10_000, 100_000, 300_000, 1_000_000, 2_000_000, 10_000_000, 0} {
				p.Steps = steps
				plan := planner(t, p).Plan(budget)
				if steps == 1 && plan.MinYieldAfter <= plan.MinYieldBefore*1.0001 {
					t.Errorf("%v: one step brings nothing: %v", size, plan.MinYieldAfter)
				}
				if plan.MinYieldAfter < last {
					t.Errorf("%v: %d steps: %v, with fewer there was %v", size, steps, plan.MinYieldAfter, last)
				}
				last = plan.MinYieldAfter
			}
		}
		asked := 0
		p.Steps, p.Stop = 0, func() bool { asked++; return asked > 3 }
		plan := planner(t, p).Plan(budget)
		if !plan.Feasible || plan.MinYieldAfter < plan.MinYieldBefore || plan.MinYieldAfter >= last && size[1] > 100 || asked > 5 {
			t.Errorf("%v: stopped: %v, asked %d times; %v if not", size, plan.MinYieldAfter, asked, last)
		}
		t.Log(fmt.Sprint(size), last)
	}
}
