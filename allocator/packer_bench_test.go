package allocator

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// slackInstance draws an instance of sec. 4.1, see paperInstance.
func slackInstance(r *rand.Rand, hosts, tasks int, slack, cvCPU, cvMemory float64) Problem {
	var p Problem
	for range hosts {
		p.Hosts = append(p.Hosts, Host{CPU: 1, Memory: 1})
	}
	draw := func(mean, cv float64) float64 {
		for {
			if x := mean + mean*cv*r.NormFloat64(); x >= 0 && x <= 1 {
				return x
			}
		}
	}
	for range tasks {
		p.Groups = append(p.Groups, Group{Count: 1, CPU: draw(0.5, cvCPU), Memory: draw(float64(hosts)*(1-slack)/float64(tasks), cvMemory)})
	}
	return p
}

// searchInstances is one instance of each of a few specifications.
func searchInstances(hosts, tasks int) (problems []Problem) {
	r := rand.New(rand.NewPCG(5, 6))
	slacks := []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	if tasks > 20_000 {
		slacks = []float64{0.3}
	}
	for _, slack := range slacks {
		for _, cv := range []float64{0.25, 0.75} {
			problems = append(problems, slackInstance(r, hosts, tasks, slack, cv, 1-cv))
		}
	}
	return problems
}

// BenchmarkSearch is the search for a placement alone, by the index (in memory of its own, and of an earlier search) and, where it
// takes no hours, by the plain list scan with the paper's bisection.
func BenchmarkSearch(b *testing.B) {
	for _, size := range []struct{ hosts, tasks int }{{64, 500}, {1000, 10_000}, {10_000, 100_000}, {100_000, 1_000_000}} {
		var problems []Problem
		prepare := func() {
			if problems == nil {
				problems = searchInstances(size.hosts, size.tasks)
			}
		}
		name := fmt.Sprintf("hosts=%d/tasks=%d", size.hosts, size.tasks)
		for _, method := range []struct {
			name string
			o    MCBOptions
		}{{"index", MCBOptions{}}, {"index-again", MCBOptions{work: new(packer)}}, {"index-bisect", MCBOptions{Bisect: true}}} {
			b.Run(name+"/"+method.name, func(b *testing.B) {
				prepare()
				gap, solved := 0.0, 0
				for i := range problems {
					if loads, ok := mcb(&problems[i], method.o); ok {
						gap += 1 - maxMin(&problems[i], loads, make([]float64, size.tasks))/Bound(problems[i])
						solved++
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					mcb(&problems[i%len(problems)], method.o)
				}
				b.ReportMetric(100*gap/float64(solved), "%gap")
			})
		}
		if size.tasks > 10_000 {
			continue
		}
		b.Run(name+"/scan", func(b *testing.B) {
			prepare()
			for i := 0; b.Loop(); i++ {
				p := &problems[i%len(problems)]
				cpu, memory := make([]float64, size.tasks), make([]float64, size.tasks)
				searchYield(Bound(*p), func(y float64) float64 {
					for i := range p.Groups {
						cpu[i], memory[i] = y*p.Groups[i].CPU, p.Groups[i].Memory
					}
					if scan(8, size.hosts, cpu, memory) == nil {
						return -1
					}
					return y
				})
			}
		})
	}
}

// BenchmarkWholeMCB8 is MCB8 with all that belongs to its answer: the search, the
// division of the CPU and the upper bound.
func BenchmarkWholeMCB8(b *testing.B) {
	for _, size := range []struct{ hosts, tasks int }{{64, 500}, {1000, 10_000}, {10_000, 100_000}, {100_000, 1_000_000}} {
		b.Run(fmt.Sprintf("hosts=%d/tasks=%d", size.hosts, size.tasks), func(b *testing.B) {
			problems := searchInstances(size.hosts, size.tasks)
			for i := 0; b.Loop(); i++ {
				MCB8(problems[i%len(problems)])
			}
		})
	}
}

// BenchmarkUpperBound: no two hosts are alike.
func BenchmarkUpperBound(b *testing.B) {
	for _, size := range []struct{ hosts, tasks int }{{1000, 10_000}, {10_000, 100_000}} {
		b.Run(fmt.Sprintf("hosts=%d/tasks=%d", size.hosts, size.tasks), func(b *testing.B) {
			r := rand.New(rand.NewPCG(9, 10))
			p := slackInstance(r, size.hosts, size.tasks, 0.4, 0.5, 0.5)
			for j := range p.Hosts {
				p.Hosts[j].CPU = 0.5 + 1.5*r.Float64()
			}
			for b.Loop() {
				UpperBound(p)
			}
		})
	}
}
