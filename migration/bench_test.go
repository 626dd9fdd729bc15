package migration_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"evenkeel/allocator"
	"evenkeel/migration"
	"evenkeel/test/solvers"
)

// scattered is VMs on random hosts. They use 70% of the memory and need
// 1.3 times the CPU.
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
	for j := range hosts {
		p.Hosts = append(p.Hosts, migration.Host{Name: fmt.Sprint("h", j), CPU: cpu / 1.3 / float64(hosts), Memory: math.Ceil(memory / 0.7 / float64(hosts))})
	}
	for i := range need {
		p.Groups = append(p.Groups, migration.Group{Name: fmt.Sprint("g", i), Count: 1, CPU: need[i], Memory: size[i]})
	}
	scatter(p, rng)
	return p
}

// scatter puts each VM on a random host that has memory for it.
func scatter(p migration.Problem, rng *rand.Rand) {
	used := make([]float64, len(p.Hosts))
	for g := range p.Groups {
		x, j := &p.Groups[g], rng.IntN(len(p.Hosts))
		for used[j]+x.Memory > p.Hosts[j].Memory {
			j = rng.IntN(len(p.Hosts))
		}
		used[j] += x.Memory
		x.Hosts = []int{j}
	}
}

// grown is scattered, placed as MCB8 places it, whereupon every tenth VM came to need twice as much.
func grown(b *testing.B, seed uint64, hosts, vms int) migration.Problem {
	p := scattered(seed, hosts, vms)
	placed, ok := allocator.MCB8(asAllocation(p))
	if !ok {
		b.Fatal("MCB8 finds no placement")
	}
	for i := range p.Groups {
		p.Groups[i].Hosts = placed.Hosts[i]
		if i%10 == 0 {
			p.Groups[i].CPU *= 2
		}
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

// BenchmarkBound is the time of New and of one Plan, on one core, the least of
// some runs, and how far plans are from coverBound, in % of it. Every plan is
// carried out by the checker.
func BenchmarkBound(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	budgets := []float64{0.01, 0.05, 0.1, 0.2}
	fmt.Println("| hosts x VMs | 1% | 5% | 10% | 20% | mean of the last three | time | processor time |\n|---|---|---|---|---|---|---|---|")
	for _, size := range []struct{ hosts, vms, runs int }{{12, 200, 20}, {64, 500, 20}, {1000, 10_000, 6}, {113, 15_769, 3}} {
		gaps := make([]float64, len(budgets))
		shortest, processor := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
		for n := range size.runs {
			p := scattered(uint64(n), size.hosts, size.vms)
			total := memoryOf(p)
			runtime.GC()
			begin, used := time.Now(), processorTime()
			pl, err := migration.New(p)
			if err != nil {
				b.Fatal(err)
			}
			pl.Plan(total * 0.1)
			processor = min(processor, processorTime()-used)
			shortest = min(shortest, time.Since(begin))
			for i, share := range budgets {
				plan := pl.Plan(total * share)
				gaps[i] += 100 * (1 - plan.MinYieldAfter/coverBound(p, total*share)) / float64(size.runs)
				if size.vms > 1000 && n > 0 {
					continue // thousands of caps are thousands of events
				}
				if err := checkPlan(p, plan, total*share, rand.New(rand.NewPCG(uint64(n), 6)), n%2 == 0); err != nil {
					b.Fatalf("%d x %d, %v%%: %v", size.hosts, size.vms, 100*share, err)
				}
			}
		}
		fmt.Printf("| %d x %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f ms | %.1f ms |\n", size.hosts, size.vms, gaps[0], gaps[1], gaps[2], gaps[3], (gaps[1]+gaps[2]+gaps[3])/3, float64(shortest.Microseconds())/1000, float64(processor.Microseconds())/1000)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAnytime is what New finds in some parts of the time that it takes if it
// is not stopped: minimum yields for 5% of the memory.
func BenchmarkAnytime(b *testing.B) {
	fmt.Println("| hosts x VMs | steps | processor time | before | with 5% | with 20% |\n|---|---|---|---|---|---|")
	for _, size := range [][2]int{{64, 500}, {1000, 10_000}} {
		p := scattered(1, size[0], size[1])
		total := memoryOf(p)
		last := 0.0
		for _, steps := range []int64{1, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 0} {
			p.Steps = steps
			used := processorTime()
			pl, err := migration.New(p)
			if err != nil {
				b.Fatal(err)
			}
			used = processorTime() - used
			plan, more := pl.Plan(total*0.05), pl.Plan(total*0.2)
			if plan.MinYieldAfter < last {
				b.Errorf("%d steps: %v, with fewer there was %v", steps, plan.MinYieldAfter, last)
			}
			last = plan.MinYieldAfter
			fmt.Printf("| %d x %d | %d | %.1f ms | %.4f | %.4f | %.4f |\n", size[0], size[1], steps, float64(used.Microseconds())/1000, plan.MinYieldBefore, plan.MinYieldAfter, more.MinYieldAfter)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHbal lets Ganeti's hbal balance the same hosts, and asks for the fewest
// bytes that reach its minimum yield.
func BenchmarkHbal(b *testing.B) {
	if _, err := exec.LookPath(solvers.Hbal); err != nil {
		b.Skipf("%s is not installed: apt-get install %s", solvers.Hbal, solvers.HbalPackage)
	}
	b.Run("scattered", func(b *testing.B) { againstHbal(b, scattered(1, 64, 500)) })
	b.Run("grown", func(b *testing.B) { againstHbal(b, grown(b, 1, 64, 500)) })
}

func againstHbal(b *testing.B, p migration.Problem) {
	const mebi = 1 << 20
	for j := range p.Hosts {
		p.Hosts[j].Memory = math.Floor(p.Hosts[j].Memory/mebi) * mebi
	}
	total := memoryOf(p)
	inMiB := asAllocation(p)
	for j := range inMiB.Hosts {
		inMiB.Hosts[j].Memory /= mebi
	}
	for i := range inMiB.Groups {
		inMiB.Groups[i].Memory /= mebi
	}
	on, theirs, err := solvers.Balance(b.Context(), b.TempDir(), inMiB)
	if err != nil {
		b.Fatal(err)
	}
	load, bytes, yield := make([]float64, len(p.Hosts)), 0.0, 1.0
	for i, j := range on {
		load[j] += p.Groups[i].CPU
		if j != p.Groups[i].Hosts[0] {
			bytes += p.Groups[i].Memory
		}
	}
	for j, l := range load {
		if l > 0 {
			yield = min(yield, p.Hosts[j].CPU/l)
		}
	}
	fmt.Println("| 64 x 500 | minimum yield | bytes, of all memory | processor time |\n|---|---|---|---|")
	ours := time.Duration(math.MaxInt64)
	var plan, same migration.Plan
	for range 5 {
		begin := processorTime()
		pl, err := migration.New(p)
		if err != nil {
			b.Fatal(err)
		}
		plan = pl.Cheapest(yield)
		ours = min(ours, processorTime()-begin)
		same = pl.Plan(bytes)
	}
	for _, x := range []migration.Plan{plan, same} {
		if err := checkPlan(p, x, x.Bytes, rand.New(rand.NewPCG(1, 6)), true); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Printf("| before | %.4f | | |\n| hbal | %.4f | %.2f%% | %.1f s |\n", plan.MinYieldBefore, yield, 100*bytes/total, theirs.Seconds())
	fmt.Printf("| fewest bytes for as much | %.4f | %.2f%%, %.2f of hbal's | %.1f ms, 1/%.0f of hbal's |\n", plan.MinYieldAfter, 100*plan.Bytes/total, plan.Bytes/bytes, ours.Seconds()*1000, theirs.Seconds()/ours.Seconds())
	low, high := 0.0, total // bytes below which nothing reaches as much, and above
	for range 30 {
		if mid := (low + high) / 2; coverBound(p, mid) < yield {
			low = mid
		} else {
			high = mid
		}
	}
	fmt.Printf("| nothing does for less than | %.4f | %.2f%%, %.2f of hbal's | |\n", yield, 100*low/total, low/bytes)
	fmt.Printf("| the best for hbal's bytes | %.4f | %.2f%% | |\n", same.MinYieldAfter, 100*same.Bytes/total)
	b.ReportMetric(0, "ns/op")
}
