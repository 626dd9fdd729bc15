package search

import (
	"math/bits"
	"slices"
)

// completion decides whether items fit into hosts of given room: bin completion (Korf 2003, here
// with two resources and unequal hosts). The largest item left is the pivot. The search tries every
// way of filling one host with the pivot, and solves what is left in the same way. It passes over a
// filling if
//
//   - the items that it leaves cannot fit into the other hosts in sum (two-sided window),
//   - another item would fit beside it, or a larger item in the place of one of its items:
//     where the filling leads to a solution, the fuller one does too (dominance),
//   - the same items were left for the same hosts before, and did not fit (memo).
//
// Many fields: it is work space of one recursion, kept so that a step allocates nothing.
type completion struct {
	model *Model
	vms   []int32 // items: VMs of the model, in branching order
	hosts []int32 // hosts of the model, equal ones side by side
	w, m  []int64 // [item]
	same  []bool  // [item]: equal to the one before in all that matters
	roomW []int64 // [host]
	roomM []int64

	kinds []kind
	plain bool // no rules: items and hosts of equal amounts are interchangeable
	moves bool // no With and no budget, so that dominance is valid
	spent bool // moves have a budget

	left           []uint64 // items not placed
	restW, restM   int64    // of the items not placed
	freeW, freeM   int64    // of the hosts not used
	bigW, bigM     []uint64 // items of which no two fit on one host
	hostsLeft      int
	money          int64
	assign         []int32 // [item]: index into hosts
	levels         []fillLevel
	memo           memo
	steps          *int64 // what may still be done
	stop           func() bool
	gaveUp         bool
	sortKey        []float64
	order          []int
	keepW, keepM   []int64
	keepVM, keepHo []int32
}

// kind is a run of equal hosts.
type kind struct{ first, count, used int }

// fillLevel is the work space of one host's filling.
type fillLevel struct {
	avail      []int32 // items left after the pivot
	sumW, sumM []int64 // sums over avail[i:]
	in         []int32
	isIn       []bool // [index in avail]
	host       int
	kind       int
	lowW, lowM int64
	capW, capM int64
	base       int64 // cost so far
}

// load prepares the question whether vms fit into hosts with this much room.
func (c *completion) load(m *Model, vms, hosts []int32, roomW, roomM []int64) {
	n, h := len(vms), len(hosts)
	c.model = m
	r := m.Rules
	c.plain = r == nil
	c.moves = r == nil || r.With == nil && !m.budgeted()
	c.spent = m.budgeted()
	c.gaveUp = false
	c.makeRoom(h, n)

	c.hosts = append(c.hosts[:0], hosts...)
	c.roomW = append(c.roomW[:0], roomW...)
	c.roomM = append(c.roomM[:0], roomM...)
	c.arrangeHosts(vms)

	var maxW, maxM int64
	for j := range h {
		maxW, maxM = max(maxW, c.roomW[j]), max(maxM, c.roomM[j])
	}
	c.vms, c.w, c.m, c.same = resize(c.vms, n), resize(c.w, n), resize(c.m, n), resize(c.same, n)
	c.sortKey, c.order = resize(c.sortKey, n), resize(c.order, n)
	for i, vm := range vms {
		c.order[i] = i
		a, b := 0.0, 0.0
		if maxW > 0 {
			a = float64(m.Weight[vm]) / float64(maxW)
		}
		if maxM > 0 {
			b = float64(m.Size[vm]) / float64(maxM)
		}
		c.sortKey[i] = max(a, b) + min(a, b)/1024
	}
	// Insertion is fastest for the few items that are usual, and keeps ties in order.
	if n <= 24 {
		for i := 1; i < n; i++ {
			o := c.order[i]
			j := i
			for ; j > 0 && c.sortKey[c.order[j-1]] < c.sortKey[o]; j-- {
				c.order[j] = c.order[j-1]
			}
			c.order[j] = o
		}
	} else {
		slices.SortStableFunc(c.order, func(a, b int) int {
			switch {
			case c.sortKey[a] > c.sortKey[b]:
				return -1
			case c.sortKey[a] < c.sortKey[b]:
				return 1
			}
			return 0
		})
	}
	width := (n + 63) / 64
	c.left, c.bigW, c.bigM = resize(c.left, width), resize(c.bigW, width), resize(c.bigM, width)
	clear(c.left)
	clear(c.bigW)
	clear(c.bigM)
	c.restW, c.restM = 0, 0
	for i, o := range c.order {
		vm := vms[o]
		c.vms[i], c.w[i], c.m[i] = vm, m.Weight[vm], m.Size[vm]
		c.same[i] = i > 0 && c.equal(c.vms[i-1], vm)
		c.restW += c.w[i]
		c.restM += c.m[i]
		c.left[i>>6] |= 1 << (i & 63)
		if c.w[i] > maxW/2 {
			c.bigW[i>>6] |= 1 << (i & 63)
		}
		if c.m[i] > maxM/2 {
			c.bigM[i>>6] |= 1 << (i & 63)
		}
	}
	c.freeW, c.freeM = 0, 0
	for j := range h {
		c.freeW = min(unlimited, c.freeW+c.roomW[j])
		c.freeM += c.roomM[j]
	}
	c.hostsLeft = h
	c.money = 0
	c.assign = resize(c.assign, n)
	c.makeLevels(h, n)
	c.memo.reset(width + len(c.kinds))
}

