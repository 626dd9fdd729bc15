package allocator_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

var policyCases = flag.Int("policy-cases", 600, "small cases in which a policy is compared with every placement")

// policyCase is some VMs that run and some to be placed, each a virtual cluster by itself, on 2 to 4 hosts, of which some
// are unequal, and one may be cordoned.
func policyCase(r *rand.Rand) allocator.Problem {
	var p allocator.Problem
	unequal, load := r.IntN(2) == 0, 0.2+1.1*r.Float64()
	for range 2 + r.IntN(3) {
		h := allocator.Host{CPU: 16, Memory: 64}
		if unequal {
			h.CPU, h.Memory = float64(int(4)<<r.IntN(4)), float64(int(16)<<r.IntN(4))
		}
		p.Hosts = append(p.Hosts, h)
	}
	if len(p.Hosts) > 2 && r.IntN(6) == 0 {
		p.Hosts[r.IntN(len(p.Hosts))].Cordoned = true
	}
	n := 1 + r.IntN(7)
	var cpu float64
	memory := make([]float64, len(p.Hosts))
	for range n {
		g := allocator.Group{Count: 1, CPU: float64(1+r.IntN(40)) / 4, Memory: float64(1 + r.IntN(30))}
		if r.IntN(4) == 0 {
			if j := r.IntN(len(p.Hosts)); memory[j]+g.Memory <= p.Hosts[j].Memory {
				g.Hosts = []int{j}
				memory[j] += g.Memory
			}
		}
		cpu += g.CPU
		p.Groups = append(p.Groups, g)
	}
	have := 0.0
	for _, h := range p.Hosts {
		have += h.CPU
	}
	for g := range p.Groups {
		p.Groups[g].CPU *= load * have / cpu
	}
	return p
}

// measured is what the policies compare, from the definitions alone: the part of the open hosts' capacity that is on hosts
// with VMs, the headrooms of the open hosts (inUse: of those with VMs), least first, and the level of each host.
func measured(p allocator.Problem, at []int, inUse bool) (used float64, headrooms, yields []float64) {
	n := len(p.Hosts)
	cpu, memory, vms := make([]float64, n), make([]float64, n), make([]int, n)
	for g, j := range at {
		cpu[j] += p.Groups[g].CPU
		memory[j] += p.Groups[g].Memory
		vms[j]++
	}
	var allCPU, allMemory float64
	yields = make([]float64, n)
	for j, h := range p.Hosts {
		yields[j] = min(1, h.CPU/max(cpu[j], 1e-12))
		if !h.Cordoned {
			allCPU, allMemory = allCPU+h.CPU, allMemory+h.Memory
		}
	}
	for j, h := range p.Hosts {
		if h.Cordoned || inUse && vms[j] == 0 {
			continue
		}
		if vms[j] > 0 {
			used += h.CPU/allCPU/2 + h.Memory/allMemory/2
		}
		headrooms = append(headrooms, min(1-cpu[j]/h.CPU, 1-memory[j]/h.Memory))
	}
	slices.Sort(headrooms)
	return used, headrooms, yields
}

// compareHeadrooms is above 0 where a is better.
func compareHeadrooms(a, b []float64) float64 {
	for i := range min(len(a), len(b)) {
		if d := a[i] - b[i]; math.Abs(d) > 1e-7 {
			return d
		}
	}
	return 0
}

// everyPlacement calls with each placement of the VMs that have no host on hosts that are open and have the memory.
func everyPlacement(p allocator.Problem, call func(at []int)) {
	at, memory := make([]int, len(p.Groups)), make([]float64, len(p.Hosts))
	for g, q := range p.Groups {
		if q.Hosts != nil {
			at[g] = q.Hosts[0]
			memory[at[g]] += q.Memory
		}
	}
	var place func(g int)
	place = func(g int) {
		switch {
		case g == len(at):
			call(at)
			return
		case p.Groups[g].Hosts != nil:
			place(g + 1)
			return
		}
		for j, h := range p.Hosts {
			if m := p.Groups[g].Memory; !h.Cordoned && memory[j]+m <= h.Memory {
				at[g] = j
				memory[j] += m
				place(g + 1)
				memory[j] -= m
			}
		}
	}
	place(0)
}

