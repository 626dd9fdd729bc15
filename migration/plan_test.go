package migration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// drawn is a small problem: VMs lie on random hosts, as far as memory and rules allow.
func drawn(t *rapid.T) migration.Problem {
	p := migration.Problem{Steps: 200_000}
	hosts := rapid.IntRange(1, 5).Draw(t, "hosts")
	for j := range hosts {
		h := migration.Host{Name: fmt.Sprint("h", j), CPU: float64(rapid.IntRange(1, 8).Draw(t, "cpu")), Memory: float64(rapid.IntRange(4, 16).Draw(t, "memory"))}
		h.Reserve = float64(rapid.IntRange(0, 1).Draw(t, "reserve"))
		h.Cordoned = rapid.IntRange(0, 9).Draw(t, "cordoned") == 0
		h.Link = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "link")
		p.Hosts = append(p.Hosts, h)
	}
	free, on := make([]float64, hosts), make([][]int, hosts)
	for j := range free {
		free[j] = p.Hosts[j].Memory - p.Hosts[j].Reserve - 1
	}
	rules := &allocator.Rules{}
	if rapid.Bool().Draw(t, "rules") {
		p.Rules = rules
	}
	for g := range rapid.IntRange(1, 6).Draw(t, "groups") {
		q := migration.Group{Name: fmt.Sprint("g", g), Count: rapid.IntRange(0, 3).Draw(t, "count"), CPU: float64(rapid.IntRange(0, 8).Draw(t, "need")) / 2, Memory: float64(rapid.IntRange(0, 6).Draw(t, "size"))}
		q.Reclaimable = float64(rapid.IntRange(0, 8).Draw(t, "growth")) / 8
		if rapid.IntRange(0, 3).Draw(t, "pair") == 0 && g > 0 {
			q.Cluster = "c"
		}
		a := &allocator.Affinity{}
		switch rapid.IntRange(0, 3).Draw(t, "rule") {
		case 0:
			a.Spread = "host"
		case 1:
			a.Avoid = []string{"vc:g0"}
		case 2:
			a = nil
		}
		if g == 0 && a != nil {
			a.Avoid = nil
		}
		rules.Affinity = append(rules.Affinity, a)
		for vm := range q.Count {
			q.Bytes = append(q.Bytes, q.Memory+float64(rapid.IntRange(0, 2).Draw(t, "extra")))
			at := -1
			first := rapid.IntRange(0, hosts-1).Draw(t, "host")
			for k := range hosts {
				j := (first + k) % hosts
				apart := false
				for _, o := range on[j] {
					for _, pair := range [2][2]int{{g, o}, {o, g}} {
						r := rules.Affinity[pair[0]]
						apart = apart || p.Rules != nil && r != nil && (r.Spread != "" && g == o || len(r.Avoid) > 0 && pair[1] == 0)
					}
				}
				if free[j] >= q.Memory && !apart {
					at = j
					break
				}
			}
			if rapid.IntRange(0, 19).Draw(t, "new") == 0 {
				at = -1
			}
			if at >= 0 {
				free[at] -= q.Memory
				on[at] = append(on[at], g)
				if rapid.IntRange(0, 9).Draw(t, "held") == 0 {
					q.Pinned = append(q.Pinned, vm)
				}
			}
			q.Hosts = append(q.Hosts, at)
		}
		p.Groups = append(p.Groups, q)
	}
	p.Limits = migration.Limits{PerHost: rapid.IntRange(0, 2).Draw(t, "per host"), PerLink: rapid.IntRange(0, 2).Draw(t, "per link"), Total: rapid.IntRange(0, 3).Draw(t, "at once"), Bandwidth: float64(rapid.IntRange(0, 1).Draw(t, "bandwidth"))}
	return p
}

func planner(t interface{ Fatalf(string, ...any) }, p migration.Problem) *migration.Planner {
	pl, err := migration.New(p)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return pl
}

func TestPlansKeepTheRulesAtEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		pl := planner(t, p)
		total := 0.0
		for _, q := range p.Groups {
			for _, b := range q.Bytes {
				total += b
			}
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		last := -1.0
		feasible := false
		for _, share := range []float64{0, 0.1, 0.3, 1, math.Inf(1)} {
			budget := total * share
			if math.IsInf(share, 1) {
				budget = share
			}
			plan := pl.Plan(budget)
			for i := range 4 {
				if err := checkPlan(p, plan, budget, rng, i%2 == 0); err != nil {
					t.Fatalf("budget %v of %v: %v\n%+v", budget, total, err, plan)
				}
			}
			if feasible && !plan.Feasible {
				t.Fatalf("budget %v: no plan, but there was one for less", budget)
			}
			if !plan.Feasible {
				continue
			}
			feasible = true
			if plan.MinYieldAfter < last-1e-12 {
				t.Fatalf("budget %v: yield %v, for less there was %v", budget, plan.MinYieldAfter, last)
			}
			last = plan.MinYieldAfter
			if plan.MinYieldAfter > plan.UpperBound+1e-9 {
				t.Fatalf("yield %v above the bound %v", plan.MinYieldAfter, plan.UpperBound)
			}
			again := planner(t, p).Plan(budget)
			if !reflect.DeepEqual(plan, again) {
				t.Fatalf("two plans:\n%+v\n%+v", plan, again)
			}
		}
		for _, point := range pl.Curve() {
			if plan := pl.Plan(point.Bytes); math.Abs(plan.MinYieldAfter-point.MinYield) > 1e-9 {
				t.Fatalf("curve has %+v, the plan %v", point, plan.MinYieldAfter)
			}
			if lowest := pl.Cheapest(point.MinYield); !lowest.Feasible || lowest.Bytes > point.Bytes {
				t.Fatalf("curve has %+v, the least bytes are %v", point, lowest.Bytes)
			}
		}
	})
}