// makeRoom makes the slices that load fills, all at one go.
func (c *completion) makeRoom(h, n int) {
	if cap(c.vms) < n {
		k := n + n/2
		wide, narrow, sets := make([]int64, 2*k), make([]int32, 2*k), make([]uint64, 3*((k+63)/64))
		c.w, c.m = wide[:0:k], wide[k:k]
		c.vms, c.assign = narrow[:0:k], narrow[k:k]
		width := len(sets) / 3
		c.left, c.bigW, c.bigM = sets[:0:width], sets[width:width:2*width], sets[2*width:2*width:3*width]
	}
	if cap(c.roomW) < h {
		rooms := make([]int64, 2*h)
		c.roomW, c.roomM = rooms[:0:h], rooms[h:h]
	}
}

// makeLevels makes the work space of h hosts: at one go where it is little.
func (c *completion) makeLevels(h, n int) {
	if len(c.levels) >= h {
		return
	}
	if c.levels != nil || h*n > 4096 {
		c.levels = append(c.levels, make([]fillLevel, h-len(c.levels))...)
		return
	}
	c.levels = make([]fillLevel, h)
	sums, items, marks := make([]int64, 2*h*(n+1)), make([]int32, 2*h*n), make([]bool, h*n)
	for d := range c.levels {
		l := &c.levels[d]
		l.sumW, l.sumM, sums = sums[:0:n+1], sums[n+1:n+1:2*(n+1)], sums[2*(n+1):]
		l.avail, l.in, items = items[:0:n], items[n:n:2*n], items[2*n:]
		l.isIn, marks = marks[:0:n], marks[n:]
	}
}

// equal says whether two VMs may be exchanged in any placement.
func (c *completion) equal(a, b int32) bool {
	m := c.model
	if m.Weight[a] != m.Weight[b] || m.Size[a] != m.Size[b] {
		return false
	}
	if c.plain {
		return true
	}
	r := m.Rules
	if r.Class != nil && r.Class[a] != r.Class[b] {
		return false
	}
	if r.Allowed != nil && !slices.Equal(r.Allowed[a], r.Allowed[b]) {
		return false
	}
	return !c.spent || r.Home[a] == r.Home[b] && r.Cost[a] == r.Cost[b]
}

// arrangeHosts puts equal hosts side by side, the roomiest first.
func (c *completion) arrangeHosts(vms []int32) {
	h := len(c.hosts)
	equal := true
	for j := 1; j < h && equal; j++ {
		equal = c.roomW[j] == c.roomW[0] && c.roomM[j] == c.roomM[0]
	}
	if c.plain && equal {
		c.kinds = append(c.kinds[:0], kind{0, h, 0})
		return
	}
	c.keepHo = append(c.keepHo[:0], c.hosts...)
	c.keepW = append(c.keepW[:0], c.roomW...)
	c.keepM = append(c.keepM[:0], c.roomM...)
	c.order = resize(c.order, h)
	for j := range c.order {
		c.order[j] = j
	}
	slices.SortStableFunc(c.order, func(a, b int) int {
		switch {
		case c.keepW[a] != c.keepW[b]:
			if c.keepW[a] > c.keepW[b] {
				return -1
			}
			return 1
		case c.keepM[a] > c.keepM[b]:
			return -1
		case c.keepM[a] < c.keepM[b]:
			return 1
		}
		return 0
	})
	for j, o := range c.order {
		c.hosts[j], c.roomW[j], c.roomM[j] = c.keepHo[o], c.keepW[o], c.keepM[o]
	}
	c.kinds = c.kinds[:0]
	for j := range h {
		if n := len(c.kinds); n > 0 && c.equalHosts(vms, c.kinds[n-1].first, j) {
			c.kinds[n-1].count++
		} else {
			c.kinds = append(c.kinds, kind{j, 1, 0})
		}
	}
}

