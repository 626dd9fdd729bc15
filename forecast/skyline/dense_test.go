package skyline

import (
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// dense is the linear program of sec. 5 as it stands there, in a general solver that knows nothing of its structure.
func dense(t testing.TB, runs [][]float64, o Options, weight float64) float64 {
	t.Helper()
	p, err := newProblem(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	nk := p.n * p.k
	// Variables: s_k; then o, D and u, by run and step; then what each row leaves.
	rows, columns := 3*nk, p.k+6*nk
	a, b, c := mat.NewDense(rows, columns, nil), make([]float64, rows), make([]float64, columns)
	basis := make([]int, rows)
	for i := range p.n {
		for k := range p.k {
			at := i*p.k + k
			over, debt, under := p.k+at, p.k+nk+at, p.k+2*nk+at
			use := p.use[at]
			b[at], b[nk+at], b[2*nk+at] = use, use, use
			if p.censored != nil && p.censored[at] {
				b[at] = growth * use
			}
			// s_k - o_ik + rest = s_ik
			a.Set(at, k, 1)
			a.Set(at, over, -1)
			a.Set(at, p.k+3*nk+at, 1)
			basis[at] = p.k + 3*nk + at
			// D_ik - D_i,k-1 + s_k - rest = s_ik
			a.Set(nk+at, debt, 1)
			if k > 0 && o.Debts {
				a.Set(nk+at, debt-1, -1)
			}
			a.Set(nk+at, k, 1)
			a.Set(nk+at, p.k+4*nk+at, -1)
			basis[nk+at] = debt
			// u_ik + s_k - rest = s_ik
			a.Set(2*nk+at, under, 1)
			a.Set(2*nk+at, k, 1)
			a.Set(2*nk+at, p.k+5*nk+at, -1)
			basis[2*nk+at] = under
			c[over] = o.Alpha / float64(p.n)
			if k == p.k-1 || !o.Debts {
				c[debt] = (1 - o.Alpha) / float64(p.n)
			}
			if w := p.work[i*p.k]; w > 0 {
				c[under] = weight / w / float64(p.n)
			}
		}
	}
	best, _, err := lp.Simplex(c, a, b, 1e-12, basis)
	if err != nil {
		t.Fatalf("the dense program: %v", err)
	}
	return best
}
