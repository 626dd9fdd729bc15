package search

import (
	"math"
	"math/bits"
	"slices"
)

// partition decides whether patterns of a catalogue, one per host, cover every
// item once. It goes down by an item with the fewest patterns: one of them is
// taken, the one of which the linear program has most, then, if that led nowhere,
// it is dropped and the program is asked again. Where the program has no solution,
// and whole numbers confirm it, nothing below is looked at.
type partition struct {
	cat    *catalogue
	levels []partLevel
	chosen []int32 // patterns
	failed map[uint64]struct{}
	dead   []bool   // [pattern]: tried
	sets   []uint64 // of the patterns in the basis of the first program

	value  []int64 // the last valuation that refuted a question as a whole
	steps  *int64
	stop   func() bool
	gaveUp bool
}

type partLevel struct {
	list   []int32 // patterns that may be used
	master master
}

// maxFailed bounds the memory for sets that failed.
const maxFailed = 1 << 20

// maxPivots ends a linear program that goes round in circles.
const maxPivots = 3000

// fewPatterns is up to how many patterns are tried without the linear program.
const fewPatterns = 24

func newPartition(m *Model) *partition {
	c := newCatalogue(m)
	q := &partition{cat: c, levels: make([]partLevel, c.hosts+1), failed: map[uint64]struct{}{}, sets: make([]uint64, len(c.vms)+1)}
	q.levels[0].master.start(len(c.vms), c.hosts)
	return q
}

// ask decides whether all items fit with this load. It reports whether they
// do, and whether that is settled.
func (q *partition) ask(load int64, steps *int64, stop func() bool) (found, final bool) {
	c := q.cat
	q.steps, q.stop, q.gaveUp = steps, stop, false
	if !c.enumerate(load, steps, stop) {
		return false, false
	}
	slack := c.slack()
	if slack[0] < 0 || slack[1] < 0 {
		return false, true
	}
	if q.value != nil {
		possible := false
		if slack[2], possible = c.thin(q.value); !possible {
			return false, true
		}
	}
	l := &q.levels[0]
	l.list = resize(l.list, len(c.list))
	for k := range l.list {
		l.list[k] = int32(k)
	}
	q.rebase()
	q.chosen = q.chosen[:0]
	clear(q.failed)
	q.dead = resize(q.dead, len(c.list))
	clear(q.dead)
	found = q.node(0, c.all(), slack)
	p := &l.master
	for i, k := range p.basis {
		if k >= 0 {
			q.sets[i] = c.list[k].set
		}
	}
	return found, found || !q.gaveUp
}

// rebase finds the patterns of the basis that the last question left in the new
// list, which is much the same. Those that are not in it are added as unusable.
func (q *partition) rebase() {
	c, p := q.cat, &q.levels[0].master
	var marks [64]uint64 // of most that are not sought
	mark := func(set uint64) (bits, bit uint64) {
		h := set * 0x9e3779b97f4a7c15 >> 52
		return h >> 6, 1 << (h & 63)
	}
	for i, k := range p.basis {
		if k >= 0 {
			bits, bit := mark(q.sets[i])
			marks[bits] |= bit
		}
	}
	at := map[uint64]int32{}
	for k := range c.list {
		set := c.list[k].set
		if bits, bit := mark(set); marks[bits]&bit != 0 {
			at[set] = int32(k)
		}
	}
	for i, k := range p.basis {
		if k < 0 {
			continue
		}
		to, listed := at[q.sets[i]]
		if !listed {
			to = int32(len(c.list))
			c.list = append(c.list, pattern{q.sets[i], deficits{math.MaxInt64}})
		}
		p.basis[i] = to
	}
}

// relax asks the linear program whether left can be covered. It reports whether
// that is proved impossible.
func (q *partition) relax(depth int, left uint64, slack *deficits) (impossible bool) {
	c := q.cat
	l := &q.levels[depth]
	p := &l.master
	for i, k := range p.basis {
		p.usable[i] = k >= 0 && (slices.Contains(q.chosen, k) ||
			!q.dead[k] && c.list[k].set&^left == 0 && c.list[k].deficit.within(slack))
	}
	if !p.minimize(c.list, l.list, q.chosen, maxPivots, q.steps, q.stop) {
		return false
	}
	value := valuation(p.dual[:len(c.vms)])
	if !refutes(value, c.list, l.list, left, c.hosts-len(q.chosen)) {
		return false
	}
	*q.steps -= int64(len(l.list))
	if depth == 0 {
		q.value = value
	}
	return true
}

