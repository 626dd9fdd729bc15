package allocator_test

import (
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
)

// tightInstance is 64 hosts of which CPU and memory vary much, apart from each other, and VMs that need all the CPU and 9/10
// of the memory.
func tightInstance(r *rand.Rand, vms int) allocator.Problem {
	var p allocator.Problem
	var cpu, memory, need, size float64
	for range 64 {
		h := allocator.Host{CPU: max(0.001, min(1, 0.5+0.5*r.NormFloat64())), Memory: max(0.001, min(1, 0.5+0.5*r.NormFloat64()))}
		cpu, memory = cpu+h.CPU, memory+h.Memory
		p.Hosts = append(p.Hosts, h)
	}
	for range vms {
		c := r.Float64()
		g := allocator.Group{Count: 1, CPU: c*c + 0.001, Memory: r.Float64() + 0.001}
		need, size = need+g.CPU, size+g.Memory
		p.Groups = append(p.Groups, g)
	}
	for g := range p.Groups {
		p.Groups[g].CPU *= cpu / need
		p.Groups[g].Memory *= 0.9 * memory / size
	}
	return p
}

// What is placed is within all limits at the yield that was asked for, on no cordoned host.
func TestAlignedKeepsLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	placed := 0
	for k := range 24 {
		p := tightInstance(r, 500)
		if k%3 == 0 { // more hosts than are compared for a VM
			p = plantedInstance(r, 400, 2500, 0.5)
		}
		p.Hosts[r.IntN(len(p.Hosts))].Cordoned = true
		const lowest = 0.2
		on := allocator.Aligned(p, lowest, 1)
		if on == nil {
			continue
		}
		placed++
		cpu, memory := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
		for g, j := range on {
			if p.Hosts[j].Cordoned {
				t.Fatalf("instance %d: VM %d is on a cordoned host", k, g)
			}
			cpu[j] += p.Groups[g].CPU
			memory[j] += p.Groups[g].Memory
		}
		for j, h := range p.Hosts {
			if lowest*cpu[j] > h.CPU*(1+1e-9) || memory[j] > h.Memory*(1+1e-9) {
				t.Errorf("instance %d, host %d: %v of CPU %v at a yield of %v, %v of memory %v", k, j, lowest*cpu[j], h.CPU, lowest, memory[j], h.Memory)
			}
		}
	}
	if placed < 10 {
		t.Errorf("%d of 24 instances placed", placed)
	}
}

// With little work, on hosts that differ, most of the bound is reached.
func TestBestStartsWithTheNearestMix(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	sum, n := 0.0, 8
	for range n {
		p := tightInstance(r, 500)
		s := allocator.Search{Steps: 10_000}
		o := allocator.Best(p, s)
		if err := checkOutcome(p, s, o); err != nil {
			t.Fatal(err)
		}
		if o.Verdict >= allocator.Feasible {
			sum += o.Solution.MinYield / o.UpperBound
		}
	}
	if mean := sum / float64(n); mean < 0.6 {
		t.Errorf("%.3f of the bound on average, want at least 0.6", mean)
	} else {
		t.Logf("%.3f of the bound on average", mean)
	}
}
