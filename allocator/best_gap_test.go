package allocator_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"evenkeel/allocator"
)

// With a gap to stop at, Best stops there: on many hosts, equal or not, with much
// memory free or little.
func TestBestReachesTheGap(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, size := range [][2]int{{64, 500}, {300, 3000}} {
		for _, slack := range []float64{0.8, 0.5, 0.2} {
			for _, unequal := range []bool{false, true} {
				p := paperInstance(r, size[0], size[1], slack, 0.5, 0.5)
				for j := range p.Hosts {
					if unequal {
						f := 0.5 + 1.5*r.Float64()
						p.Hosts[j].CPU, p.Hosts[j].Memory = f, f
					}
				}
				s := allocator.Search{Gap: 1e-4, Steps: 100_000_000}
				o := allocator.Best(p, s)
				if err := checkOutcome(p, s, o); err != nil {
					t.Fatalf("%v, slack %v, unequal %v: %v", size, slack, unequal, err)
				}
				gap := 1 - o.Solution.MinYield/o.UpperBound
				if o.Verdict < allocator.Feasible || gap > 1e-4*(1+1e-9) {
					t.Errorf("%v, slack %v, unequal %v: verdict %v, gap %v", size, slack, unequal, o.Verdict, gap)
				}
				if again := allocator.Best(p, s); !reflect.DeepEqual(o, again) {
					t.Errorf("%v, slack %v, unequal %v: two answers", size, slack, unequal)
				}
			}
		}
	}
	p := paperInstance(r, 4, 8, 0.5, 0.5, 0.5)
	for _, gap := range []float64{-1, 1, math.NaN()} {
		if o := allocator.Best(p, allocator.Search{Gap: gap}); o.Verdict > allocator.Infeasible {
			t.Errorf("a gap of %v is taken", gap)
		}
	}
}