// valuation makes whole numbers of duals.
func valuation(dual []float64) []int64 {
	highest := 0.0
	for _, v := range dual {
		highest = max(highest, math.Abs(v))
	}
	value := make([]int64, len(dual))
	if highest > 0 && highest < math.MaxFloat64 {
		for i, v := range dual {
			value[i] = int64(math.Round(v / highest * (1 << 36)))
		}
	}
	return value
}

// node decides whether left can be covered with what is in the list of the
// level. On success q.chosen has the patterns.
func (q *partition) node(depth int, left uint64, slack deficits) bool {
	c := q.cat
	if left == 0 {
		return true
	}
	if depth == c.hosts {
		return false
	}
	if _, known := q.failed[left]; known {
		return false
	}
	if *q.steps < 0 || q.stop != nil && q.stop() {
		q.gaveUp = true
		return false
	}
	l := &q.levels[depth]
	var tried []int32
	defer func() {
		for _, k := range tried {
			q.dead[k] = false
		}
	}()
	for {
		programmed := len(l.list) > fewPatterns
		if programmed {
			if q.relax(depth, left, &slack) {
				break
			}
			if q.whole(depth, left) {
				return true
			}
		}
		item := q.scarcest(l.list, left)
		*q.steps -= int64(len(l.list))
		take, at := q.branch(l, item, left, programmed)
		if take < 0 {
			break // no pattern left for it
		}
		p := &c.list[take]
		rest := slack
		for i := range rest {
			rest[i] -= p.deficit[i]
		}
		next := &q.levels[depth+1]
		next.list = c.beside(next.list[:0], l.list, p.set, &rest)
		*q.steps -= int64(len(l.list)) / 4
		if programmed {
			next.master.copy(&l.master)
		}
		q.chosen = append(q.chosen, take)
		if q.node(depth+1, left&^p.set, rest) {
			return true
		}
		q.chosen = q.chosen[:len(q.chosen)-1]
		if q.gaveUp {
			return false
		}
		l.list = slices.Delete(l.list, at, at+1)
		q.dead[take] = true
		tried = append(tried, take)
	}
	if depth > 0 && len(q.failed) < maxFailed {
		q.failed[left] = struct{}{}
	}
	return false
}

// branch is the pattern with an item that is tried next, and its place in the list: the one of which the program has most, if it
// was asked, otherwise the first; -1: there is none.
func (q *partition) branch(l *partLevel, item int, left uint64, programmed bool) (take int32, at int) {
	c := q.cat
	take, highest := int32(-1), -1.0
	if programmed {
		for i, k := range l.master.basis {
			if k >= 0 && l.master.usable[i] && c.list[k].set&left>>item&1 != 0 && l.master.x[i] > highest {
				take, highest = k, l.master.x[i]
			}
		}
	}
	for i, k := range l.list {
		if take < 0 && c.list[k].set>>item&1 != 0 {
			take = k
		}
		if k == take {
			return take, i
		}
	}
	return take, -1
}

// beside adds to out the patterns of a list that have nothing of a set, and are within what is left.
func (c *catalogue) beside(out, list []int32, set uint64, rest *deficits) []int32 {
	for _, k := range list {
		if x := &c.list[k]; x.set&set == 0 && x.deficit.within(rest) {
			out = append(out, k)
		}
	}
	return out
}

// whole says whether the solution of the program is one in whole patterns, and
// takes it.
func (q *partition) whole(depth int, left uint64) bool {
	c := q.cat
	l := &q.levels[depth]
	n := len(q.chosen)
	for i, k := range l.master.basis {
		if k >= 0 && l.master.usable[i] && l.master.x[i] > 0.5 && c.list[k].set&left != 0 {
			if c.list[k].set&^left != 0 {
				q.chosen = q.chosen[:n]
				return false
			}
			left &^= c.list[k].set
			q.chosen = append(q.chosen, k)
		}
	}
	if left != 0 || len(q.chosen) > c.hosts {
		q.chosen = q.chosen[:n]
		return false
	}
	return true
}

// scarcest is the item of left with the fewest patterns. The counts of all
// items are kept side by side, bit by bit: count[b] has bit b of each.
func (q *partition) scarcest(list []int32, left uint64) int {
	var count [20]uint64
	for _, k := range list {
		carry := q.cat.list[k].set
		for b := 0; carry != 0; b++ {
			count[b], carry = count[b]^carry, count[b]&carry
		}
	}
	lowest := left
	for b := len(count) - 1; b >= 0; b-- {
		if fewer := lowest &^ count[b]; fewer != 0 {
			lowest = fewer
		}
	}
	return bits.TrailingZeros64(lowest)
}
