package search

import (
	"math"
	"math/bits"
)

// master is the linear program behind a set partitioning: patterns in amounts x
// >= 0 that cover every item exactly once, as many in sum as there are hosts. A
// basis is kept from one question to the next one: patterns in it that may no
// longer be used cost 1, and all that minimize does is to get rid of them. If
// their amount cannot be brought to zero, there is no partition, and the duals
// are a valuation that proves it.
//
// It computes in floating point, and what it says is no more than a hint: what
// is concluded from it is checked with whole numbers.
type master struct {
	rows    int // items, and last the hosts
	hosts   int
	inverse []float64 // rows x rows: of the basis
	x       []float64 // [row]: amount of the basic column
	basis   []int32   // [row]: pattern, -1: none, the row's own unit column
	dual    []float64
	column  []float64
	usable  []bool  // [row]: the basic column may be used
	pool    []int32 // patterns that had a gain
	next    int     // where pricing goes on
	table   *[8][256]float64
	changes int // of the basis since it was inverted

	scratch []float64
}

// start makes the basis that of no pattern.
func (q *master) start(items, hosts int) {
	r := items + 1
	q.rows, q.hosts, q.changes = r, hosts, 0
	if q.table == nil {
		q.table = new([8][256]float64)
	}
	q.inverse, q.x, q.basis = resize(q.inverse, r*r), resize(q.x, r), resize(q.basis, r)
	q.dual, q.column, q.usable = resize(q.dual, r), resize(q.column, r), resize(q.usable, r)
	clear(q.inverse)
	for i := range r {
		q.inverse[i*r+i] = 1
		q.basis[i] = -1
		q.x[i] = side(i, items, hosts)
	}
}

// side is the right side of a row: 1, or the hosts, and something small that
// differs from row to row, for without it most changes of the basis lead nowhere.
func side(i, items, hosts int) float64 {
	if i == items {
		return float64(hosts)
	}
	return 1 + 1e-7*float64(i*7919%101)
}

func (q *master) copy(o *master) {
	r := o.rows
	q.rows, q.hosts, q.changes, q.table = r, o.hosts, o.changes, o.table
	q.inverse = append(q.inverse[:0], o.inverse...)
	q.x = append(q.x[:0], o.x...)
	q.basis = append(q.basis[:0], o.basis...)
	q.dual, q.column, q.usable = resize(q.dual, r), resize(q.column, r), resize(q.usable, r)
}

// Tolerances: the amount of unusable columns that counts as none, the least gain
// of an entering column, the least pivot.
const (
	noAmount = 1e-7
	noGain   = 1e-7
	noPivot  = 1e-7
)

// maxChanges is how often the basis is changed before it is inverted again.
const maxChanges = 100

// minimize brings the amount of columns for which usable is false as low as it
// can with the patterns of which and more, in at most limit changes of the basis,
// fewer if the work is used up. It reports whether some is left that cannot be
// got rid of; dual then has the duals.
func (q *master) minimize(list []pattern, which, more []int32, limit int, steps *int64, stop func() bool) (stuck bool) {
	r := q.rows
	q.pool = q.pool[:0]
	for i := range limit {
		if *steps < 0 || i%8 == 7 && stop != nil && stop() {
			return false
		}
		if q.changes >= maxChanges {
			q.invert(list)
			*steps -= int64(r * r * r / 20)
		}
		amount := q.unusable()
		*steps -= int64(r * r / 10)
		if amount < noAmount {
			return false
		}
		enter := q.price(list, which, more, steps)
		if enter < 0 {
			return true
		}
		q.expand(list[enter].set)
		leave, step := q.leaving()
		if leave < 0 {
			return false // rounding: amounts are bounded
		}
		q.exchange(leave, enter, step)
	}
	return false
}

// unusable is the amount of columns that may not be used; dual becomes its duals.
func (q *master) unusable() (amount float64) {
	r := q.rows
	clear(q.dual)
	for i := range q.basis {
		if !q.usable[i] {
			amount += q.x[i]
			row := q.inverse[i*r : i*r+r]
			for j, v := range row {
				q.dual[j] += v
			}
		}
	}
	return amount
}

// expand sets column to a pattern in terms of the basis.
func (q *master) expand(set uint64) {
	r := q.rows
	for i := range r {
		row := q.inverse[i*r : i*r+r]
		v := row[r-1]
		for x := set; x != 0; x &= x - 1 {
			v += row[bits.TrailingZeros64(x)]
		}
		q.column[i] = v
	}
}

// leaving is the row whose amount is the first to become zero as that of column rises by step; -1: none does.
func (q *master) leaving() (leave int, step float64) {
	leave, step, size := -1, math.Inf(1), 0.0
	for i, a := range q.column {
		if a > noPivot {
			if s := q.x[i] / a; s < step-1e-12 || s < step+1e-12 && a > size {
				leave, step, size = i, s, a
			}
		}
	}
	return leave, step
}

