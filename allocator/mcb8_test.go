package allocator_test

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

func TestMCB8KnownAnswers(t *testing.T) {
	host := func(cpu, memory float64) allocator.Host { return allocator.Host{CPU: cpu, Memory: memory} }
	for name, c := range map[string]struct {
		hosts         []allocator.Host
		groups        []allocator.Group
		lowest, bound float64
		fails         bool
	}{
		"the paper's three tasks on two hosts (sec. 2.3)": {
			hosts:  []allocator.Host{host(1, 1), host(1, 1)},
			groups: []allocator.Group{{Count: 3, CPU: 0.6, Memory: 0.1}},
			lowest: 0.5 / 0.6, bound: 0.5 / 0.6,
		},
		"exact fit of decimals": {
			hosts:  []allocator.Host{host(0.3, 0.3)},
			groups: []allocator.Group{{Count: 3, CPU: 0.1, Memory: 0.1}},
			lowest: 1, bound: 1,
		},
		"a need above any host": {
			hosts:  []allocator.Host{host(2, 1), host(1, 1)},
			groups: []allocator.Group{{Count: 1, CPU: 4, Memory: 1}},
			lowest: 0.5, bound: 0.5,
		},
		"no need of CPU": {
			hosts:  []allocator.Host{host(1, 1)},
			groups: []allocator.Group{{Count: 4, CPU: 0, Memory: 0.25}},
			lowest: 1, bound: 1,
		},
		"unequal hosts, largest VM only on the largest": {
			hosts:  []allocator.Host{host(1, 1), host(4, 4), host(2, 2)},
			groups: []allocator.Group{{Count: 1, CPU: 1, Memory: 1}, {Count: 1, CPU: 2, Memory: 2}, {Count: 1, CPU: 4, Memory: 4}},
			lowest: 1, bound: 1,
		},
		"memory does not fit": {
			hosts:  []allocator.Host{host(1, 1), host(1, 1)},
			groups: []allocator.Group{{Count: 3, CPU: 0.1, Memory: 0.6}},
			fails:  true,
		},
		"only cordoned hosts": {
			hosts:  []allocator.Host{{CPU: 1, Memory: 1, Cordoned: true}},
			groups: []allocator.Group{{Count: 1, CPU: 0.1, Memory: 0.1}},
			fails:  true,
		},
		"no VM at all": {hosts: []allocator.Host{host(1, 1)}, lowest: 1, bound: 1},
		"malformed":    {hosts: []allocator.Host{host(math.NaN(), 1)}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := allocator.Problem{Hosts: c.hosts, Groups: c.groups}
			s, ok := allocator.MCB8(p)
			if ok == c.fails {
				t.Fatalf("MCB8(%+v) = %+v, %v", p, s, ok)
			}
			if c.fails {
				return
			}
			if err := checkSolution(p, s); err != nil {
				t.Fatal(err)
			}
			if math.Abs(s.MinYield-c.lowest) > 1e-9 || math.Abs(s.UpperBound-c.bound) > 1e-9 {
				t.Errorf("minimum yield %v, bound %v; want %v, %v", s.MinYield, s.UpperBound, c.lowest, c.bound)
			}
		})
	}
}

func TestMCB8KeepsEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 6), Groups: drawGroups(t, 8, 40)}
		for g := range p.Groups {
			p.Groups[g].MinYield = hundredths(t, "floor", 0, 100)
		}
		for j := range p.Hosts {
			p.Hosts[j].Cordoned = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0
		}
		s, ok := allocator.MCB8(p)
		again, okAgain := allocator.MCB8(p)
		if ok != okAgain || !reflect.DeepEqual(s, again) {
			t.Fatalf("two answers to one problem: %+v, %+v", s, again)
		}
		if !ok {
			return
		}
		if err := checkSolution(p, s); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		if len(s.Shortfall) > 0 {
			t.Errorf("floors were packed for, but are not kept: %+v", s.Shortfall)
		}
		for g := range s.Hosts {
			for _, j := range s.Hosts[g] {
				if p.Hosts[j].Cordoned {
					t.Errorf("VM of group %d on cordoned host %d", g, j)
				}
			}
		}
	})
}

func TestMCB8AgainstEveryPlacement(t *testing.T) {
	solved, optimal, possible := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 3), Groups: drawGroups(t, 6, 6)}
		best := optimum(p)
		s, ok := allocator.MCB8(p)
		if best < 0 {
			if ok {
				t.Fatalf("placed what cannot be placed: %+v", s)
			}
			return
		}
		possible++
		if proof := allocator.ProveInfeasible(p); proof != "" {
			t.Fatalf("%+v has a placement of yield %v, but is 'proved' to have none: %s", p, best, proof)
		}
		for name, bound := range map[string]float64{"Bound": allocator.Bound(p), "UpperBound": allocator.UpperBound(p)} {
			if bound < best*(1-1e-15) {
				t.Fatalf("%s %v is below the optimum %v", name, bound, best)
			}
		}
		if allocator.UpperBound(p) > allocator.Bound(p) {
			t.Fatalf("UpperBound %v above Bound %v", allocator.UpperBound(p), allocator.Bound(p))
		}
		if !ok {
			return
		}
		solved++
		if s.MinYield > best*(1+1e-12) {
			t.Fatalf("yield %v is better than the optimum %v", s.MinYield, best)
		}
		if s.MinYield >= best*(1-1e-9) {
			optimal++
		}
	})
	t.Logf("%d placeable, %d placed, %d of them at the optimum", possible, solved, optimal)
}

func TestMCB8DoesNotDependOnTheOrderOfGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 5), Groups: drawGroups(t, 8, 30)}
		q := allocator.Problem{Hosts: p.Hosts, Groups: rapid.Permutation(p.Groups).Draw(t, "order")}
		a, okA := allocator.MCB8(p)
		b, okB := allocator.MCB8(q)
		// The search ends within 1e-6 of where the packing fails.
		if okA != okB || math.Abs(a.MinYield-b.MinYield) > 2e-6 {
			t.Fatalf("yield %v (%v) in one order, %v (%v) in another", a.MinYield, okA, b.MinYield, okB)
		}
	})
}

func TestBoundRoundsUp(t *testing.T) {
	p := allocator.Problem{Hosts: []allocator.Host{{CPU: 0.3, Memory: 1}}, Groups: []allocator.Group{{Count: 3, CPU: 0.7}}}
	if b := allocator.Bound(p); b < 0.3/2.1 || b > 0.3/2.1*(1+1e-12) {
		t.Errorf("bound %v, want just over %v", b, 0.3/2.1)
	}
}
