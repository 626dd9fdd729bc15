package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/allocator"
)

// paperProblems is per instances of each of the 36 specifications of a size.
func paperProblems(hosts, tasks, per int) []allocator.Problem {
	r := rand.New(rand.NewPCG(1, 2))
	var set []allocator.Problem
	for slack := 1; slack <= 9; slack++ {
		for _, cvCPU := range []float64{0.25, 0.75} {
			for _, cvMemory := range []float64{0.25, 0.75} {
				for range per {
					set = append(set, paperInstance(r, hosts, tasks, float64(slack)/10, cvCPU, cvMemory))
				}
			}
		}
	}
	return set
}

// reportOutcomes prints how many of the outcomes are proved (optimal, or no
// placement), how many problems are open, and the gaps between bound and yield.
func reportOutcomes(b *testing.B, outcomes []allocator.Outcome) {
	proved, open, gap, worst := 0, 0, 0.0, 0.0
	for _, o := range outcomes {
		switch o.Verdict {
		case allocator.NotFound:
			open++
		case allocator.Feasible:
			g := 100 * (1 - o.Solution.MinYield/o.UpperBound)
			gap += g
			worst = max(worst, g)
		default:
			proved++
		}
	}
	n := float64(len(outcomes))
	b.ReportMetric(float64(proved)/n, "proved")
	b.ReportMetric(float64(open), "no-answer")
	b.ReportMetric(gap/n, "%gap")
	b.ReportMetric(worst, "%worst")
}

// BenchmarkExactSmall: the paper's 1,440 small instances, ns/op for all of them.
func BenchmarkExactSmall(b *testing.B) {
	var set []allocator.Problem
	for _, tasks := range []int{6, 8, 10, 12} {
		set = append(set, paperProblems(4, tasks, 10)...)
	}
	outcomes := make([]allocator.Outcome, len(set))
	b.ReportAllocs()
	for b.Loop() {
		for i, p := range set {
			outcomes[i] = allocator.Exact(p, allocator.Search{})
		}
	}
	reportOutcomes(b, outcomes)
}

// BenchmarkExact and BenchmarkBest: ns/op for one instance; the time is the limit
// where not all are proved.
func BenchmarkExact(b *testing.B) {
	for _, c := range []struct {
		hosts, tasks, per int
		limit             time.Duration
	}{{8, 24, 5, time.Minute}, {12, 24, 5, time.Minute}, {16, 48, 3, 10 * time.Second}} {
		b.Run(fmt.Sprintf("%dx%d", c.hosts, c.tasks), func(b *testing.B) {
			timed(b, paperProblems(c.hosts, c.tasks, c.per), c.limit, allocator.Exact)
		})
	}
}

func BenchmarkBest(b *testing.B) {
	for _, c := range []struct {
		hosts, tasks int
		limit        time.Duration
	}{
		{64, 500, 10 * time.Millisecond}, {64, 250, 10 * time.Millisecond},
		{64, 160, 100 * time.Millisecond}, {64, 128, 100 * time.Millisecond}, {64, 100, 100 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("%dx%d/%v", c.hosts, c.tasks, c.limit), func(b *testing.B) {
			timed(b, paperProblems(c.hosts, c.tasks, 1), c.limit, allocator.Best)
		})
	}
	b.Run("64x500-unequal/100ms", func(b *testing.B) {
		set := paperProblems(64, 500, 1)
		r := rand.New(rand.NewPCG(3, 4))
		for _, p := range set {
			for j := range p.Hosts {
				f := []float64{0.5, 1, 1, 2}[r.IntN(4)]
				p.Hosts[j].CPU, p.Hosts[j].Memory = f, f
			}
		}
		timed(b, set, 100*time.Millisecond, allocator.Best)
	})
	b.Run("64x500-grouped/100ms", func(b *testing.B) {
		timed(b, grouped(paperProblems(64, 500, 1), 500), 100*time.Millisecond, allocator.Best)
	})
	for _, c := range []struct {
		hosts, tasks int
		limit        time.Duration
	}{{1000, 10_000, 100 * time.Millisecond}, {10_000, 100_000, time.Second}} {
		b.Run(fmt.Sprintf("%dx%d/%v", c.hosts, c.tasks, c.limit), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			timed(b, []allocator.Problem{paperInstance(r, c.hosts, c.tasks, 0.4, 0.5, 0.5)}, c.limit, allocator.Best)
		})
	}
}

// grouped makes jobs of 1 to 64 equal tasks of the first tasks of each problem.
func grouped(set []allocator.Problem, tasks int) []allocator.Problem {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range set {
		var groups []allocator.Group
		for n := 0; n < tasks; {
			g := set[i].Groups[len(groups)]
			g.Count = min(1<<r.IntN(7), tasks-n)
			n += g.Count
			groups = append(groups, g)
		}
		set[i].Groups = groups
	}
	return set
}

func timed(b *testing.B, set []allocator.Problem, limit time.Duration, algorithm func(allocator.Problem, allocator.Search) allocator.Outcome) {
	outcomes := make([]allocator.Outcome, len(set))
	for i := 0; b.Loop(); i++ {
		// Every instance counts in the figures, and is timed as often as b.N allows.
		deadline := time.Now().Add(limit)
		outcomes[i%len(set)] = algorithm(set[i%len(set)], allocator.Search{Stop: func() bool { return time.Now().After(deadline) }})
	}
	b.StopTimer()
	for i := b.N; i < len(set); i++ {
		deadline := time.Now().Add(limit)
		outcomes[i] = algorithm(set[i], allocator.Search{Stop: func() bool { return time.Now().After(deadline) }})
	}
	reportOutcomes(b, outcomes)
}

// BenchmarkAdmitTight: one more virtual cluster of 24 VMs of all sizes into 12
// hosts with 1,000 VMs, that takes 97% to 101% of the memory which is left: the
// packing fails often, and admission searches. It prints the longest answer.
func BenchmarkAdmitTight(b *testing.B) {
	p := runningVMs(b, 0.25)
	free := make([]float64, len(p.Hosts))
	for j := range free {
		free[j] = p.Hosts[j].Memory
	}
	for _, g := range p.Groups {
		for _, j := range g.Hosts {
			free[j] -= g.Memory
		}
	}
	total := 0.0
	for _, f := range free {
		total += f
	}
	r := rand.New(rand.NewPCG(7, 8))
	var requests []allocator.Problem
	for k := range 64 {
		q := p
		sizes, sum := make([]float64, 24), 0.0
		for i := range sizes {
			sizes[i] = 0.2 + r.Float64()
			sum += sizes[i]
		}
		for i, s := range sizes {
			memory := s / sum * total * (0.97 + 0.04*float64(k)/64)
			q.Groups = append(q.Groups[:len(q.Groups):len(q.Groups)], allocator.Group{Cluster: "new", Name: fmt.Sprint(i), Count: 1, CPU: 0.1, Memory: memory, MinYield: 0.2})
		}
		requests = append(requests, q)
	}
	admitted, asked := 0, 0
	var longest time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if allocator.Admit(requests[i%len(requests)]).Admitted {
			admitted++
		}
		asked++
		longest = max(longest, time.Since(start))
	}
	b.ReportMetric(float64(admitted)/float64(asked), "admitted")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
}
