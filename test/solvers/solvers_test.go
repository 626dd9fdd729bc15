package solvers

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/allocator"
)

// instance is one of sec. 4.1 of the paper; what is not in 0..1 is drawn again.
func instance(r *rand.Rand, hosts, tasks int, slack, cpuCV, memCV float64) (p allocator.Problem) {
	for range hosts {
		p.Hosts = append(p.Hosts, allocator.Host{CPU: 1, Memory: 1})
	}
	draw := func(mean, cv float64) float64 {
		for {
			if x := mean * (1 + cv*r.NormFloat64()); x >= 0 && x <= 1 {
				return x
			}
		}
	}
	for range tasks {
		p.Groups = append(p.Groups, allocator.Group{Count: 1, CPU: draw(0.5, cpuCV), Memory: draw(float64(hosts)*(1-slack)/float64(tasks), memCV)})
	}
	return p
}

func TestWriteLP(t *testing.T) {
	var b bytes.Buffer
	p := allocator.Problem{
		Hosts:  []allocator.Host{{CPU: 1, Memory: 2}},
		Groups: []allocator.Group{{Count: 1, CPU: 0.5, Memory: 0.25}, {Count: 1, Memory: 1}},
	}
	if err := WriteLP(&b, p, math.Inf(1)); err != nil {
		t.Fatal(err)
	}
	want := `Maximize
 obj: y
Subject To
 one0: + e0_0 = 1
 on0_0: a0_0 - 0.5 e0_0 <= 0
 yield0: + a0_0 - 0.5 y >= 0
 one1: + e1_0 = 1
 cpu0: + a0_0 + a1_0 <= 1
 mem0: + 0.25 e0_0 + 1 e1_0 <= 2
Bounds
 0 <= y <= 1
Binary
 e0_0
 e1_0
End
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// BenchmarkSolvers: the same instances for Exact and the other solvers, 10 s each
// for these. Proved optima must agree. ns/op is of no interest.
func BenchmarkSolvers(b *testing.B) {
	const limit = 10
	for _, size := range []struct {
		hosts, tasks int
		slacks       []float64
	}{
		{4, 6, []float64{0.1, 0.3, 0.5, 0.7, 0.9}}, {4, 8, []float64{0.1, 0.3, 0.5, 0.7, 0.9}},
		{4, 10, []float64{0.1, 0.3, 0.5, 0.7, 0.9}}, {4, 12, []float64{0.3, 0.6}},
		{8, 24, []float64{0.3}}, {12, 24, []float64{0.3}},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var set []allocator.Problem
		for _, slack := range size.slacks {
			for k := range 4 {
				set = append(set, instance(r, size.hosts, size.tasks, slack, []float64{0.25, 0.75}[k/2], []float64{0.25, 0.75}[k%2]))
			}
		}
		var answers []allocator.Outcome
		name := fmt.Sprintf("%dx%d", size.hosts, size.tasks)
		b.Run(name+"/exact", func(b *testing.B) {
			for b.Loop() {
				answers = nil
				begin, proved := time.Now(), 0
				for _, p := range set {
					o := allocator.Exact(p, allocator.Search{})
					answers = append(answers, o)
					if o.Verdict == allocator.Optimal || o.Verdict == allocator.Infeasible {
						proved++
					}
				}
				report(b, proved, len(set), time.Since(begin))
			}
		})
		for _, s := range Solvers {
			b.Run(name+"/"+s.Program, func(b *testing.B) {
				if !s.Found() {
					b.Skipf("%s is not installed: apt-get install %s", s.Program, s.Package)
				}
				for b.Loop() {
					var took time.Duration
					proved := 0
					for i, p := range set {
						a, err := s.Solve(b.Context(), b.TempDir(), p, math.Inf(1), limit)
						took += a.Took
						if err != nil {
							b.Logf("instance %d: %v", i, err)
							continue
						}
						if a.Optimal || a.Infeasible {
							proved++
						}
						if len(answers) == 0 {
							continue // exact was not asked
						}
						o := answers[i]
						if a.Infeasible && o.Verdict == allocator.Optimal || a.Optimal && o.Verdict == allocator.Infeasible ||
							a.Optimal && o.Verdict == allocator.Optimal && math.Abs(a.Yield-o.Solution.MinYield) > 1e-5 {
							b.Errorf("instance %d: %s says %+v, exact %v %v", i, s.Program, a, o.Verdict, o.Solution.MinYield)
						}
					}
					report(b, proved, len(set), took)
				}
			})
		}
	}
}

func report(b *testing.B, proved, all int, took time.Duration) {
	b.ReportMetric(float64(proved)/float64(all), "proved")
	b.ReportMetric(float64(took.Microseconds())/1000/float64(all), "ms-each")
	b.ReportMetric(0, "ns/op")
}
