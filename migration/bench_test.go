package migration_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/migration"
)

// scattered is VMs that lie on hosts anyhow, 70% of the memory being used and
// 1.3 times the CPU being needed.
func scattered(seed uint64, hosts, vms int) migration.Problem {
	rng := rand.New(rand.NewPCG(seed, 4))
	draw := func() float64 { // about 1
		for {
			if x := 1 + 0.5*rng.NormFloat64(); x > 0.05 && x < 2 {
				return x
			}
		}
	}
	p := migration.Problem{Limits: migration.Limits{PerHost: 2, Total: 16, Bandwidth: 1 << 30}}
	need, size, cpu, memory := make([]float64, vms), make([]float64, vms), 0.0, 0.0
	for i := range need {
		need[i], size[i] = draw(), math.Round(draw()*4096)*(1<<20)
		cpu += need[i]
		memory += size[i]
	}
	used := make([]float64, hosts)
	for j := range hosts {
		p.Hosts = append(p.Hosts, migration.Host{Name: fmt.Sprint("h", j), CPU: cpu / 1.3 / float64(hosts), Memory: math.Ceil(memory / 0.7 / float64(hosts))})
	}
	for i := range need {
		j := rng.IntN(hosts)
		for used[j]+size[i] > p.Hosts[j].Memory {
			j = rng.IntN(hosts)
		}
		used[j] += size[i]
		p.Groups = append(p.Groups, migration.Group{Name: fmt.Sprint("g", i), Count: 1, CPU: need[i], Memory: size[i], Hosts: []int{j}})
	}
	return p
}

// coverBound is a minimum yield that nothing within the budget exceeds: 1 over
// the least level T for which the cheapest sets of VMs that bring every host
// down to T, each host by itself, cost no more.
func coverBound(p migration.Problem, budget float64) float64 {
	type set struct{ need, bytes float64 }
	fronts := make([][]set, len(p.Hosts)) // [host]: sets none of which needs less and costs more than another
	load := make([]float64, len(p.Hosts))
	cpu, total := 0.0, 0.0
	for _, q := range p.Groups {
		j := q.Hosts[0]
		load[j] += q.CPU
		total += q.CPU
		if fronts[j] == nil {
			fronts[j] = []set{{0, 0}}
		}
		all := slices.Clone(fronts[j])
		for _, s := range fronts[j] {
			all = append(all, set{s.need + q.CPU, s.bytes + q.Memory})
		}
		slices.SortFunc(all, func(a, b set) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(b.need, a.need)) })
		fronts[j] = fronts[j][:0]
		for _, s := range all {
			if n := len(fronts[j]); n == 0 || s.need > fronts[j][n-1].need {
				fronts[j] = append(fronts[j], s)
			}
		}
	}
	high := 0.0
	for j, h := range p.Hosts {
		cpu += h.CPU
		high = max(high, load[j]/h.CPU)
	}
	low := max(1, total/cpu)
	cost := func(t float64) (bytes float64) {
		for j, h := range p.Hosts {
			excess := load[j] - t*h.CPU
			if excess <= 0 {
				continue
			}
			i, _ := slices.BinarySearchFunc(fronts[j], excess, func(s set, x float64) int { return cmp.Compare(s.need, x) })
			if i < len(fronts[j]) {
				bytes += fronts[j][i].bytes
			}
		}
		return bytes
	}
	if cost(low) <= budget {
		return min(1, 1/low)
	}
	for range 40 {
		if t := (low + high) / 2; cost(t) <= budget {
			high = t
		} else {
			low = t
		}
	}
	return min(1, 1/low)
}

// BenchmarkPlan is the time of New and of one Plan, and reports how far plans are
// from coverBound, in % of it, where that is not too much work.
func BenchmarkPlan(b *testing.B) {
	for _, size := range [][2]int{{12, 200}, {64, 500}, {1000, 10_000}, {113, 15_769}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			gaps := map[float64]float64{}
			shares := []float64{0.01, 0.05, 0.1, 0.2}
			n, begin := 0, 0.0
			for b.Loop() {
				b.StopTimer()
				p := scattered(uint64(n), size[0], size[1])
				total := 0.0
				for _, q := range p.Groups {
					total += q.Memory
				}
				b.StartTimer()
				pl, err := migration.New(p)
				if err != nil {
					b.Fatal(err)
				}
				plan := pl.Plan(total * 0.1)
				b.StopTimer()
				begin += plan.MinYieldBefore
				for _, share := range shares {
					if size[1] > 20*size[0] {
						break
					}
					plan := pl.Plan(total * share)
					gaps[share] += 1 - plan.MinYieldAfter/coverBound(p, total*share)
				}
				n++
				b.StartTimer()
			}
			for _, share := range shares {
				b.ReportMetric(100*gaps[share]/float64(n), fmt.Sprintf("gap%%@%g%%", 100*share))
			}
			b.ReportMetric(begin/float64(n), "yield-before")
		})
	}
}
