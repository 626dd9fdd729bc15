package migration_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// partlyUsed returns hosts with so much of their memory and CPU in use, a quarter of them without VMs, and the number of one. Half of the clusters have
// unequal hosts.
func partlyUsed(rng *rand.Rand, hosts int, share float64) (migration.Problem, int) {
	p := migration.Problem{}
	unequal := rng.IntN(2) == 0
	for j := range hosts {
		h := migration.Host{Name: fmt.Sprint("h", j), CPU: 16, Memory: 64}
		if unequal {
			h.CPU, h.Memory = float64(8*(1+rng.IntN(4))), float64(32*(1+rng.IntN(4)))
		}
		p.Hosts = append(p.Hosts, h)
		if j > 1 && rng.IntN(4) == 0 {
			continue // it stays empty
		}
		cpu, memory := share*h.CPU, share*h.Memory
		for i := 0; cpu > 0.5 && memory > 1; i++ {
			q := migration.Group{Name: fmt.Sprintf("g%d-%d", j, i), Count: 1, CPU: min(cpu, 0.5+3*rng.Float64()), Memory: min(memory, 1+15*rng.Float64()), Hosts: []int{j}}
			cpu, memory = cpu-q.CPU, memory-q.Memory
			p.Groups = append(p.Groups, q)
		}
	}
	return p, rng.IntN(hosts)
}

// standing is how hosts are used in the end: the capacity of those with VMs, and the headrooms, least first.
type standing struct {
	used      float64
	headrooms []float64
}

func standingOf(p migration.Problem, hosts [][]int, drained int, policy allocator.Policy) standing {
	n := len(p.Hosts)
	cpu, memory, vms := make([]float64, n), make([]float64, n), make([]int, n)
	for g := range hosts {
		for _, j := range hosts[g] {
			cpu[j] += p.Groups[g].CPU
			memory[j] += p.Groups[g].Memory
			vms[j]++
		}
	}
	var all migration.Host
	for j, h := range p.Hosts {
		if j != drained {
			all.CPU, all.Memory = all.CPU+h.CPU, all.Memory+h.Memory
		}
	}
	var s standing
	for j, h := range p.Hosts {
		if j == drained || policy == allocator.Pack && vms[j] == 0 {
			continue
		}
		s.used += h.CPU/all.CPU/2 + h.Memory/all.Memory/2
		s.headrooms = append(s.headrooms, min(1-cpu[j]/h.CPU, 1-memory[j]/h.Memory))
	}
	slices.Sort(s.headrooms)
	return s
}

// compare is above 0 if s is better than o.
func (s standing) compare(o standing) int {
	if d := o.used - s.used; math.Abs(d) > 1e-9 {
		return cmp.Compare(d, 0)
	}
	for i := range min(len(s.headrooms), len(o.headrooms)) {
		if d := s.headrooms[i] - o.headrooms[i]; math.Abs(d) > 1e-9 {
			return cmp.Compare(d, 0)
		}
	}
	return 0
}

var policies = map[string]allocator.Policy{"spread": allocator.Spread, "pack": allocator.Pack}

