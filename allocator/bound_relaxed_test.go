package allocator_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"evenkeel/allocator"
)

// relaxedYield is the optimum of the relaxation of eq. 3-11 for hosts that differ, with no part of a VM on a host
// whose memory is less than the VM's. ok is false where there is no solution, or the program finds none.
func relaxedYield(p allocator.Problem) (y float64, ok bool) {
	n, h := len(p.Groups), len(p.Hosts)
	part := func(i, j int) int { return i*h + j }      // e_ij
	cpu := func(i, j int) int { return n*h + i*h + j } // alpha_ij
	yield := 2 * n * h
	columns := yield + 1
	type row struct {
		at    []int
		of    []float64
		limit float64
		equal bool
	}
	var rows []row
	for i, g := range p.Groups {
		all, given := row{limit: 1, equal: true}, row{at: []int{yield}, of: []float64{g.CPU}}
		for j, c := range p.Hosts {
			if g.Memory <= c.Memory {
				all.at, all.of = append(all.at, part(i, j)), append(all.of, 1)
				given.at, given.of = append(given.at, cpu(i, j)), append(given.of, -1)
				rows = append(rows, row{at: []int{cpu(i, j), part(i, j)}, of: []float64{1, -c.CPU}})
			}
		}
		rows = append(rows, all, given)
	}
	for j, c := range p.Hosts {
		used, memory := row{limit: c.CPU}, row{limit: c.Memory}
		for i, g := range p.Groups {
			used.at, used.of = append(used.at, cpu(i, j)), append(used.of, 1)
			memory.at, memory.of = append(memory.at, part(i, j)), append(memory.of, g.Memory)
		}
		rows = append(rows, used, memory)
	}
	rows = append(rows, row{at: []int{yield}, of: []float64{1}, limit: 1})
	slack := columns
	for _, r := range rows {
		if !r.equal {
			columns++
		}
	}
	a, b, c := mat.NewDense(len(rows), columns, nil), make([]float64, len(rows)), make([]float64, columns)
	c[yield] = -1
	for k, r := range rows {
		for i, at := range r.at {
			a.Set(k, at, r.of[i])
		}
		if b[k] = r.limit; !r.equal {
			a.Set(k, slack, 1)
			slack++
		}
	}
	used := make([]bool, columns) // a column of zeros is refused
	for k := range rows {
		for at := range columns {
			used[at] = used[at] || a.At(k, at) != 0
		}
	}
	var keep []int
	for at, u := range used {
		if u {
			keep = append(keep, at)
		}
	}
	small, gain := mat.NewDense(len(rows), len(keep), nil), make([]float64, len(keep))
	for to, at := range keep {
		gain[to] = c[at]
		for k := range rows {
			small.Set(k, to, a.At(k, at))
		}
	}
	value, _, err := lp.Simplex(gain, small, b, 1e-10, nil)
	return -value, err == nil
}

// The bound is never above the optimum of the relaxation by more than 1%, and mostly far below.
func TestMixBoundAgainstTheRelaxation(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	solved, lower, worst, sum := 0, 0, 0.0, 0.0
	for range 40 {
		p := allocator.Problem{}
		wide := 0.3 + 2*r.Float64()
		var cpu, memory, need, size float64
		for range 3 {
			h := allocator.Host{CPU: math.Pow(10, -wide*r.Float64()), Memory: math.Pow(10, -wide*r.Float64())}
			cpu, memory = cpu+h.CPU, memory+h.Memory
			p.Hosts = append(p.Hosts, h)
		}
		for range 8 {
			g := allocator.Group{Count: 1, CPU: math.Pow(10, -wide*r.Float64()), Memory: math.Pow(10, -wide*r.Float64())}
			need, size = need+g.CPU, size+g.Memory
			p.Groups = append(p.Groups, g)
		}
		slack := 0.1 + 0.6*r.Float64()
		for g := range p.Groups {
			p.Groups[g].CPU *= cpu / need
			p.Groups[g].Memory *= memory * (1 - slack) / size
		}
		want, ok := relaxedYield(p)
		if !ok || want < 1e-6 {
			continue
		}
		solved++
		ratio := allocator.UpperBound(p) / want
		sum += ratio
		worst = max(worst, ratio)
		if ratio < 0.99 {
			lower++
		}
	}
	t.Logf("of %d: on average %.4f of the relaxation, %.4f at most, %d by more than 1%% below", solved, sum/float64(solved), worst, lower)
	if solved < 25 || worst > 1.01 {
		t.Errorf("of %d relaxations the bound is up to %.4f times the optimum", solved, worst)
	}
}
