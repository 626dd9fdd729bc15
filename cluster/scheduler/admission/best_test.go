package admission_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Small virtual clusters get the best placement there is, not only the first that fits.
func TestPlacementIsTheBest(t *testing.T) {
	beaten := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := scheduling.NewCluster(t)
		p := allocator.Problem{}
		for i := range 3 {
			name := fmt.Sprintf("h%d", i+1)
			c.Host(name, 2, 64*scheduling.MiB*40, state.Resources{})
			p.Hosts = append(p.Hosts, allocator.Host{Name: name, CPU: 2, Memory: float64(64 * scheduling.MiB * 40)})
		}
		x := scheduling.VC("x", 0)
		for i := range 9 {
			cpu, memory := 0.2+rng.Float64(), 64*scheduling.MiB*int64(1+rng.IntN(16))
			g := scheduling.Group(1, cpu, memory)
			g.Name, g.VCPUs = fmt.Sprintf("g%d", i), 2
			x.Groups = append(x.Groups, g)
			p.Groups = append(p.Groups, allocator.Group{Cluster: "x", Name: g.Name, Count: 1, CPU: cpu, Memory: float64(memory + 64*scheduling.MiB)})
		}
		best := allocator.Exact(p, allocator.Search{})
		if best.Verdict != allocator.Optimal {
			continue
		}
		if plain, ok := allocator.MCB8(p); ok && plain.MinYield < best.Solution.MinYield-1e-6 {
			beaten++
		}
		if a := c.Create(x); a.Queued || a.Plan == nil || a.Decision.MinYield < best.Solution.MinYield-1e-6 {
			t.Errorf("seed %d: minimum yield %v (queued %v), the best is %v", seed, a.Decision.MinYield, a.Queued, best.Solution.MinYield)
		}
	}
	if beaten < 5 {
		t.Errorf("MCB8 alone is as good in all but %d cases: the test tests little", beaten)
	}
}
