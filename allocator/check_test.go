package allocator_test

import (
	"fmt"
	"math"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

// This file knows nothing of how the package solves a problem: it checks
// answers from the definitions alone.

// checkSolution reports the first rule that a solution breaks. Sums of CPU may
// not exceed a capacity at all, in either way of adding them up; sums of memory
// by 1e-9 of it.
func checkSolution(p allocator.Problem, s allocator.Solution) error {
	if len(s.Hosts) != len(p.Groups) || len(s.CPU) != len(p.Groups) {
		return fmt.Errorf("%d groups, but hosts for %d and CPU for %d", len(p.Groups), len(s.Hosts), len(s.CPU))
	}
	n := len(p.Hosts)
	byVM, byGroup, memory := make([]float64, n), make([]float64, n), make([]float64, n)
	for g, group := range p.Groups {
		if len(s.Hosts[g]) != group.Count {
			return fmt.Errorf("group %d: %d of %d VMs placed", g, len(s.Hosts[g]), group.Count)
		}
		if c := s.CPU[g]; math.IsNaN(c) || c < 0 || c > group.CPU {
			return fmt.Errorf("group %d: CPU %v for a need of %v", g, c, group.CPU)
		}
		count := make([]int, n)
		for vm, j := range s.Hosts[g] {
			if j < 0 || j >= n {
				return fmt.Errorf("group %d VM %d: no host %d", g, vm, j)
			}
			count[j]++
			byVM[j] += s.CPU[g]
			memory[j] += group.Memory
		}
		for j, k := range count {
			byGroup[j] += float64(float64(k) * s.CPU[g])
		}
	}
	for j, h := range p.Hosts {
		if byVM[j] > h.CPU || byGroup[j] > h.CPU {
			return fmt.Errorf("host %d: CPU %v or %v given of %v", j, byVM[j], byGroup[j], h.CPU)
		}
		if memory[j] > h.Memory*(1+1e-9) {
			return fmt.Errorf("host %d: memory %v used of %v", j, memory[j], h.Memory)
		}
	}
	lowest, average, clusters := yields(p, s.CPU)
	if math.Abs(lowest-s.MinYield) > 1e-12 || math.Abs(average-s.AverageYield) > 1e-9 {
		return fmt.Errorf("yields said to be %v and %v are %v and %v (of %d clusters)", s.MinYield, s.AverageYield, lowest, average, clusters)
	}
	if !(s.UpperBound >= s.MinYield && s.UpperBound <= 1) {
		return fmt.Errorf("bound %v for yield %v", s.UpperBound, s.MinYield)
	}
	return nil
}

// yields is the least and the mean yield of the virtual clusters.
func yields(p allocator.Problem, cpu []float64) (lowest, average float64, clusters int) {
	of := map[string]float64{}
	for g, group := range p.Groups {
		name := "c:" + group.Cluster
		if group.Cluster == "" {
			name = fmt.Sprintf("g:%d", g)
		}
		y := 1.0
		if group.CPU > 0 && group.Count > 0 {
			y = cpu[g] / group.CPU
		}
		if known, ok := of[name]; !ok || y < known {
			of[name] = y
		}
	}
	lowest, average = 1, 0
	for _, y := range of {
		lowest = min(lowest, y)
		average += y
	}
	if len(of) == 0 {
		return 1, 1, 0
	}
	return lowest, average / float64(len(of)), len(of)
}

// optimum tries every placement: the greatest minimum yield, -1 if the memory
// allows none. minimum is the floor of each group.
func optimum(p allocator.Problem) float64 {
	type vm struct{ cpu, memory float64 }
	var vms []vm
	for _, g := range p.Groups {
		for range g.Count {
			vms = append(vms, vm{g.CPU, g.Memory})
		}
	}
	best := -1.0
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
			best = max(best, y)
			return
		}
		for j := range p.Hosts {
			if memory[j]+vms[i].memory > p.Hosts[j].Memory*(1+1e-12) {
				continue
			}
			cpu[j] += vms[i].cpu
			memory[j] += vms[i].memory
			place(i + 1)
			cpu[j] -= vms[i].cpu
			memory[j] -= vms[i].memory
			if cpu[j] < 1e-12 {
				cpu[j] = 0
			}
		}
	}
	place(0)
	return best
}

// drawHosts draws 1 to most hosts, equal ones or not.
func drawPolicy(t *rapid.T) allocator.Policy {
	return rapid.SampledFrom([]allocator.Policy{allocator.AsFound, allocator.Spread, allocator.Pack}).Draw(t, "policy")
}

func drawHosts(t *rapid.T, limit int) []allocator.Host {
	n := rapid.IntRange(1, limit).Draw(t, "hosts")
	hosts := make([]allocator.Host, n)
	equal := rapid.Bool().Draw(t, "equal hosts")
	for j := range hosts {
		if j > 0 && equal {
			hosts[j] = hosts[0]
		} else {
			hosts[j].CPU = hundredths(t, "host CPU", 10, 400)
			hosts[j].Memory = hundredths(t, "host memory", 10, 400)
		}
	}
	for j := range hosts {
		hosts[j].Name = fmt.Sprintf("h%d", j)
	}
	return hosts
}

// drawGroups draws 1 to most groups with up to vms VMs in sum.
func drawGroups(t *rapid.T, limit, vms int) []allocator.Group {
	var groups []allocator.Group
	for range rapid.IntRange(1, limit).Draw(t, "groups") {
		if vms == 0 {
			break
		}
		g := allocator.Group{
			Name:   fmt.Sprintf("g%d", len(groups)),
			Count:  rapid.IntRange(1, min(vms, 5)).Draw(t, "count"),
			CPU:    hundredths(t, "CPU", 0, 150),
			Memory: hundredths(t, "memory", 0, 100),
		}
		if rapid.IntRange(0, 2).Draw(t, "grouped") == 0 {
			g.Cluster = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cluster")
		}
		vms -= g.Count
		groups = append(groups, g)
	}
	return groups
}

func hundredths(t *rapid.T, label string, lowest, limit int) float64 {
	return float64(rapid.IntRange(lowest, limit).Draw(t, label)) / 100
}