// The policies against every placement that gives no virtual cluster less: never a lower minimum yield, and mostly the best.
func TestPoliciesAgainstEveryPlacement(t *testing.T) {
	flat := func(hosts [][]int) (at []int) {
		for _, h := range hosts {
			at = append(at, h...)
		}
		return at
	}
	r := rand.New(rand.NewPCG(22, 5))
	type tally struct{ cases, first, all, worse, yields int }
	tallies := map[string]*tally{}
	for range *policyCases {
		p := policyCase(r)
		for _, by := range []string{"admit", "best"} {
			solve := func(policy allocator.Policy) (allocator.Solution, bool) {
				q := p
				q.Policy = policy
				if by == "admit" {
					a := allocator.Admit(q)
					return a.Solution, a.Admitted
				}
				o := allocator.Best(q, allocator.Search{Seed: 1, Steps: 100_000, Stay: true})
				return o.Solution, o.Verdict >= allocator.Feasible
			}
			found, ok := solve(allocator.AsFound)
			if !ok {
				continue
			}
			for policy, name := range map[allocator.Policy]string{allocator.Spread: by + " spread", allocator.Pack: by + " pack"} {
				s, ok := solve(policy)
				if err := checkSolution(p, s); !ok || err != nil || s.MinYield < found.MinYield-1e-12 {
					t.Fatalf("%s: %v %v, minimum yield %v instead of %v: %+v", name, ok, err, s.MinYield, found.MinYield, p)
				}
				c := tallies[name]
				if c == nil {
					c = &tally{}
					tallies[name] = c
				}
				used, rooms, _ := measured(p, flat(s.Hosts), policy == allocator.Pack)
				of := func(at []int) (lowest []float64) {
					_, _, y := measured(p, at, false)
					for _, j := range at {
						lowest = append(lowest, y[j])
					}
					slices.Sort(lowest)
					return lowest
				}
				mine := of(flat(s.Hosts))
				bestYields, bestUsed, bestRooms := mine, used, rooms
				everyPlacement(p, func(at []int) {
					lowest := of(at)
					if lowest[0] < found.MinYield-1e-9 {
						return
					}
					u, h, _ := measured(p, at, policy == allocator.Pack)
					d := compareHeadrooms(lowest, bestYields)
					if d == 0 && policy == allocator.Pack && math.Abs(u-bestUsed) > 1e-9 {
						d = bestUsed - u
					} else if d == 0 {
						d = compareHeadrooms(h, bestRooms)
					}
					if d > 0 {
						bestYields, bestUsed, bestRooms = lowest, u, h
					}
				})
				if compareHeadrooms(bestYields, mine) > 0 {
					c.yields++
				}
				c.cases++
				best := compareHeadrooms(bestYields, mine) == 0 && (policy == allocator.Spread || math.Abs(bestUsed-used) < 1e-9)
				if best && (len(rooms) == 0 || math.Abs(bestRooms[0]-rooms[0]) < 1e-7) {
					c.first++
				}
				if best && compareHeadrooms(bestRooms, rooms) == 0 {
					c.all++
				}
				if policy == allocator.Pack && !best {
					c.worse++
				}
			}
		}
	}
	for name, c := range tallies {
		if c.cases == 0 || c.all != c.cases {
			t.Errorf("%s: not the best in each of %d cases", name, c.cases)
		}
		t.Logf("%s: of %d cases %d have the best least headroom and %d all headrooms; %d leave less capacity free, and %d have lower yields", name, c.cases, c.first, c.all, c.worse, c.yields)
	}
}

// Whatever rules, floors, homes and budgets there are, a policy lowers no minimum yield, moves no more, and breaks no rule.
func TestPoliciesTakeNothing(t *testing.T) {
	changed := 0
	rapid.Check(t, func(t *rapid.T) {
		p, s := drawSearch(t)
		s.Steps = 20_000
		p.Policy = allocator.AsFound
		found := allocator.Best(p, s)
		p.Policy = rapid.SampledFrom([]allocator.Policy{allocator.Spread, allocator.Pack}).Draw(t, "by")
		o := allocator.Best(p, s)
		if err := checkOutcome(p, s, o); err != nil {
			t.Fatalf("%+v, %+v: %v: %+v", p, s, err, o)
		}
		if o.Verdict < found.Verdict || o.Verdict >= allocator.Feasible && (o.Solution.MinYield < found.Solution.MinYield-1e-12 || o.Moved > found.Moved+1e-9) {
			t.Fatalf("%+v, %+v: as found %+v, by policy %d %+v", p, s, found, p.Policy, o)
		}
		if !slices.EqualFunc(found.Solution.Hosts, o.Solution.Hosts, slices.Equal[[]int]) {
			changed++
		}
	})
	if changed == 0 {
		t.Error("no policy changed anything")
	}
}

// A policy keeps a VM on its host where the search has put another one of its group there instead.
func TestPolicyKeepsVMsHome(t *testing.T) {
	budget := 0.17
	p := allocator.Problem{
		Hosts: []allocator.Host{{Name: "h0", CPU: 3.39, Memory: 0.13}, {Name: "h1", CPU: 2.56, Memory: 4}, {Name: "h2", CPU: 1.1, Memory: 0.42}},
		Groups: []allocator.Group{{Name: "g0", Count: 3, CPU: 0.02, Memory: 0.01, MinYield: 0.07, Hosts: []int{2, -1, 2}},
			{Name: "g1", Cluster: "a", Count: 3, CPU: 0.61, Memory: 0.04, MinYield: 0.63, Hosts: []int{2, 2, -1}}},
	}
	s := allocator.Search{Seed: 0x1b48f, Steps: 20_000, MoveBudget: &budget}
	found := allocator.Best(p, s)
	for _, p.Policy = range []allocator.Policy{allocator.Spread, allocator.Pack} {
		if o := allocator.Best(p, s); o.Moved > found.Moved+1e-9 {
			t.Errorf("policy %d moves %v, the search %v: %v, %v", p.Policy, o.Moved, found.Moved, o.Solution.Hosts, found.Solution.Hosts)
		}
	}
}
