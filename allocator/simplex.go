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
// with upper bounds, on a condensed tableau. The entering variable is the one
// with the greatest gain per need. Where the work is not enough for an optimum
// the best so far is returned, which is feasible too.
func (lp *boundedLP) maximize() []float64 {
	m, n := len(lp.limit), len(lp.upper)
	if m*n > maxCells {
		return make([]float64, n)
	}
	t := newTableau(lp)
	for work := 0; work < maxWork; {
		enter := t.entering()
		work += n
		if enter < 0 {
			break
		}
		step, leave, atUpper := t.leaving(enter)
		if math.IsInf(step, 1) {
			break // cannot be: every x is bounded
		}
		if leave < 0 {
			t.flipColumn(enter, step)
			work += m
			continue
		}
		if atUpper {
			t.flipRow(leave)
		}
		work += m + pivot(t.cells, t.value, t.gain, leave, enter)
		t.inRow[leave], t.inColumn[enter] = t.inColumn[enter], t.inRow[leave]
	}
	return t.solution()
}

// tableau is
//
//	basic_i = value_i - sum_k cells_ik nonbasic_k
//
// Every non-basic variable is at zero: a variable at its upper bound is
// replaced by its distance from it. Variables 0..n-1 are the x, n..n+m-1 the
// slacks of the rows.
type tableau struct {
	cells    []float64 // rows x columns
	value    []float64 // [row]
	gain     []float64 // [column]
	need     []float64 // [column]: of the variable that started there: scales the gain
	inColumn []int     // variables
	inRow    []int
	upper    []float64 // [variable]
	flipped  []bool    // [variable]: stands for its distance from its upper bound
}

func newTableau(lp *boundedLP) *tableau {
	m, n := len(lp.limit), len(lp.upper)
	t := &tableau{cells: make([]float64, m*n), value: append([]float64(nil), lp.limit...), gain: make([]float64, n), need: make([]float64, n),
		inColumn: make([]int, n), inRow: make([]int, m), upper: make([]float64, n+m), flipped: make([]bool, n+m)}
	for k := range lp.column {
		t.gain[k] = 1
		for _, c := range lp.column[k] {
			t.cells[c.host*n+k] = c.weight
			t.need[k] += c.weight
		}
	}
	for k := range t.inColumn {
		t.inColumn[k], t.upper[k] = k, lp.upper[k]
	}
	for i := range t.inRow {
		t.inRow[i], t.upper[n+i] = n+i, math.Inf(1)
	}
	return t
}

// minCell is the least amount that counts in a tableau.
const minCell = 1e-11

// entering is the column of the variable that is to rise; -1: none gains.
func (t *tableau) entering() int {
	enter, best := -1, 0.0
	for k, score := range t.gain {
		if score > minCell {
			if v := t.inColumn[k]; v < len(t.need) {
				score /= t.need[v]
			}
			if score > best {
				enter, best = k, score
			}
		}
	}
	return enter
}

// leaving says how far the variable of a column may rise until a basic variable meets a bound, and in which row that is; -1: until
// it meets its own upper bound.
func (t *tableau) leaving(enter int) (step float64, leave int, atUpper bool) {
	n := len(t.gain)
	step, leave, size := t.upper[t.inColumn[enter]], -1, 0.0
	for i := range t.value {
		a := t.cells[i*n+enter]
		switch {
		case a > minCell:
			if s := max(0, t.value[i]) / a; s < step || s == step && leave >= 0 && a > size {
				step, leave, atUpper, size = s, i, false, a
			}
		case a < -minCell && !math.IsInf(t.upper[t.inRow[i]], 1):
			if s := max(0, t.upper[t.inRow[i]]-t.value[i]) / -a; s < step || s == step && leave >= 0 && -a > size {
				step, leave, atUpper, size = s, i, true, -a
			}
		}
	}
	return step, leave, atUpper
}

// flipColumn brings the variable of a column to its upper bound, a step away, and replaces it by its distance from it.
func (t *tableau) flipColumn(c int, step float64) {
	n := len(t.gain)
	for i := range t.value {
		t.value[i] -= t.cells[i*n+c] * step
		t.cells[i*n+c] = -t.cells[i*n+c]
	}
	t.gain[c] = -t.gain[c]
	v := t.inColumn[c]
	t.flipped[v] = !t.flipped[v]
}

// flipRow replaces the variable of a row by its distance from its upper bound.
func (t *tableau) flipRow(r int) {
	n, v := len(t.gain), t.inRow[r]
	t.value[r] = t.upper[v] - t.value[r]
	row := t.cells[r*n : r*n+n]
	for k := range row {
		row[k] = -row[k]
	}
	t.flipped[v] = !t.flipped[v]
}

// solution is the x.
func (t *tableau) solution() []float64 {
	x := make([]float64, len(t.gain))
	set := func(v int, value float64) {
		if v >= len(x) {
			return
		}
		if t.flipped[v] {
			value = t.upper[v] - value
		}
		x[v] = min(max(0, value), t.upper[v])
	}
	for _, v := range t.inColumn {
		set(v, 0)
	}
	for i, v := range t.inRow {
		set(v, t.value[i])
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
