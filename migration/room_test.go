package migration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/allocator"
	"evenkeel/migration"
)

func TestRoomForWhatIsNew(t *testing.T) {
	p := migration.Problem{
		Hosts: []migration.Host{{Name: "h0", CPU: 2, Memory: 4}, {Name: "h1", CPU: 2, Memory: 4}},
		Groups: []migration.Group{
			{Name: "a", Count: 1, CPU: 1, Memory: 2, Bytes: []float64{2.5}, Hosts: []int{0}},
			{Name: "b", Count: 1, CPU: 1, Memory: 2, Bytes: []float64{3}, Hosts: []int{1}},
			{Name: "new", Count: 1, CPU: 0.5, Memory: 3, MinYield: 0.5},
		},
	}
	pl := planner(t, p)
	refused := pl.Plan(2)
	if refused.Feasible || refused.Takes != 2.5 || !strings.Contains(refused.Reason, "2.5 B") || len(refused.Steps) > 0 {
		t.Errorf("with too few bytes: %+v", refused)
	}
	plan := pl.Plan(2.5)
	if !plan.Feasible || plan.Bytes != 2.5 || plan.Moves != 1 {
		t.Fatalf("%+v", plan)
	}
	if err := checkPlan(p, plan, 2.5, rand.New(rand.NewPCG(1, 1)), true); err != nil {
		t.Error(err)
	}
	last := plan.Steps[len(plan.Steps)-1]
	if last.Kind != migration.Start || len(last.After) == 0 {
		t.Errorf("the VM starts without waiting for room: %+v", plan.Steps)
	}
	p.Groups[2].MinYield = 1
	p.Groups[2].CPU = 2.5
	if plan := planner(t, p).Plan(math.Inf(1)); plan.Feasible || !math.IsInf(plan.Takes, 1) {
		t.Errorf("a floor that no placement keeps: %+v", plan)
	}
}

func TestCapsOnly(t *testing.T) {
	p := migration.Problem{
		Hosts: []migration.Host{{Name: "h0", CPU: 1, Memory: 4}, {Name: "h1", CPU: 4, Memory: 4}},
		Groups: []migration.Group{
			{Name: "a", Count: 1, CPU: 1, Memory: 2, Hosts: []int{0}},
			{Name: "b", Count: 1, CPU: 1, Memory: 2, Hosts: []int{0}},
		},
		Caps: []float64{0.9, 0.1},
	}
	plan := planner(t, p).Plan(0)
	if plan.Moves != 0 || plan.MinYieldBefore != 0.1 || math.Abs(plan.MinYieldAfter-0.5) > 1e-9 || len(plan.Steps) != 1 || len(plan.Steps[0].Shrink) != 1 || len(plan.Steps[0].Grow) != 1 {
		t.Errorf("%+v", plan)
	}
	if err := checkPlan(p, plan, 0, rand.New(rand.NewPCG(1, 1)), true); err != nil {
		t.Error(err)
	}
}

func TestIdleClusterMovesNothing(t *testing.T) {
	p := migration.Problem{
		Hosts:  []migration.Host{{Name: "h0", CPU: 8, Memory: 64}, {Name: "h1", CPU: 8, Memory: 64}},
		Groups: []migration.Group{{Name: "a", Count: 8, CPU: 0.1, Memory: 2, Hosts: make([]int, 8)}},
	}
	plan := planner(t, p).Plan(math.Inf(1))
	if plan.Moves != 0 || len(plan.Steps) != 0 || !strings.HasPrefix(plan.Reason, "no beneficial move") {
		t.Errorf("%+v", plan)
	}
}

