package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
)

// waiting is hosts of 32 cores and 128 GiB that are filled until ten virtual clusters
// in a row do not fit, and a queue.
func waiting(hosts, queue int) (allocator.Problem, []allocator.Request) {
	r := rand.New(rand.NewPCG(7, uint64(hosts)))
	draw := func(name string) []allocator.Group {
		var groups []allocator.Group
		for g := range 1 + r.IntN(2) {
			groups = append(groups, allocator.Group{Cluster: name, Name: fmt.Sprintf("g%d", g), Count: 1 + r.IntN(16),
				CPU: 0.5 + 7*r.Float64(), Memory: 1 + 30*r.Float64(), MinYield: 0.5})
		}
		return groups
	}
	var p allocator.Problem
	for j := range hosts {
		p.Hosts = append(p.Hosts, allocator.Host{Name: fmt.Sprintf("h%d", j), CPU: 32, Memory: 128})
	}
	for block := 0; ; block++ {
		var more []allocator.Request
		for i := range 10 {
			more = append(more, allocator.Request{Groups: draw(fmt.Sprintf("vc%d-%d", block, i))})
		}
		q := allocator.AdmitQueue(p, nil, more, false)
		for i := range more {
			for g := range q.Hosts[i] {
				more[i].Groups[g].Hosts = q.Hosts[i][g]
				p.Groups = append(p.Groups, more[i].Groups[g])
			}
		}
		if q.Admitted == 0 {
			break
		}
	}
	var requests []allocator.Request
	for i := range queue {
		requests = append(requests, allocator.Request{Groups: draw(fmt.Sprintf("q%d", i)), Priority: r.IntN(3)})
	}
	return p, requests
}

// BenchmarkQueue: a queue of 1,000 virtual clusters of 1 to 32 VMs against full hosts,
// decided at once (brief: summaries only; explained: with reasons and advice) and one by one.
func BenchmarkQueue(b *testing.B) {
	for _, hosts := range []int{64, 1000} {
		p, requests := waiting(hosts, 1000)
		for _, way := range []struct {
			name   string
			decide func() int
		}{
			{"brief", func() int { return allocator.AdmitQueue(p, nil, requests, false).Admitted }},
			{"explained", func() int { return allocator.AdmitQueue(p, nil, requests, true).Admitted }},
			{"one-by-one", func() (n int) {
				answers, _, _ := oneByOne(p, nil, requests)
				for _, a := range answers {
					if a.Admitted {
						n++
					}
				}
				return n
			}},
		} {
			b.Run(fmt.Sprintf("hosts=%d/%s", hosts, way.name), func(b *testing.B) {
				n := 0
				for b.Loop() {
					n = way.decide()
				}
				b.ReportMetric(float64(n), "admitted")
				b.ReportMetric(float64(len(p.Groups)), "groups")
			})
		}
	}
}
