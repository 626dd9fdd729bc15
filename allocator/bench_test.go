package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
)

// paperInstance draws an instance as in sec. 4.1: hosts of capacity 1, need of
// CPU and memory normal with the given coefficients of variation, truncated to
// 0..1, mean CPU 0.5, mean memory hosts*(1-slack)/tasks.
func paperInstance(r *rand.Rand, hosts, tasks int, slack, cvCPU, cvMemory float64) allocator.Problem {
	var p allocator.Problem
	for range hosts {
		p.Hosts = append(p.Hosts, allocator.Host{CPU: 1, Memory: 1})
	}
	draw := func(mean, cv float64) float64 {
		for {
			if x := mean + mean*cv*r.NormFloat64(); x >= 0 && x <= 1 {
				return x
			}
		}
	}
	for range tasks {
		cpu := draw(0.5, cvCPU)
		memory := draw(float64(hosts)*(1-slack)/float64(tasks), cvMemory)
		p.Groups = append(p.Groups, allocator.Group{Count: 1, CPU: cpu, Memory: memory})
	}
	return p
}

func BenchmarkMCB8(b *testing.B) {
	for _, size := range []struct{ hosts, tasks int }{{4, 6}, {4, 12}, {64, 100}, {64, 250}, {64, 500}} {
		b.Run(fmt.Sprintf("hosts=%d/tasks=%d", size.hosts, size.tasks), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var problems []allocator.Problem
			for slack := 0.1; slack < 0.95; slack += 0.1 {
				for _, cvCPU := range []float64{0.25, 0.75} {
					for _, cvMemory := range []float64{0.25, 0.75} {
						problems = append(problems, paperInstance(r, size.hosts, size.tasks, slack, cvCPU, cvMemory))
					}
				}
			}
			solved, yield, bound := 0, 0.0, 0.0
			for _, p := range problems {
				if s, ok := allocator.MCB8(p); ok {
					solved++
					yield += s.MinYield
					bound += s.UpperBound
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				allocator.MCB8(problems[i%len(problems)])
			}
			b.ReportMetric(yield/bound, "yield/bound")
			b.ReportMetric(float64(solved)/float64(len(problems)), "solved")
		})
	}
}

// BenchmarkMCB8Wide: one group of a million equal VMs.
func BenchmarkMCB8Wide(b *testing.B) {
	p := allocator.Problem{Groups: []allocator.Group{{Count: 1_000_000, CPU: 0.01, Memory: 0.01}}}
	for range 100 {
		p.Hosts = append(p.Hosts, allocator.Host{CPU: 70, Memory: 120})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := allocator.MCB8(p); !ok {
			b.Fatal("not placed")
		}
	}
}

// BenchmarkAdmit: one more virtual cluster of 16 VMs into 12 hosts that run
// 1,000 VMs in virtual clusters of 1 to 64.
func BenchmarkAdmit(b *testing.B) {
	for _, load := range []struct {
		name string
		cpu  float64 // mean need of a VM
		fits bool
	}{{"room", 0.25, true}, {"crowded", 0.7, true}, {"refused", 0.7, false}} {
		b.Run(load.name, func(b *testing.B) {
			p := runningVMs(b, load.cpu)
			request := allocator.Group{Name: "new", Count: 16, CPU: 1, Memory: 1, MinYield: 0.2}
			if !load.fits {
				request.MinYield, request.CPU, request.Count = 1, 8, 64
			}
			p.Groups = append(p.Groups, request)
			b.ReportAllocs()
			for b.Loop() {
				if a := allocator.Admit(p); a.Admitted != load.fits {
					b.Fatalf("admitted: %v: %s", a.Admitted, a.Summary)
				}
			}
		})
	}
}

// What the policies cost beside AsFound, where hosts have room and where they are crowded.
func BenchmarkPolicy(b *testing.B) {
	for _, load := range []float64{0.25, 0.7} {
		for policy, name := range []string{"found", "spread", "pack"} {
			for _, count := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("%s/%v/%d", name, load, count), func(b *testing.B) {
					p := runningVMs(b, load)
					p.Policy = allocator.Policy(policy)
					p.Groups = append(p.Groups, allocator.Group{Name: "new", Count: count, CPU: 16 / float64(count), Memory: 16 / float64(count), MinYield: 0.2})
					for b.Loop() {
						if a := allocator.Admit(p); !a.Admitted {
							b.Fatal(a.Summary)
						}
					}
				})
			}
		}
	}
}

// runningVMs is 12 hosts of 32 cores and 128 GiB with 1,000 VMs on them.
func runningVMs(tb testing.TB, cpu float64) allocator.Problem {
	r := rand.New(rand.NewPCG(3, 4))
	var p allocator.Problem
	for j := range 12 {
		p.Hosts = append(p.Hosts, allocator.Host{Name: fmt.Sprintf("h%d", j), CPU: 32, Memory: 128})
	}
	for vms := 0; vms < 1000; {
		n := min(1+r.IntN(64), 1000-vms)
		q := p
		q.Groups = append(q.Groups, allocator.Group{
			Name: fmt.Sprintf("vc%d", len(p.Groups)), Count: n,
			CPU: cpu * (0.2 + 1.6*r.Float64()), Memory: 0.5 + r.Float64(), MinYield: 0.1,
		})
		a := allocator.Admit(q)
		if !a.Admitted {
			tb.Fatalf("after %d VMs: %s", vms, a.Summary)
		}
		for g := range q.Groups {
			q.Groups[g].Hosts = a.Solution.Hosts[g]
		}
		p, vms = q, vms+n
	}
	return p
}