func (c *completion) equalHosts(vms []int32, a, b int) bool {
	if c.roomW[a] != c.roomW[b] || c.roomM[a] != c.roomM[b] {
		return false
	}
	if c.plain {
		return true
	}
	r := c.model.Rules
	for _, vm := range vms {
		if c.model.allowed(vm, c.hosts[a]) != c.model.allowed(vm, c.hosts[b]) {
			return false
		}
		if c.spent && (r.Home[vm] == c.hosts[a] || r.Home[vm] == c.hosts[b]) {
			return false
		}
	}
	return true
}

// stepsPerFill is what looking at one filling costs.
const stepsPerFill = 4

// solve answers the question: found, or (with gaveUp unset) proved impossible.
// It spends *steps.
func (c *completion) solve(steps *int64, stop func() bool) bool {
	c.steps, c.stop = steps, stop
	return c.node(0)
}

func (c *completion) node(depth int) bool {
	pivot := -1
	for k, chunk := range c.left {
		if chunk != 0 {
			pivot = k<<6 + bits.TrailingZeros64(chunk)
			break
		}
	}
	if pivot < 0 {
		return true
	}
	if depth >= len(c.hosts) || c.crowded() {
		return false
	}
	if depth > 0 && c.memo.failed(c.left, c.kinds, c.allowance()) {
		return false
	}
	l := &c.levels[depth]
	c.begin(l, pivot)
	l.base = c.money
	for k := range c.kinds {
		q := &c.kinds[k]
		if q.used == q.count {
			continue
		}
		l.kind, l.host = k, q.first+q.used
		l.capW, l.capM = c.roomW[l.host], c.roomM[l.host]
		l.lowW, l.lowM = c.restW-(c.freeW-l.capW), c.restM-(c.freeM-l.capM)
		if c.freeW >= unlimited {
			l.lowW = 0
		}
		if c.w[pivot] > l.capW || c.m[pivot] > l.capM || !c.model.allowed(c.vms[pivot], c.hosts[l.host]) {
			continue
		}
		cost := c.model.cost(c.vms[pivot], c.hosts[l.host])
		if c.spent && l.base+cost > c.model.Rules.Budget {
			continue
		}
		l.in = append(l.in[:0], int32(pivot))
		if c.fill(depth, 0, c.w[pivot], c.m[pivot], l.base+cost) {
			return true
		}
		c.money = l.base
		if c.gaveUp {
			return false
		}
	}
	if depth > 0 {
		c.memo.add(c.left, c.kinds, c.allowance())
	}
	return false
}

// crowded reports whether the items left cannot fit: they exceed the free room in sum, or more of them than there are hosts
// left need a host each.
func (c *completion) crowded() bool {
	if c.restW > c.freeW || c.restM > c.freeM {
		return true
	}
	nw, nm := 0, 0
	for k, chunk := range c.left {
		nw += bits.OnesCount64(chunk & c.bigW[k])
		nm += bits.OnesCount64(chunk & c.bigM[k])
	}
	return nw > c.hostsLeft || nm > c.hostsLeft
}

// begin prepares a level for the host that gets the pivot. The other items left are the candidates
// for filling it.
func (c *completion) begin(l *fillLevel, pivot int) {
	l.avail = l.avail[:0]
	for k, chunk := range c.left {
		for chunk != 0 {
			if i := k<<6 + bits.TrailingZeros64(chunk); i != pivot {
				l.avail = append(l.avail, int32(i))
			}
			chunk &= chunk - 1
		}
	}
	n := len(l.avail)
	l.sumW, l.sumM, l.isIn = resize(l.sumW, n+1), resize(l.sumM, n+1), resize(l.isIn, n)
	l.sumW[n], l.sumM[n] = 0, 0
	for i := n - 1; i >= 0; i-- {
		l.sumW[i] = l.sumW[i+1] + c.w[l.avail[i]]
		l.sumM[i] = l.sumM[i+1] + c.m[l.avail[i]]
	}
	clear(l.isIn)
}

// allowance is what may still be spent.
func (c *completion) allowance() int64 {
	if !c.spent {
		return 0
	}
	return c.model.Rules.Budget - c.money
}

