package allocator_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

func TestGreedyKnownAnswers(t *testing.T) {
	two := []allocator.Host{{CPU: 1, Memory: 1}, {CPU: 1, Memory: 1}}
	group := func(cpu, memory float64) allocator.Group {
		return allocator.Group{Count: 1, CPU: cpu, Memory: memory}
	}
	gr := func(p allocator.Problem) (allocator.Solution, bool) { return allocator.GR(p) }
	sg := func(p allocator.Problem) (allocator.Solution, bool) { return allocator.SG(p) }
	gb := func(p allocator.Problem) (allocator.Solution, bool) { return allocator.GB(p, allocator.Attempts) }
	sgb := func(p allocator.Problem) (allocator.Solution, bool) { return allocator.SGB(p, allocator.Attempts) }
	for name, c := range map[string]struct {
		solve  func(allocator.Problem) (allocator.Solution, bool)
		groups []allocator.Group
		hosts  []int // of each group's one VM; nil: fails
	}{
		"GR by load": {gr, []allocator.Group{group(0.3, 0.1), group(0.2, 0.1), group(0.2, 0.1), group(0.2, 0.1)}, []int{0, 1, 1, 0}},
		// The least loaded host has no memory left.
		"GR by memory": {gr, []allocator.Group{group(0.5, 0.1), group(0.1, 0.9), group(0.1, 0.2)}, []int{0, 1, 0}},
		// Memory 0.6 and 0.6 part the small ones; 0.7 finds nothing.
		"GR fails":                   {gr, []allocator.Group{group(0.1, 0.4), group(0.1, 0.4), group(0.1, 0.7), group(0.1, 0.3)}, nil},
		"SG on the same":             {sg, []allocator.Group{group(0.1, 0.4), group(0.1, 0.4), group(0.1, 0.7), group(0.1, 0.3)}, []int{1, 1, 0, 0}},
		"GB on the same":             {gb, []allocator.Group{group(0.1, 0.4), group(0.1, 0.4), group(0.1, 0.7), group(0.1, 0.3)}, []int{0, 0, 1, 1}},
		"SG fails":                   {sg, []allocator.Group{group(0.1, 0.5), group(0.3, 0.4), group(0.1, 0.4), group(0.1, 0.3), group(0.1, 0.2), group(0.1, 0.2)}, nil},
		"SGB on the same":            {sgb, []allocator.Group{group(0.1, 0.5), group(0.3, 0.4), group(0.1, 0.4), group(0.1, 0.3), group(0.1, 0.2), group(0.1, 0.2)}, []int{0, 1, 1, 0, 0, 1}},
		"SGB where nothing can fit":  {sgb, []allocator.Group{group(0.1, 0.6), group(0.1, 0.6), group(0.1, 0.6)}, nil},
		"GB in one attempt too few":  {func(p allocator.Problem) (allocator.Solution, bool) { return allocator.GB(p, 2) }, []allocator.Group{group(1, 0), group(1, 0), group(1, 0)}, nil},
		"GB in just enough attempts": {func(p allocator.Problem) (allocator.Solution, bool) { return allocator.GB(p, 3) }, []allocator.Group{group(1, 0), group(1, 0), group(1, 0)}, []int{0, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := allocator.Problem{Hosts: two, Groups: c.groups}
			s, ok := c.solve(p)
			if ok != (c.hosts != nil) {
				t.Fatalf("placed: %v: %+v", ok, s)
			}
			if !ok {
				return
			}
			if err := checkSolution(p, s); err != nil {
				t.Fatal(err)
			}
			for g, j := range c.hosts {
				if s.Hosts[g][0] != j {
					t.Fatalf("hosts %v, want %v", s.Hosts, c.hosts)
				}
			}
		})
	}
}

// paperAlgorithms are those that take any problem and promise nothing but valid answers.
var paperAlgorithms = map[string]func(allocator.Problem) (allocator.Solution, bool){
	"GR":   allocator.GR,
	"SG":   allocator.SG,
	"GB":   func(p allocator.Problem) (allocator.Solution, bool) { return allocator.GB(p, 1000) },
	"SGB":  func(p allocator.Problem) (allocator.Solution, bool) { return allocator.SGB(p, 1000) },
	"RRND": func(p allocator.Problem) (allocator.Solution, bool) { return allocator.RRND(p, 7) },
	"RRNZ": func(p allocator.Problem) (allocator.Solution, bool) { return allocator.RRNZ(p, 7) },
}

func TestPaperAlgorithmsKeepEveryLimit(t *testing.T) {
	for name, solve := range paperAlgorithms {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := allocator.Problem{Hosts: drawHosts(t, 6), Groups: drawGroups(t, 8, 20)}
				for j := range p.Hosts {
					p.Hosts[j].Cordoned = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0
				}
				s, ok := solve(p)
				again, okAgain := solve(p)
				if ok != okAgain || !reflect.DeepEqual(s, again) {
					t.Fatalf("two answers to one problem: %+v, %+v", s, again)
				}
				if !ok {
					return
				}
				if err := checkSolution(p, s); err != nil {
					t.Fatalf("%+v: %v", p, err)
				}
				for g := range s.Hosts {
					for _, j := range s.Hosts[g] {
						if p.Hosts[j].Cordoned {
							t.Fatalf("VM of group %d on cordoned host %d", g, j)
						}
					}
				}
			})
		})
	}
}

// Without a bound that matters, backtracking finds a placement where there is one.
func TestBacktrackingIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 3), Groups: drawGroups(t, 6, 6)}
		possible := optimum(p) >= 0
		if _, ok := allocator.GB(p, 1_000_000); ok != possible {
			t.Fatalf("GB placed: %v; possible: %v", ok, possible)
		}
		if _, ok := allocator.SGB(p, 1_000_000); ok != possible {
			t.Fatalf("SGB placed: %v; possible: %v", ok, possible)
		}
	})
}
