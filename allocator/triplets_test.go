package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/allocator"
)

// triplets is VMs of which three fill each host in both resources, all with a floor of 1.
func triplets(r *rand.Rand, hosts int) allocator.Problem {
	p := allocator.Problem{}
	for range hosts {
		p.Hosts = append(p.Hosts, allocator.Host{CPU: 100, Memory: 100})
		cpu, memory := three(r), three(r)
		for i := range cpu {
			p.Groups = append(p.Groups, allocator.Group{Count: 1, CPU: cpu[i], Memory: memory[i], MinYield: 1})
		}
	}
	r.Shuffle(len(p.Groups), func(a, b int) { p.Groups[a], p.Groups[b] = p.Groups[b], p.Groups[a] })
	return p
}

// Where all hosts must be filled to the last, the placement is found with the work of some milliseconds.
func TestBestFillsHostsToTheLast(t *testing.T) {
	for _, hosts := range []int{20, 40, 83, 167} {
		p := triplets(rand.New(rand.NewPCG(22, uint64(hosts))), hosts)
		for name, solve := range map[string]func(allocator.Problem, allocator.Search) allocator.Outcome{"best": allocator.Best, "exact": allocator.Exact} {
			s := allocator.Search{Steps: 100_000_000}
			o := solve(p, s)
			if o.Verdict != allocator.Optimal || o.Solution.MinYield < 1-1e-9 {
				t.Errorf("%d hosts, %s: verdict %v, minimum yield %v", hosts, name, o.Verdict, o.Solution.MinYield)
			} else if err := checkOutcome(p, s, o); err != nil {
				t.Errorf("%d hosts, %s: %v", hosts, name, err)
			}
		}
	}
}

// BenchmarkTriplets: how many of 20 instances of a size are solved, proved, with a limit of 1 s (10 s from 120 VMs on) on as many
// hosts as the VMs fill, and the longest time.
func BenchmarkTriplets(b *testing.B) {
	for _, hosts := range []int{20, 40, 83, 167} {
		for _, exact := range []bool{false, true} {
			name, solve, limit := "best", allocator.Best, time.Second
			if exact {
				name, solve = "exact", allocator.Exact
			}
			if hosts > 20 {
				limit = 10 * time.Second
			}
			b.Run(fmt.Sprintf("%d/%s", 3*hosts, name), func(b *testing.B) {
				solved, longest := 0, time.Duration(0)
				for b.Loop() {
					r := rand.New(rand.NewPCG(22, 3))
					solved, longest = 0, 0
					for range 20 {
						p := triplets(r, hosts)
						start := time.Now()
						o := solve(p, allocator.Search{Stop: func() bool { return time.Since(start) > limit }})
						longest = max(longest, time.Since(start))
						if o.Verdict == allocator.Optimal && o.Solution.MinYield >= 1-1e-9 {
							solved++
						}
					}
				}
				b.ReportMetric(float64(solved), "solved-of-20")
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