// fill tries all fillings that add items of avail[from:] to what is in.
func (c *completion) fill(depth, from int, w, m, money int64) bool {
	*c.steps -= stepsPerFill
	if *c.steps < 0 || *c.steps&1023 < stepsPerFill && c.stop != nil && c.stop() {
		c.gaveUp = true
		return false
	}
	l := &c.levels[depth]
	fuller := false
	for p := from; p < len(l.avail); p++ {
		if w+l.sumW[p] < l.lowW || m+l.sumM[p] < l.lowM {
			return false
		}
		i := l.avail[p]
		if w+c.w[i] > l.capW || m+c.m[i] > l.capM {
			continue
		}
		if p > from && c.same[i] && l.avail[p-1] == i-1 && !l.isIn[p-1] {
			continue // its equal was left out
		}
		cost := int64(0)
		if !c.plain {
			if c.barred(l, i) {
				continue
			}
			cost = c.model.cost(c.vms[i], c.hosts[l.host])
			if c.spent && money+cost > c.model.Rules.Budget {
				continue
			}
		}
		fuller = true
		l.in = append(l.in, i)
		l.isIn[p] = true
		if c.fill(depth, p+1, w+c.w[i], m+c.m[i], money+cost) {
			return true
		}
		l.in = l.in[:len(l.in)-1]
		l.isIn[p] = false
		if c.gaveUp {
			return false
		}
	}
	return c.worthwhile(l, from, w, m, fuller) && c.use(depth, w, m, money)
}

// worthwhile reports whether the search goes on with a filling: it leaves no more than the other hosts can take, no fuller
// one dominates it, and each of its items has the company that it requires. fuller: another item would still fit.
func (c *completion) worthwhile(l *fillLevel, from int, w, m int64, fuller bool) bool {
	if w < l.lowW || m < l.lowM || c.moves && (fuller || c.dominated(l, from, w, m)) {
		return false
	}
	return c.model.Rules == nil || c.model.Rules.With == nil || c.accompanied(l)
}

// barred says whether item i may not join what is in.
func (c *completion) barred(l *fillLevel, i int32) bool {
	vm := c.vms[i]
	if !c.model.allowed(vm, c.hosts[l.host]) {
		return true
	}
	if c.model.Rules.Apart != nil {
		for _, k := range l.in {
			if c.model.apart(vm, c.vms[k]) {
				return true
			}
		}
	}
	return false
}

func (c *completion) accompanied(l *fillLevel) bool {
	c.keepVM = c.keepVM[:0]
	for _, i := range l.in {
		c.keepVM = append(c.keepVM, c.vms[i])
	}
	return c.model.accompanied(c.keepVM)
}

// dominated says whether an item left out before from fits beside what is in,
// or, without rules, a larger item in the place of a smaller one.
func (c *completion) dominated(l *fillLevel, from int, w, m int64) bool {
	for p := range min(from, len(l.avail)) {
		i := l.avail[p]
		if !l.isIn[p] && w+c.w[i] <= l.capW && m+c.m[i] <= l.capM && (c.plain || !c.barred(l, i)) {
			return true
		}
	}
	if !c.plain {
		return false
	}
	for _, y := range l.in[1:] {
		roomW, roomM := l.capW-w+c.w[y], l.capM-m+c.m[y]
		for p, x := range l.avail {
			if !l.isIn[p] && c.w[x] >= c.w[y] && c.m[x] >= c.m[y] && c.w[x] <= roomW && c.m[x] <= roomM && (c.w[x] > c.w[y] || c.m[x] > c.m[y]) {
				return true
			}
		}
	}
	return false
}

// use takes the filling and goes on with what is left.
func (c *completion) use(depth int, w, m, money int64) bool {
	l := &c.levels[depth]
	for _, i := range l.in {
		c.left[i>>6] &^= 1 << (uint(i) & 63)
		c.assign[i] = int32(l.host)
	}
	host, k := l.host, l.kind
	c.kinds[k].used++
	c.hostsLeft--
	c.restW, c.restM = c.restW-w, c.restM-m
	freeW, freeM := c.freeW, c.freeM
	if freeW < unlimited {
		c.freeW -= c.roomW[host]
	}
	c.freeM -= c.roomM[host]
	before := c.money
	c.money = money
	if c.node(depth + 1) {
		return true
	}
	c.money = before
	c.freeW, c.freeM = freeW, freeM
	c.restW, c.restM = c.restW+w, c.restM+m
	c.hostsLeft++
	c.kinds[k].used--
	for _, i := range c.levels[depth].in {
		c.left[i>>6] |= 1 << (uint(i) & 63)
	}
	return false
}

// resize gives s the length n; what is in it is undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/2)
	}
	return s[:n]
}
