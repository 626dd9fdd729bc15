package allocator_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/allocator"
)

// jobSize draws the number of VMs of a parallel job as the model of Lublin and
// Feitelson (JPDC 2003) does for jobs of no known type, with up to most of them.
func jobSize(r *rand.Rand, limit int) int {
	greatest := math.Log2(float64(limit))
	u := r.Float64()
	if u <= 0.244 {
		return 1
	}
	from, to := 0.8, greatest-2.5
	if r.Float64() > 0.86 {
		from, to = to, greatest
	}
	log := from + (to-from)*r.Float64()
	if u <= 0.244+0.576 {
		log = math.Round(log)
	}
	return min(max(1, int(math.Round(math.Exp2(log)))), limit)
}

// jobs is VMs of parallel jobs on hosts of capacity 1.
func jobs(r *rand.Rand, hosts, vms int, slack, cv float64) (p allocator.Problem) {
	one := paperInstance(r, hosts, vms, slack, cv, cv)
	p.Hosts = one.Hosts
	for j := range p.Hosts {
		p.Hosts[j].Name = fmt.Sprintf("h%d", j)
	}
	for left := vms; left > 0; {
		g := one.Groups[len(p.Groups)]
		g.Name, g.Count = fmt.Sprintf("j%d", len(p.Groups)), min(left, jobSize(r, hosts))
		left -= g.Count
		p.Groups = append(p.Groups, g)
	}
	return p
}

// constraints are what BenchmarkJobs and TestJobsUnderConstraints put on jobs.
var constraints = []struct {
	name string
	add  func(r *rand.Rand, p *allocator.Problem, s *allocator.Search)
}{
	{"none", func(*rand.Rand, *allocator.Problem, *allocator.Search) {}},
	{"spread", rules(func(r *rand.Rand, p *allocator.Problem, g int, a *allocator.Affinity) {
		if p.Groups[g].Count <= len(p.Hosts)/2 && r.IntN(3) == 0 {
			a.Spread = "host"
		}
	})},
	{"require", rules(func(r *rand.Rand, p *allocator.Problem, g int, a *allocator.Affinity) {
		if r.IntN(4) == 0 { // any host of one half
			for j := range p.Hosts {
				if j%2 == g%2 {
					a.Require = append(a.Require, "host:"+p.Hosts[j].Name)
				}
			}
		}
	})},
	{"avoid", rules(func(r *rand.Rand, p *allocator.Problem, g int, a *allocator.Affinity) {
		if g > 0 && r.IntN(4) == 0 {
			a.Avoid = append(a.Avoid, "vc:"+p.Groups[r.IntN(g)].Name, "host:"+p.Hosts[r.IntN(len(p.Hosts))].Name)
		}
	})},
	{"prefer", rules(func(r *rand.Rand, p *allocator.Problem, g int, a *allocator.Affinity) {
		if g > 0 && r.IntN(4) == 0 {
			a.Prefer = append(a.Prefer, "vc:"+p.Groups[r.IntN(g)].Name)
		}
	})},
	{"minYield", func(r *rand.Rand, p *allocator.Problem, _ *allocator.Search) {
		b := allocator.Bound(*p)
		for g := range p.Groups {
			p.Groups[g].MinYield = b * 0.9 * r.Float64()
		}
		p.Groups[0].MinYield = min(1, b*1.1)
	}},
	{"pinned", func(r *rand.Rand, p *allocator.Problem, s *allocator.Search) {
		prepared(p, 0.5, r)
		s.Stay = true
	}},
	{"budget", func(r *rand.Rand, p *allocator.Problem, s *allocator.Search) {
		prepared(p, 1, r)
		b := float64(len(p.Hosts)) / 20
		s.MoveBudget = &b
	}},
}

func rules(draw func(r *rand.Rand, p *allocator.Problem, g int, a *allocator.Affinity)) func(*rand.Rand, *allocator.Problem, *allocator.Search) {
	return func(r *rand.Rand, p *allocator.Problem, s *allocator.Search) {
		s.Rules = &allocator.Rules{Labels: make([]map[string]string, len(p.Groups))}
		for g := range p.Groups {
			a := &allocator.Affinity{}
			draw(r, p, g, a)
			s.Rules.Affinity = append(s.Rules.Affinity, a)
		}
	}
}

// prepared gives a share of the VMs the host where SG puts them.
func prepared(p *allocator.Problem, share float64, r *rand.Rand) {
	s, ok := allocator.SG(*p)
	if !ok {
		return
	}
	for g := range p.Groups {
		p.Groups[g].Hosts = s.Hosts[g]
		for vm := range p.Groups[g].Hosts {
			if r.Float64() >= share {
				p.Groups[g].Hosts[vm] = -1
			}
		}
	}
}

// Every placement of jobs, under each kind of constraint, passes the checker.
func TestJobsUnderConstraints(t *testing.T) {
	for _, c := range constraints {
		found := 0
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 7))
			p := jobs(r, 16, 100, 0.2+0.05*float64(seed), 0.5)
			s := allocator.Search{Seed: seed, Steps: 300_000}
			c.add(r, &p, &s)
			o := allocator.Best(p, s)
			if err := checkOutcome(p, s, o); err != nil {
				t.Errorf("%s, seed %d: %v", c.name, seed, err)
			}
			if o.Verdict >= allocator.Feasible {
				found++
			}
		}
		if found < 6 {
			t.Errorf("%s: %d of 12 placed", c.name, found)
		}
	}
}

// BenchmarkJobs: 500 VMs of parallel jobs on 64 hosts, Best until it is within
// 0.1% of its bound, 100 ms at most, under each kind of constraint.
func BenchmarkJobs(b *testing.B) {
	for _, c := range constraints {
		b.Run(c.name, func(b *testing.B) {
			var problems []allocator.Problem
			var searches []allocator.Search
			for i := range 18 {
				r := rand.New(rand.NewPCG(uint64(i), 8))
				p := jobs(r, 64, 500, float64(1+i/2)/10, []float64{0.25, 0.75}[i%2])
				s := allocator.Search{Gap: 0.001}
				c.add(r, &p, &s)
				problems, searches = append(problems, p), append(searches, s)
			}
			outcomes := make([]allocator.Outcome, len(problems))
			solve := func(i int) {
				deadline := time.Now().Add(100 * time.Millisecond)
				s := searches[i]
				s.Stop = func() bool { return time.Now().After(deadline) }
				outcomes[i] = allocator.Best(problems[i], s)
			}
			for b.Loop() {
				for i := range problems {
					solve(i)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N*len(problems)), "ms-each")
			reportOutcomes(b, outcomes)
		})
	}
}
