package allocator

import "math"

// boundedLP is: maximize sum x_k subject to sum_k a_ik x_k <= limit_i and
// 0 <= x_k <= upper_k, with all a_ik > 0 and limit_i >= 0, so that x = 0 is
// feasible.
type boundedLP struct {
	limit  []float64
	upper  []float64
	column [][]cell // [k]: the a_ik that are not zero; cell.host is the row i
}

// Work that maximize may do, in changed numbers of the tableau. It bounds time
// and memory, not the quality of what is usual: 64 hosts and 500 clusters take
// some hundred pivots of 32,000 numbers.
const (
	maxCells = 4_000_000
	maxWork  = 100_000_000
)

// maximize solves the program with the primal simplex method for variables
// with upper bounds, on a condensed tableau:
//
//	basic_i = value_i - sum_k tableau_ik nonbasic_k
//
// Every non-basic variable is at zero: a variable at its upper bound is
// replaced by its distance from it. The entering variable is the one with the
// greatest gain per need. Where the work is not enough for an optimum the best
// so far is returned, which is feasible too.
func (lp *boundedLP) maximize() []float64 {
	m, n := len(lp.limit), len(lp.upper)
	x := make([]float64, n)
	if m*n > maxCells {
		return x
	}
	const eps = 1e-11
	tab := make([]float64, m*n)
	value := append([]float64(nil), lp.limit...)
	gain := make([]float64, n)
	need := make([]float64, n) // of the variable that started in this column: scales the gain
	for k := range lp.column {
		gain[k] = 1
		for _, c := range lp.column[k] {
			tab[c.host*n+k] = c.weight
			need[k] += c.weight
		}
	}
	// Variables 0..n-1 are the x, n..n+m-1 the slacks of the rows.
	inColumn, inRow := make([]int, n), make([]int, m)
	upper := make([]float64, n+m)
	flipped := make([]bool, n+m) // stands for its distance from its upper bound
	for k := range inColumn {
		inColumn[k], upper[k] = k, lp.upper[k]
	}
	for i := range inRow {
		inRow[i], upper[n+i] = n+i, math.Inf(1)
	}
	for work := 0; work < maxWork; {
		enter, best := -1, 0.0
		for k := range gain {
			if gain[k] > eps {
				score := gain[k]
				if v := inColumn[k]; v < n {
					score /= need[v]
				}
				if score > best {
					enter, best = k, score
				}
			}
		}
		work += n
		if enter < 0 {
			break
		}
		// How far may it rise until it or a basic variable meets a bound?
		step, leave, atUpper, size := upper[inColumn[enter]], -1, false, 0.0
		for i := range value {
			a := tab[i*n+enter]
			switch {
			case a > eps:
				if s := max(0, value[i]) / a; s < step || s == step && leave >= 0 && a > size {
					step, leave, atUpper, size = s, i, false, a
				}
			case a < -eps && !math.IsInf(upper[inRow[i]], 1):
				if s := max(0, upper[inRow[i]]-value[i]) / -a; s < step || s == step && leave >= 0 && -a > size {
					step, leave, atUpper, size = s, i, true, -a
				}
			}
		}
		if math.IsInf(step, 1) {
			break // cannot be: every x is bounded
		}
		if leave < 0 {
			for i := range value {
				value[i] -= tab[i*n+enter] * step
				tab[i*n+enter] = -tab[i*n+enter]
			}
			gain[enter] = -gain[enter]
			flipped[inColumn[enter]] = !flipped[inColumn[enter]]
			work += m
			continue
		}
		if atUpper {
			v := inRow[leave]
			value[leave] = upper[v] - value[leave]
			row := tab[leave*n : leave*n+n]
			for k := range row {
				row[k] = -row[k]
			}
			flipped[v] = !flipped[v]
		}
		work += m + pivot(tab, value, gain, leave, enter)
		inRow[leave], inColumn[enter] = inColumn[enter], inRow[leave]
	}
	at := func(v int, value float64) {
		if v >= n {
			return
		}
		if flipped[v] {
			value = upper[v] - value
		}
		x[v] = min(max(0, value), upper[v])
	}
	for _, v := range inColumn {
		at(v, 0)
	}
	for i, v := range inRow {
		at(v, value[i])
	}
	return x
}

// pivot exchanges the basic variable of row r with the non-basic one of column
// c. It passes over zeros, of which a tableau of many hosts has many, and
// returns how many numbers it changed.
func pivot(tab, value, gain []float64, r, c int) (work int) {
	n := len(gain)
	row := tab[r*n : r*n+n]
	inv := 1 / row[c]
	var used []int // columns of the row that are not zero, c aside
	for k := range row {
		if row[k] != 0 && k != c {
			row[k] *= inv
			used = append(used, k)
		}
	}
	row[c] = inv
	value[r] *= inv
	subtract := func(other []float64) float64 {
		f := other[c]
		if f == 0 {
			return 0
		}
		other[c] = -f * inv
		for _, k := range used {
			other[k] -= f * row[k]
		}
		work += len(used)
		return f
	}
	for i := range value {
		if i != r {
			if f := subtract(tab[i*n : i*n+n]); f != 0 {
				value[i] -= f * value[r]
			}
		}
	}
	subtract(gain)
	return work
}
