package allocator

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// What relax returns must satisfy the relaxed program, at the optimum where the
// hosts are equal, and split few VMs.
func TestRelaxedSolution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.IntRange(1, 6).Draw(t, "hosts")
		var p Problem
		equal := rapid.Bool().Draw(t, "equal")
		for range hosts {
			h := Host{CPU: 1, Memory: 1}
			if !equal {
				h = Host{CPU: rapid.Float64Range(0.5, 4).Draw(t, "host CPU"), Memory: rapid.Float64Range(0.5, 4).Draw(t, "host memory")}
			}
			p.Hosts = append(p.Hosts, h)
		}
		memory, room := 0.0, 0.0
		for j := range p.Hosts {
			room += p.Hosts[j].Memory
		}
		for range rapid.IntRange(1, 12).Draw(t, "groups") {
			g := Group{Count: 1, CPU: rapid.Float64Range(0, 1).Draw(t, "CPU"), Memory: rapid.Float64Range(0, 1).Draw(t, "memory")}
			if memory+g.Memory > room*(1-1e-6) {
				break
			}
			memory += g.Memory
			p.Groups = append(p.Groups, g)
		}
		y, parts, ok := relax(&p, vmsOf(&p))
		if !ok {
			if equal {
				t.Fatalf("no relaxed solution of %+v", p)
			}
			return
		}
		if equal && math.Abs(y-Bound(p)) > 1e-9 {
			t.Fatalf("yield %v, the optimum is %v", y, Bound(p))
		}
		split := 0
		used, top := make([]float64, hosts), make([]float64, hosts)
		for i, cells := range parts {
			sum, cpu := 0.0, 0.0
			for _, c := range cells {
				sum += c.weight
				cpu += c.weight * p.Hosts[c.host].CPU
				used[c.host] += c.weight * p.Groups[i].Memory
				top[c.host] += min(c.weight*p.Hosts[c.host].CPU, y*p.Groups[i].CPU)
			}
			if math.Abs(sum-1) > 1e-6 || cpu < y*p.Groups[i].CPU-1e-6 {
				t.Fatalf("VM %d: parts %v sum to %v", i, cells, sum)
			}
			if len(cells) > 1 {
				split++
			}
		}
		for j := range used {
			if used[j] > p.Hosts[j].Memory*(1+1e-6) {
				t.Fatalf("host %d: memory %v of %v", j, used[j], p.Hosts[j].Memory)
			}
		}
		// A VM may be split once by CPU and once by memory at each border of hosts,
		// or have its CPU on one host and its rest on another.
		if cells := countCells(parts); cells > 2*(len(p.Groups)+hosts) {
			t.Fatalf("%d parts of %d VMs (%d split) on %d hosts", cells, len(p.Groups), split, hosts)
		}
	})
}

func countCells(parts [][]cell) (n int) {
	for _, cells := range parts {
		n += len(cells)
	}
	return n
}

func TestDrawHostFollowsTheWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	weight := []float64{0, 1, 0, 3, 0}
	n := make([]int, len(weight))
	for range 4000 {
		n[drawHost(rng, weight)]++
	}
	if n[0]+n[2]+n[4] != 0 || n[1] < 850 || n[1] > 1150 {
		t.Errorf("%v draws with weights %v", n, weight)
	}
	if j := drawHost(rng, make([]float64, 3)); j != -1 {
		t.Errorf("host %d drawn of none", j)
	}
}

// RRNZ finds a host where RRND has none to choose from.
func TestNoZeroProbability(t *testing.T) {
	p := Problem{Hosts: []Host{{CPU: 1, Memory: 1}, {CPU: 1, Memory: 1}}}
	for _, m := range []float64{0.3, 0.3, 0.3, 0.3, 0.3} {
		p.Groups = append(p.Groups, Group{Count: 1, CPU: 0.1, Memory: m})
	}
	failed, rescued := 0, 0
	for seed := range uint64(200) {
		if _, ok := RRND(p, seed); !ok {
			failed++
		}
		if _, ok := RRNZ(p, seed); ok {
			rescued++
		}
	}
	if rescued != 200 {
		t.Errorf("RRNZ failed %d times of 200 (RRND: %d)", 200-rescued, failed)
	}
}