// Two VMs that fill their hosts change places by way of a third, and only if
// that may cost as much.
func TestSwapThroughAThirdHost(t *testing.T) {
	p := migration.Problem{
		Hosts: []migration.Host{{Name: "h0", CPU: 1, Memory: 4}, {Name: "h1", CPU: 3, Memory: 4}, {Name: "h2", CPU: 0.01, Memory: 4}},
		Groups: []migration.Group{
			{Name: "busy", Count: 1, CPU: 3, Memory: 4, Hosts: []int{0}},
			{Name: "idle", Count: 1, CPU: 1, Memory: 3, Hosts: []int{1}},
		},
	}
	pl := planner(t, p)
	plan := pl.Plan(9)
	if plan.Bytes != 0 || len(plan.Passed) == 0 {
		t.Errorf("a swap of 4 and 3 bytes by way of a third host costs 10: %+v", plan)
	}
	plan = pl.Plan(10)
	if plan.Bytes != 10 || plan.Moves != 3 || plan.MinYieldAfter != 1 {
		t.Fatalf("%+v", plan)
	}
	if err := checkPlan(p, plan, 10, rand.New(rand.NewPCG(1, 1)), true); err != nil {
		t.Error(err)
	}
	if lowest := pl.Cheapest(0.9); lowest.Bytes != 10 {
		t.Errorf("%+v", lowest)
	}
	if lowest := pl.Cheapest(2); lowest.Feasible || !math.IsInf(lowest.Takes, 1) {
		t.Errorf("%+v", lowest)
	}
}

// What the properties show of small problems is shown of larger ones with little
// memory here: groups, rules, limits, several stages.
func TestLargerPlansKeepTheRules(t *testing.T) {
	moves, stagings, stages := 0, 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := migration.Problem{Limits: migration.Limits{PerHost: 1 + rng.IntN(2), Total: 4, PerLink: 3, Bandwidth: 1}, Rules: &allocator.Rules{}}
		hosts := 8 + rng.IntN(8)
		free := make([]float64, hosts)
		for j := range hosts {
			p.Hosts = append(p.Hosts, migration.Host{Name: fmt.Sprint("h", j), CPU: 4 + float64(rng.IntN(3)), Memory: 40, Reserve: 1, Link: fmt.Sprint(j % 2)})
			free[j] = 38
		}
		for g := range 40 {
			q := migration.Group{Name: fmt.Sprint("g", g), CPU: 0.2 + 1.5*rng.Float64(), Memory: float64(1 + rng.IntN(15)), Reclaimable: float64(rng.IntN(3)), Count: 1 + rng.IntN(3)}
			var rule *allocator.Affinity
			if rng.IntN(3) == 0 {
				rule = &allocator.Affinity{Spread: "host"}
			}
			p.Rules.Affinity = append(p.Rules.Affinity, rule)
			for range q.Count {
				for range 20 {
					j := rng.IntN(hosts)
					here := false
					for _, k := range q.Hosts {
						here = here || k == j
					}
					if free[j] >= q.Memory && !(here && rule != nil) {
						free[j] -= q.Memory
						q.Hosts = append(q.Hosts, j)
						break
					}
				}
			}
			q.Count = len(q.Hosts)
			p.Groups = append(p.Groups, q)
		}
		if seed%2 == 0 {
			p.Groups[0].MinYield = 0.1
		}
		pl := planner(t, p)
		last := 0.0
		for _, budget := range []float64{0, 5, 20, 60, 200, math.Inf(1)} {
			plan := pl.Plan(budget)
			for i := range 2 {
				if err := checkPlan(p, plan, budget, rng, i == 0); err != nil {
					t.Fatalf("seed %d, budget %v: %v", seed, budget, err)
				}
			}
			if !plan.Feasible || plan.MinYieldAfter < max(last, plan.MinYieldBefore)-1e-9 {
				t.Errorf("seed %d, budget %v: %v after %v, less allowed %v: %s", seed, budget, plan.MinYieldAfter, plan.MinYieldBefore, last, plan.Reason)
			}
			last = plan.MinYieldAfter
			moves += plan.Moves
			for _, s := range plan.Steps {
				if s.Staging {
					stagings++
				}
				if s.Kind == migration.Adjust {
					stages++
				}
			}
		}
	}
	t.Logf("%d moves, %d of them to a third host, caps set %d times", moves, stagings, stages)
	if moves == 0 || stages == 0 {
		t.Error("nothing was tried")
	}
}

// The checker finds fault with a plan whose steps wait for nothing.
func TestCheckerSeesStepsThatDoNotWait(t *testing.T) {
	seen := 0
	for seed := range uint64(20) {
		p, ok := overfull(seed, 4, 10, 0.15)
		if !ok {
			continue
		}
		plan := planner(t, p).Plan(math.Inf(1))
		for i := range plan.Steps {
			plan.Steps[i].After = nil
		}
		if plan.Moves > 1 && checkPlan(p, plan, math.Inf(1), rand.New(rand.NewPCG(seed, 7)), true) != nil {
			seen++
		}
	}
	if seen < 5 {
		t.Errorf("%d plans without any order were refused", seen)
	}
}

