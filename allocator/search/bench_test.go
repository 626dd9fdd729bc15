package search

import (
	"math/rand/v2"
	"testing"
	"time"
)

// paperModel draws an instance as in sec. 4.1 of the paper.
func paperModel(r *rand.Rand, hosts, tasks int, slack, cvCPU, cvMemory float64) *Model {
	const unit = 1 << 40
	m := &Model{}
	for range hosts {
		m.CPU = append(m.CPU, unit)
		m.Memory = append(m.Memory, unit)
	}
	draw := func(mean, cv float64) int64 {
		for {
			if x := mean + mean*cv*r.NormFloat64(); x >= 0 && x <= 1 {
				return int64(x * unit)
			}
		}
	}
	for range tasks {
		m.Weight = append(m.Weight, draw(0.5, cvCPU))
		m.Size = append(m.Size, draw(float64(hosts)*(1-slack)/float64(tasks), cvMemory))
	}
	return m
}

// paperSet is per instances of each of the 36 specifications of a size.
func paperSet(hosts int, tasks []int, per int) []*Model {
	var set []*Model
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range tasks {
		for slack := 0.1; slack < 0.95; slack += 0.1 {
			for _, a := range []float64{0.25, 0.75} {
				for _, b := range []float64{0.25, 0.75} {
					for range per {
						set = append(set, paperModel(r, hosts, n, slack, a, b))
					}
				}
			}
		}
	}
	return set
}

// differ makes the hosts unequal, 0.5 to 2 of what they were.
func differ(set []*Model) []*Model {
	r := rand.New(rand.NewPCG(3, 4))
	for _, m := range set {
		for j := range m.CPU {
			f := []float64{0.5, 1, 1, 2}[r.IntN(4)]
			m.CPU[j], m.Memory[j] = int64(f*float64(m.CPU[j])), int64(f*float64(m.Memory[j]))
		}
	}
	return set
}

// BenchmarkMinimize solves sets of instances. Beside the time per instance it
// prints how many were proved, how many are proved to be within 0.05%, how far
// from the bound the others ended, in yield (the mean over all, and the worst),
// and the longest time.
func BenchmarkMinimize(b *testing.B) {
	for _, c := range []struct {
		name  string
		set   []*Model
		prove bool
		limit time.Duration
	}{
		{"exact/4x6-12", paperSet(4, []int{6, 8, 10, 12}, 10), true, time.Minute},
		{"exact/8x24", paperSet(8, []int{24}, 5), true, time.Minute},
		{"exact/12x24", paperSet(12, []int{24}, 5), true, time.Minute},
		{"exact/16x48", paperSet(16, []int{48}, 3), true, 10 * time.Second},
		{"exact/20x60", paperSet(20, []int{60}, 1), true, 10 * time.Second},
		{"best/64x500", paperSet(64, []int{500}, 1), false, 10 * time.Millisecond},
		{"best/64x250", paperSet(64, []int{250}, 1), false, 10 * time.Millisecond},
		{"best/64x160", paperSet(64, []int{160}, 1), false, 100 * time.Millisecond},
		{"best/64x128", paperSet(64, []int{128}, 1), false, 100 * time.Millisecond},
		{"best/64x100", paperSet(64, []int{100}, 1), false, 100 * time.Millisecond},
		{"best/64x500-unequal", differ(paperSet(64, []int{500}, 1)), false, 100 * time.Millisecond},
	} {
		b.Run(c.name, func(b *testing.B) {
			var proved, within, none int
			var gap, worst float64
			var longest time.Duration
			for b.Loop() {
				proved, within, none, gap, worst, longest = 0, 0, 0, 0, 0, 0
				for _, m := range c.set {
					start := time.Now()
					deadline := start.Add(c.limit)
					r := Minimize(m, Options{Prove: c.prove, Goal: 1, Stop: func() bool { return time.Now().After(deadline) }})
					longest = max(longest, time.Since(start))
					switch {
					case r.Infeasible || r.Optimal:
						proved++
						within++
					case r.Host == nil:
						none++
					default:
						g := 100 * (1 - max(1, r.Lower)/r.Level)
						if g < 0.05 {
							within++
						}
						gap += g
						worst = max(worst, g)
					}
				}
			}
			n := float64(len(c.set))
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "us/instance")
			b.ReportMetric(float64(proved)/n, "proved")
			b.ReportMetric(float64(within)/n, "within-0.05%")
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
			b.ReportMetric(float64(none), "none")
			b.ReportMetric(gap/n, "%gap")
			b.ReportMetric(worst, "%worst")
			b.ReportMetric(0, "ns/op")
		})
	}
}
