package migration_test

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"evenkeel/allocator"
	"evenkeel/migration"
	"evenkeel/test/solvers"
)

var (
	crowdedSeeds  = flag.Int("crowded", 40, "how many crowded clusters are drained")
	crowdedFirst  = flag.Uint64("crowded-first", 1, "seed of the first one")
	crowdedStates = flag.Int("crowded-states", 10_000, "states of the exact search for each drain that is refused")
	crowdedLimit  = flag.Duration("crowded-limit", 0, "time limit of that search; 0: none")
	crowdedCBC    = flag.Duration("crowded-cbc", 0, "time limit of cbc, which looks for a placement without the host for each drain that is refused; 0: it is not asked")
	crowdedEffort = flag.Int64("crowded-effort", 20_000_000, "steps of each drain")
)

// crowdedResult is what became of the drain of one crowded cluster.
type crowdedResult struct {
	out   migration.Drained
	err   error
	took  time.Duration
	exact outcome
	moves int // of the order that the exact search found

	cbc solvers.Answer // on placements without the host
}

func (r *crowdedResult) proved() bool {
	return len(r.out.Blockers) > 0 && !slices.ContainsFunc(r.out.Blockers, func(b migration.Blocker) bool { return !b.Proved })
}

func drainCrowded(ctx context.Context, seed uint64, dir string) (r crowdedResult) {
	p, host := crowded(seed)
	p.Steps = *crowdedEffort
	d := migration.DrainRequest{Hosts: []int{host}, Budget: math.Inf(1), Partial: true}
	began := time.Now()
	r.out, r.err = migration.Drain(p, d)
	r.took = time.Since(began)
	if r.err == nil {
		r.err = checkDrain(p, d, r.out, rand.New(rand.NewPCG(seed, 1)))
	}
	if r.err == nil && !r.out.Empties() {
		x := &exactOrder{p: p, host: host, limit: 12, states: *crowdedStates}
		if *crowdedLimit > 0 {
			x.end = time.Now().Add(*crowdedLimit)
		}
		if r.proved() {
			x.states /= 20
		}
		r.exact, r.moves = x.search()
		if *crowdedCBC > 0 {
			r.cbc, r.err = askCBC(ctx, dir, p, host, *crowdedCBC)
		}
	}
	return r
}

// TestCrowdedDrains: where an exact search of orders ends, it finds none by which all VMs leave a host that a drain does not
// empty. What is said to be proved is never refuted.
func TestCrowdedDrains(t *testing.T) {
	counts, proved, workers := map[string]int{}, 0, 2
	results := make([]crowdedResult, *crowdedSeeds)
	var wait sync.WaitGroup
	for w := range workers {
		dir := t.TempDir()
		wait.Go(func() {
			for i := w; i < len(results); i += workers {
				results[i] = drainCrowded(t.Context(), *crowdedFirst+uint64(i), dir)
			}
		})
	}
	wait.Wait()
	var longest, sum time.Duration
	for i, r := range results {
		seed := *crowdedFirst + uint64(i)
		longest = max(longest, r.took)
		sum += r.took
		if r.proved() {
			proved++
		}
		switch {
		case r.err != nil:
			t.Errorf("seed %d: %v", seed, r.err)
		case r.out.Empties():
			counts["emptied"]++
		case r.exact == someOrder:
			counts["missed"]++
			t.Errorf("seed %d: there is an order of %d moves: %s, proved: %v", seed, r.moves, r.out.Reason, r.proved())
		case r.proved() && r.cbc.Infeasible:
			counts["proved impossible, by cbc as well"]++
		case r.proved() && r.cbc.Optimal:
			counts["proved impossible, although cbc finds a placement"]++ // to which no order of moves leads
		case r.proved():
			counts["proved impossible"]++
		case r.cbc.Infeasible:
			counts["not proved, but by cbc"]++
		case r.exact == noOrder:
			counts["no order of 12 moves"]++
		default:
			counts["unknown"]++
			t.Logf("seed %d: neither an order nor a proof, in %v", seed, r.took.Round(time.Millisecond))
		}
	}
	t.Logf("%d drains: %v; %v each, the longest %v", len(results), counts, sum/time.Duration(max(1, len(results))), longest)
	if counts["emptied"]*3 < len(results) || proved*10 < len(results) {
		t.Error("the cases are too easy, or too hard")
	}
}

// TestDrainThatNeedsAnOrder: no placement that is near the present one empties the host of the recorded case. Needs for CPU,
// which bind nowhere or nearly, do not matter.
func TestDrainThatNeedsAnOrder(t *testing.T) {
	for seed := range uint64(80) {
		p, host := recordedCase(seed)
		if seed%2 == 1 {
			p.Rules = &allocator.Rules{Affinity: make([]*allocator.Affinity, len(p.Groups))}
			for g, q := range p.Groups {
				on := slices.Compact(slices.Sorted(slices.Values(q.Hosts)))
				if len(on) == q.Count && q.Count > 1 {
					p.Rules.Affinity[g] = &allocator.Affinity{Spread: "host"}
				}
			}
		}
		p.Steps = 20_000_000
		d := migration.DrainRequest{Hosts: []int{host}, Budget: math.Inf(1), Partial: true}
		out := drained(t, p, d)
		if err := checkDrain(p, d, out, rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !out.Empties() {
			t.Errorf("seed %d: %s: %+v", seed, out.Reason, out.Blockers)
		}
	}
}