// Hosts that have lost memory to others, or take part in rules that are broken
// already, are never made worse.
func TestHostsBeyondTheirMemory(t *testing.T) {
	mended := 0
	for seed := range uint64(40) {
		p, ok := overfull(seed, 4, 10, 0.5)
		if !ok {
			continue
		}
		used := 0.0
		for _, q := range p.Groups {
			if q.Hosts[0] == 0 {
				used += q.Memory
			}
		}
		if used < 2 {
			continue
		}
		p.Hosts[0].Memory = used - 1
		pl := planner(t, p)
		for _, budget := range []float64{0, 10, math.Inf(1)} {
			plan := pl.Plan(budget)
			if err := checkPlan(p, plan, budget, rand.New(rand.NewPCG(seed, 8)), seed%2 == 0); err != nil {
				t.Fatalf("seed %d, budget %v: %v", seed, budget, err)
			}
			after := 0.0
			for g, q := range p.Groups {
				if plan.Feasible && plan.Hosts[g][0] == 0 {
					after += q.Memory
				}
			}
			if budget > 10 && after < used {
				mended++
			}
		}
	}
	if mended < 5 {
		t.Errorf("%d hosts were relieved", mended)
	}
}

// Among many VMs one that fits nowhere takes few moves, not a new placement of all.
func TestRoomAmongMany(t *testing.T) {
	p := scattered(1, 64, 500)
	free := make([]float64, len(p.Hosts))
	for j := range free {
		free[j] = p.Hosts[j].Memory
	}
	total := 0.0
	for _, g := range p.Groups {
		free[g.Hosts[0]] -= g.Memory
		total += g.Memory
	}
	highest := 0.0
	for _, f := range free {
		highest = max(highest, f)
	}
	p.Groups = append(p.Groups, migration.Group{Name: "new", Count: 1, CPU: 1, Memory: highest + 1<<30})
	pl := planner(t, p)
	refused := pl.Plan(0)
	if refused.Feasible || !(refused.Takes > 0) || refused.Takes > total/100 {
		t.Fatalf("room for one VM is said to take %v of %v bytes: %s", refused.Takes, total, refused.Reason)
	}
	plan := pl.Plan(refused.Takes)
	if !plan.Feasible || plan.Bytes > refused.Takes {
		t.Fatalf("%v bytes are not enough: %s", refused.Takes, plan.Reason)
	}
	if err := checkPlan(p, plan, refused.Takes, rand.New(rand.NewPCG(1, 9)), false); err != nil {
		t.Error(err)
	}
	t.Logf("%d moves, %.2f GiB of %.0f", plan.Moves, plan.Bytes/(1<<30), total/(1<<30))
}

// Two VMs change places by way of a third host, if that can keep its part of what the one that waits there may take back, too.
func TestWaitingCountsInTheReserve(t *testing.T) {
	for there, stagings := range map[int]bool{3: true, 4: false} { // 2 of the largest is 4 times 2 in quarters, and less than 5 times 2
		p := migration.Problem{Hosts: []migration.Host{{Name: "a", CPU: 1, Memory: 8}, {Name: "b", CPU: 4, Memory: 8}, {Name: "c", CPU: 1, Memory: float64(there) + 8.25}}}
		p.Groups = []migration.Group{{Name: "x", Count: 1, CPU: 4, Memory: 6, Reclaimable: 2, Hosts: []int{0}}, {Name: "y", Count: 1, CPU: 1, Memory: 6, Reclaimable: 2, Hosts: []int{1}}}
		for i := range there {
			p.Groups = append(p.Groups, migration.Group{Name: fmt.Sprint("f", i), Count: 1, CPU: 0.1, Memory: 1, Reclaimable: 2, Hosts: []int{2}, Pinned: []int{0}})
		}
		plan := planner(t, p).Plan(math.Inf(1))
		if err := checkPlan(p, plan, math.Inf(1), rand.New(rand.NewPCG(1, 1)), true); err != nil {
			t.Errorf("%d there: %v", there, err)
		}
		if staged := plan.Moves == 3; staged != stagings {
			t.Errorf("%d there: %+v", there, plan)
		}
	}
}