// exchange puts a pattern, whose column is column, into the basis in place of that of a row.
func (q *master) exchange(leave int, enter int32, step float64) {
	r := q.rows
	for i, a := range q.column {
		q.x[i] = max(0, q.x[i]-a*step)
	}
	q.x[leave] = step
	row := q.inverse[leave*r : leave*r+r]
	f := 1 / q.column[leave]
	for j := range row {
		row[j] *= f
	}
	for i, a := range q.column {
		if i == leave || a == 0 {
			continue
		}
		other := q.inverse[i*r : i*r+r]
		for j, v := range row {
			other[j] -= a * v
		}
	}
	q.basis[leave], q.usable[leave] = enter, true
	q.changes++
}

// poolSize is how many patterns of value are kept from one pricing to the next.
const poolSize = 128

// minPriced is how many patterns are looked at, at least, before the best of
// them is taken for good enough.
const minPriced = 2048

// price is a pattern of great gain; -1 if there is none of any. Patterns with a
// gain are kept, and serve until none of them has one any more.
func (q *master) price(list []pattern, which, more []int32, steps *int64) int32 {
	best, enter := noGain, int32(-1)
	consider := func(k int32) {
		v := q.dual[q.rows-1]
		for set := list[k].set; set != 0; set &= set - 1 {
			v += q.dual[bits.TrailingZeros64(set)]
		}
		if v <= noGain {
			return
		}
		if len(q.pool) < cap(q.pool) {
			q.pool = append(q.pool, k)
		}
		if v > best {
			best, enter = v, k
		}
	}
	old := q.pool
	q.pool = old[:0]
	for _, k := range old {
		consider(k)
	}
	for _, k := range more {
		consider(k)
	}
	*steps -= int64(len(old))
	if enter >= 0 {
		return enter
	}
	if cap(q.pool) < poolSize {
		q.pool = make([]int32, 0, poolSize)
	}
	if len(which) <= minPriced {
		for _, k := range which {
			consider(k)
		}
		*steps -= int64(len(which))
		return enter
	}
	q.tabulate()
	if q.next >= len(which) {
		q.next = 0
	}
	for n := range which {
		if n >= minPriced && enter >= 0 {
			*steps -= int64(n) / 2
			return enter
		}
		k := which[q.next]
		if q.next++; q.next == len(which) {
			q.next = 0
		}
		if v := q.gain(list[k].set); v > noGain {
			if len(q.pool) == poolSize {
				// The early ones were taken when best was lower.
				q.pool = append(q.pool[:0], q.pool[poolSize/2:]...)
			}
			if v > best/2 {
				q.pool = append(q.pool, k)
			}
			if v > best {
				best, enter = v, k
			}
		}
	}
	*steps -= int64(len(which)) / 2
	return enter
}

// tabulate adds up the duals of all subsets of eight items side by side.
func (q *master) tabulate() {
	for b := range q.table {
		t := &q.table[b]
		t[0] = 0
		if b == 0 {
			t[0] = q.dual[q.rows-1]
		}
		for i := range 8 {
			v := 0.0
			if 8*b+i < q.rows-1 {
				v = q.dual[8*b+i]
			}
			for k := range 1 << i {
				t[1<<i+k] = t[k] + v
			}
		}
	}
}

// gain is what the table gives for a set.
func (q *master) gain(set uint64) float64 {
	t := q.table
	return t[0][set&255] + t[1][set>>8&255] + t[2][set>>16&255] + t[3][set>>24&255] +
		(t[4][set>>32&255] + t[5][set>>40&255] + t[6][set>>48&255] + t[7][set>>56])
}

// invert computes the inverse of the basis, and the amounts, from scratch, by
// Gauss and Jordan. If the basis has become singular it starts from none.
func (q *master) invert(list []pattern) {
	r := q.rows
	q.changes = 0
	a := resize(q.scratch, r*r)
	q.scratch = a
	clear(a)
	for j, k := range q.basis {
		if k < 0 {
			a[j*r+j] = 1
			continue
		}
		a[(r-1)*r+j] = 1
		for x := list[k].set; x != 0; x &= x - 1 {
			a[bits.TrailingZeros64(x)*r+j] = 1
		}
	}
	inv := q.inverse
	clear(inv)
	for i := range r {
		inv[i*r+i] = 1
	}
	for j := range r {
		at, size := -1, 1e-9
		for i := j; i < r; i++ {
			if v := math.Abs(a[i*r+j]); v > size {
				at, size = i, v
			}
		}
		if at < 0 {
			for i := range q.usable {
				q.usable[i] = false
			}
			q.start(r-1, q.hosts)
			return
		}
		if at != j {
			for k := range r {
				a[at*r+k], a[j*r+k] = a[j*r+k], a[at*r+k]
				inv[at*r+k], inv[j*r+k] = inv[j*r+k], inv[at*r+k]
			}
		}
		f := 1 / a[j*r+j]
		for k := range r {
			a[j*r+k] *= f
			inv[j*r+k] *= f
		}
		for i := range r {
			g := a[i*r+j]
			if i == j || g == 0 {
				continue
			}
			for k := range r {
				a[i*r+k] -= g * a[j*r+k]
				inv[i*r+k] -= g * inv[j*r+k]
			}
		}
	}
	for i := range r {
		x := 0.0
		for j, v := range inv[i*r : i*r+r] {
			x += v * side(j, r-1, q.hosts)
		}
		q.x[i] = max(0, x)
	}
}
