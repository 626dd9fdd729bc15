package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
)

// VMs that require each other spread over the hosts two by two, in a greater number, too.
func TestRequireOwnCompany(t *testing.T) {
	hosts := make([]allocator.Host, 30)
	for j := range hosts {
		hosts[j] = allocator.Host{Name: fmt.Sprintf("h%d", j+1), CPU: 30.4, Memory: 121 * gib}
	}
	r := &allocator.Rules{ByCluster: true, Affinity: []*allocator.Affinity{{Require: []string{"vc:imp"}}}}
	for _, n := range []int{2, 3, 31, 100, 121, 150, 200, 241, 400, 900, 1800, 3630} {
		p := allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Cluster: "imp", Name: "w", Count: n, CPU: 1, Memory: gib}}}
		want := min(1, 30.4/float64((n+29)/30))
		a := allocator.AdmitUnder(p, r)
		if !a.Admitted || a.Solution.MinYield < want-0.01 {
			t.Errorf("%d VMs: admitted %v at yield %v, want %v: %s", n, a.Admitted, a.Solution.MinYield, want, a.Summary)
			continue
		}
		if err := ruleBroken(p, r, a.Solution.Hosts, func(int, int) bool { return true }); err != nil {
			t.Errorf("%d VMs: %v", n, err)
		}
		if b := allocator.Best(p, allocator.Search{Rules: r}); b.Solution.MinYield < want-1e-9 {
			t.Errorf("%d VMs: %v at yield %v, want %v", n, b.Verdict, b.Solution.MinYield, want)
		}
	}
	p := allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Cluster: "imp", Name: "w", Count: 5000, CPU: 1, Memory: gib}}}
	if a := allocator.AdmitUnder(p, r); a.Admitted || a.Fits != 3630 || len(a.Advice) == 0 || a.Advice[0] != "at most 3630 VMs in imp/w instead of 5000" {
		t.Errorf("5,000 VMs: %d fit, advice %q", a.Fits, a.Advice)
	}
}

// What trying every placement finds under rules, Admit admits, at nearly the same yield.
func TestAdmitUnderRulesAgainstAll(t *testing.T) {
	solvable, missed, below, loss := 0, 0, 0, 0.0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 17))
		p, r := smallRuled(rng)
		best := bestRuled(p, r)
		a := allocator.AdmitUnder(p, r)
		if best < 0 {
			if a.Admitted {
				t.Fatalf("seed %d: admitted what no placement keeps: %+v", seed, p)
			}
			continue
		}
		solvable++
		switch {
		case a.NeverFits:
			t.Errorf("seed %d: said never to fit, and a placement has yield %v: %+v", seed, best, p)
		case !a.Admitted:
			missed++
		case a.Solution.MinYield < best-1e-6:
			below++
			loss = max(loss, best-a.Solution.MinYield)
		}
	}
	t.Logf("of %d that have a placement %d missed, %d below the best, by %.4f at most", solvable, missed, below, loss)
	if missed > 0 || solvable < 500 || loss > 0.1 {
		t.Errorf("of %d that have a placement %d missed, %d below the best, by %.4f at most", solvable, missed, below, loss)
	}
}

// smallRuled is a problem of a few VMs in which groups require, avoid and spread.
func smallRuled(rng *rand.Rand) (allocator.Problem, *allocator.Rules) {
	var p allocator.Problem
	r := &allocator.Rules{ByCluster: true}
	for j := range 2 + rng.IntN(2) {
		p.Hosts = append(p.Hosts, allocator.Host{Name: fmt.Sprintf("h%d", j), CPU: float64(1 + rng.IntN(4)), Memory: float64(1 + rng.IntN(5))})
	}
	terms := []string{"vc:c0", "vc:c1", "app=a", "app=b", "host:h0", "host:h1"}
	for g := range 1 + rng.IntN(3) {
		c := fmt.Sprintf("c%d", rng.IntN(2))
		p.Groups = append(p.Groups, allocator.Group{Cluster: c, Name: fmt.Sprintf("g%d", g), Count: 1 + rng.IntN(3),
			CPU: float64(1+rng.IntN(8)) / 4, Memory: float64(1+rng.IntN(4)) / 2})
		r.Labels = append(r.Labels, map[string]string{"app": string(rune('a' + rng.IntN(2)))})
		a := &allocator.Affinity{}
		if rng.IntN(2) == 0 {
			a.Require = append(a.Require, terms[rng.IntN(len(terms))])
		}
		if rng.IntN(4) == 0 {
			a.Avoid = append(a.Avoid, terms[rng.IntN(len(terms))])
		}
		if rng.IntN(4) == 0 {
			a.Spread = "host"
		}
		r.Affinity = append(r.Affinity, a)
	}
	return p, r
}

// bestRuled is the greatest minimum yield of all placements, -1 if there is none.
func bestRuled(p allocator.Problem, r *allocator.Rules) float64 {
	best := -1.0
	var vms []int
	hosts := make([][]int, len(p.Groups))
	for g := range p.Groups {
		hosts[g] = make([]int, p.Groups[g].Count)
		for range p.Groups[g].Count {
			vms = append(vms, g)
		}
	}
	at := make([]int, len(vms))
	cpu, memory := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
	var place func(i int)
	place = func(i int) {
		if i == len(vms) {
			y := 1.0
			for j := range cpu {
				if cpu[j] > 0 {
					y = min(y, p.Hosts[j].CPU/cpu[j])
				}
			}
			if y <= best {
				return
			}
			next := make([]int, len(hosts))
			for k, g := range vms {
				hosts[g][next[g]] = at[k]
				next[g]++
			}
			if ruleBroken(p, r, hosts, func(int, int) bool { return true }) == nil {
				best = y
			}
			return
		}
		g := &p.Groups[vms[i]]
		from := 0
		if i > 0 && vms[i-1] == vms[i] {
			from = at[i-1] // VMs of a group are alike
		}
		for j := from; j < len(p.Hosts); j++ {
			if memory[j]+g.Memory > p.Hosts[j].Memory {
				continue
			}
			at[i] = j
			cpu[j], memory[j] = cpu[j]+g.CPU, memory[j]+g.Memory
			place(i + 1)
			cpu[j], memory[j] = cpu[j]-g.CPU, memory[j]-g.Memory
		}
	}
	place(0)
	return best
}
