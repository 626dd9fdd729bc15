package migration_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/migration"
	"pgregory.net/rapid"
)

// ladder is budgets in ascending order, 1% apart, and one without bound. Around a tenth of the bytes hosts come to be equally full, and
// more bytes buy little.
func ladder(p migration.Problem, from, to float64) (budgets []float64) {
	for share := from; share < to; share *= 1.01 {
		budgets = append(budgets, memoryOf(p)*share)
	}
	return append(budgets, math.Inf(1))
}

// full is scattered on hosts that have little more memory than their VMs use, so that moves need staging hops.
func full(seed uint64, hosts, vms int) migration.Problem {
	p := scattered(seed, hosts, vms)
	used := make([]float64, hosts)
	for _, g := range p.Groups {
		used[g.Hosts[0]] += g.Memory
	}
	for j := range p.Hosts {
		p.Hosts[j].Memory = max(used[j], 0.8*p.Hosts[j].Memory)
	}
	return p
}

// placed and planned are the minimum yields for a budget, by a search that knows the budget.
func placed(t interface{ Fatalf(string, ...any) }, p migration.Problem, budget float64) float64 {
	out, err := migration.Place(p, budget)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if out.Bytes > budget*(1+1e-9) {
		t.Fatalf("%v bytes of %v", out.Bytes, budget)
	}
	return out.MinYield
}

func planned(t interface{ Fatalf(string, ...any) }, p migration.Problem, budget float64) float64 {
	p.Budget = budget
	plan := planner(t, p).Plan(budget)
	if err := checkPlan(p, plan, budget, rand.New(rand.NewPCG(1, 6)), true); err != nil {
		t.Fatalf("budget %v: %v", budget, err)
	}
	return plan.MinYieldAfter
}

// A greater budget never gives a lower yield, although each is searched for by itself; nor does it where steps are short.
func TestGreaterBudgetsGiveNoLowerYields(t *testing.T) {
	ask := map[string]func(interface{ Fatalf(string, ...any) }, migration.Problem, float64) float64{"Place": placed, "Plan": planned}
	for kind, c := range map[string]struct {
		p     migration.Problem
		steps int64
	}{
		"equal":         {scattered(0, 12, 90), 0},
		"few steps":     {scattered(0, 12, 90), 200_000},
		"unequal":       {unequal(0, 12, 90), 0},
		"little memory": {full(1, 30, 250), 0},
	} {
		for name, yield := range ask {
			last := 0.0
			c.p.Steps = c.steps
			for _, budget := range ladder(c.p, 0.05, 0.12) {
				y := yield(t, c.p, budget)
				if y < last {
					t.Errorf("%s, %s: %v for %.3f%% of the bytes, and %v for fewer", kind, name, y, 100*budget/memoryOf(c.p), last)
				}
				last = y
			}
		}
	}
	t.Run("Drawn", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p := drawn(t)
			for name, yield := range ask {
				last := 0.0
				for _, budget := range ladder(p, 0.01, 0.02) {
					y := yield(t, p, budget)
					if y < last {
						t.Fatalf("%s: %v for %v bytes, and %v for fewer", name, y, budget, last)
					}
					last = y
				}
			}
		})
	})
}