// The policy costs no byte and no yield, keeps the rules of plans, and no drain ends worse by it.
func TestDrainsKeepToThePolicy(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		better, sum, before := 0, 0.0, 0.0
		const cases = 100
		for seed := range uint64(cases) {
			rng := rand.New(rand.NewPCG(seed, 7))
			p, host := partlyUsed(rng, 4+rng.IntN(30), 0.3+0.5*rng.Float64())
			if seed%3 == 2 {
				p, host = crowded(seed)
			}
			if seed%4 == 1 {
				p.NoRoute = func(from, to int) string {
					if (from+to)%3 == 2 {
						return "no way"
					}
					return ""
				}
			}
			d := migration.DrainRequest{Hosts: []int{host}, Budget: math.Inf(1), Partial: true}
			p.Steps = 500_000
			plain := drained(t, p, d)
			p.Policy = policy
			out := drained(t, p, d)
			if err := checkDrain(p, d, out, rng); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
			if out.Feasible != plain.Feasible || len(out.Blockers) != len(plain.Blockers) || out.Bytes > plain.Bytes || out.MinYieldAfter < plain.MinYieldAfter-1e-9 {
				t.Fatalf("seed %d, %s: %d blockers, %g bytes and yield %g; without it %d, %g and %g", seed, name, len(out.Blockers), out.Bytes, out.MinYieldAfter, len(plain.Blockers), plain.Bytes, plain.MinYieldAfter)
			}
			if !out.Feasible || plain.MinYieldAfter < 1 { // below it yields count first
				continue
			}
			is, was := standingOf(p, out.Hosts, host, policy), standingOf(p, plain.Hosts, host, policy)
			if is.compare(was) < 0 {
				t.Fatalf("seed %d, %s: hosts stand %+v, and %+v without it", seed, name, is, was)
			}
			if is.compare(was) > 0 {
				better++
			}
			if policy == allocator.Pack {
				sum, before = sum+is.used, before+was.used
			} else {
				sum, before = sum+is.headrooms[0], before+was.headrooms[0]
			}
		}
		t.Logf("%s: better in %d of %d drains; what it is about adds up to %.2f instead of %.2f", name, better, cases, sum, before)
		if better == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// Of all hosts that the VMs of a drained host can go to, the policy takes the best.
func TestDrainsAgainstEveryTarget(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		examined := 0
		for seed := range uint64(400) {
			rng := rand.New(rand.NewPCG(seed, 8))
			p, host := partlyUsed(rng, 3+rng.IntN(3), 0.2+0.3*rng.Float64())
			var leave []int
			for g, q := range p.Groups {
				if q.Hosts[0] == host {
					leave = append(leave, g)
				}
			}
			if len(leave) > 6 {
				continue
			}
			p.Policy = policy
			out := drained(t, p, migration.DrainRequest{Hosts: []int{host}, Budget: math.Inf(1)})
			if !out.Feasible || out.Moves != len(leave) || out.MinYieldAfter < 1 {
				continue
			}
			examined++
			at := make([][]int, len(p.Groups))
			for g := range at {
				at[g] = slices.Clone(p.Groups[g].Hosts)
			}
			best := standingOf(p, out.Hosts, host, policy)
			var try func(k int)
			try = func(k int) {
				if k == len(leave) {
					if s := standingOf(p, at, host, policy); s.compare(best) > 0 && s.headrooms[0] >= 0 {
						t.Fatalf("seed %d, %s: %v stands at %+v, the plan at %+v", seed, name, at, s, best)
					}
					return
				}
				for j := range p.Hosts {
					if j != host {
						at[leave[k]][0] = j
						try(k + 1)
					}
				}
			}
			try(0)
		}
		if examined < 100 {
			t.Errorf("%s: only %d drains were examined", name, examined)
		}
	}
}

// A re-balance has the same yield and bytes by any policy.
func TestRebalancesKeepToThePolicy(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		better := 0
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 9))
			p, host := partlyUsed(rng, 4+rng.IntN(12), 0.3+0.4*rng.Float64())
			for g := range p.Groups { // one host has too much
				if j := p.Groups[g].Hosts[0]; j != host && rng.IntN(3) == 0 {
					p.Groups[g].Hosts[0] = host
					if p.Hosts[host].Memory -= p.Groups[g].Memory; p.Hosts[host].Memory < 0 {
						p.Groups[g].Hosts[0] = j
					}
					p.Hosts[host].Memory += p.Groups[g].Memory
				}
			}
			p.Hosts[host].Memory *= 4
			p.Steps = 500_000
			budget := 20 + 100*rng.Float64()
			plan := func() migration.Plan {
				pl, err := migration.New(p)
				if err != nil {
					t.Fatal(err)
				}
				return pl.Plan(budget)
			}
			plain := plan()
			p.Policy = policy
			out := plan()
			if err := checkPlan(p, out, budget, rng, true); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
			if out.Feasible != plain.Feasible || out.Bytes > plain.Bytes || math.Abs(out.MinYieldAfter-plain.MinYieldAfter) > 1e-9 {
				t.Fatalf("seed %d, %s: %g bytes and yield %g; without it %g and %g", seed, name, out.Bytes, out.MinYieldAfter, plain.Bytes, plain.MinYieldAfter)
			}
			if out.Feasible && plain.MinYieldAfter == 1 && standingOf(p, out.Hosts, -1, policy).compare(standingOf(p, plain.Hosts, -1, policy)) > 0 {
				better++
			}
		}
		t.Logf("%s: better in %d of 30 re-balances", name, better)
		if better == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}
