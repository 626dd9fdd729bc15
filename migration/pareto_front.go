package migration

import (
	"cmp"
	"math"
	"slices"
)

// The front of few VMs: every minimum yield that can be had, from the present one up, each for the
// fewest bytes. The search takes one level after another, each a little below the greatest level of
// the placement found before. It looks for the cheapest placement that keeps to the level by branch
// and bound. A host above the level has to give one of its VMs away: the search branches over which
// VM, and where to. The VMs tried before it stay, so that no placement is tried twice. The bound is
// the bytes spent and, host by host, the cheapest VMs that bring the host down to the level.
//
// The search first counts the bytes of VMs that go directly to their hosts. If some placement
// that it found has no order of moves for these bytes, it searches again from that level on with the bytes of orders,
// staging hops included; placements without an order do not count then.
const (
	maxFront   = 48        // VMs
	frontNodes = 2_000_000 // states looked at for all levels together
	levelNodes = 600_000   // for one level
	nodeSteps  = 15
	nodesAsked = 200   // states between two questions whether to end
	orderNodes = 5_000 // states that an order with staging hops counts as, or a search for one
)

// levelSearch is one search of the front, over levels.
type levelSearch struct {
	s    *search
	h    *shedding
	left int // nodes

	orders bool   // bytes are those of orders
	hosts  []int  // that are looked at
	loose  []int  // VMs that have to find a host among these, at no cost; the first is placed next
	note   func() // what to do with a placement that keeps to the level

	limit    []float64 // [host]: greatest need
	fixed    []float64 // [host]: need of the VMs that are settled there
	full     []float64 // [host]: their memory
	set      []bool    // [vm]: settled
	cover    []float64 // [host]: fewest bytes that bring it within its limits
	spent    float64
	minBytes float64 // bytes to be undercut
	floor    float64 // no placement costs less
	best     *candidate
}

// searchLevels adds the cheapest placement of one level after another to what was found, as far as
// the work reaches. Bytes are those of direct moves or of orders. known: no other placement of at
// most so many bytes is worth more than these.
func (s *search) searchLevels(base candidate, highest float64) (known float64) {
	h := newShedding(s, slices.Clone(base.at))
	h.reset()
	n := len(h.cpu)
	f := &levelSearch{s: s, h: h, left: frontNodes, limit: make([]float64, n), fixed: make([]float64, n), full: make([]float64, n), set: make([]bool, len(h.base)), cover: make([]float64, n)}
	f.note = f.leaf
	for j := range n {
		f.hosts = append(f.hosts, j)
	}
	for vm, stays := range h.stay {
		if stays {
			f.put(vm, h.base[vm])
		}
	}
	total, cpu := 0.0, 0.0
	for j := range h.need {
		total += h.need[j]
		cpu += h.cpu[j]
	}
	low := max(1, total/cpu)
	top, _ := h.level()
	if highest > 0 {
		top = min(top, 1/highest) // above it floors bind, and yields are not what levels say
	}
	again := -1.0
	known = f.walk(top, low, func(from float64, c *candidate) {
		if again < 0 && !s.direct && !(s.order(c) && c.bytes <= c.direct*(1+sameBytes)) {
			again = from
		}
	})
	if again > 0 {
		f.left, f.orders = frontNodes, true
		f.walk(again, low, func(float64, *candidate) {})
	}
	if !math.IsInf(known, 1) && known > 0 {
		var from *candidate
		for i := range s.found {
			if c := &s.found[i]; c.broken == 0 && c.missing == 0 && c.direct <= known && (from == nil || c.better(from) < 0) {
				from = c
			}
		}
		if from != nil {
			f.refine(*from, low)
		}
	}
	return known
}

// walk goes down from level top, and calls found with every placement of the front
// and the level it had to stay below.
func (f *levelSearch) walk(top, low float64, found func(from float64, c *candidate)) (known float64) {
	f.floor = 0
	for top > low*(1+sameYield) && f.left > 0 {
		c, whole := f.cheapest(top * (1 - sameYield))
		if whole {
			f.floor, known = math.Inf(1), math.Inf(1)
			if c != nil {
				f.floor = f.bytes(c)
				known = f.floor * (1 - sameBytes)
			}
		}
		if c == nil {
			return known
		}
		found(top, c)
		top = 1 / c.yield
	}
	if top <= low*(1+sameYield) {
		known = math.Inf(1)
	}
	return known
}

// bytes of a candidate; +Inf: it has no order, and one is asked for.
func (f *levelSearch) bytes(c *candidate) float64 {
	switch {
	case !f.orders:
		return c.direct
	case f.s.order(c):
		return c.bytes
	}
	return math.Inf(1)
}

// cheapest is the cheapest placement in which no level is above t, nil if none is
// found; whole: there is no cheaper one.
func (f *levelSearch) cheapest(t float64) (c *candidate, whole bool) {
	h, s := f.h, f.s
	f.best, f.minBytes, f.spent = nil, math.Inf(1), 0
	for i := range s.found {
		c := &s.found[i]
		if c.yield < 1/t || c.broken > 0 || c.missing > 0 || c.direct >= f.minBytes {
			continue
		}
		if b := f.bytes(c); b < f.minBytes {
			f.best, f.minBytes = c, b
		}
	}
	if f.best != nil {
		known := *f.best // the list may grow
		f.best = &known
	}
	sum := 0.0
	for j := range f.limit {
		f.limit[j] = t * h.cpu[j] * above
		f.cover[j] = f.covers(j)
		sum += f.cover[j]
	}
	stop := max(0, f.left-levelNodes)
	f.branch(sum, stop)
	return f.best, f.left > stop
}

func (f *levelSearch) put(vm, j int) {
	f.set[vm] = true
	f.fixed[j] += f.h.w(vm)
	f.full[j] += f.h.m(vm)
}

func (f *levelSearch) unsettle(vm, j int) {
	f.set[vm] = false
	f.fixed[j] -= f.h.w(vm)
	f.full[j] -= f.h.m(vm)
}

// covers is the fewest bytes of VMs that are free to leave a host and bring it
// within its limits; +Inf: all together do not.
func (f *levelSearch) covers(j int) float64 {
	h := f.h
	weight, size := h.need[j]-f.limit[j], h.used[j]-h.room[j]*(1+1e-13)
	if weight <= 0 && size <= 0 {
		return 0
	}
	return f.knapsack(h.on[j], weight, size)
}

// knapsack is the least cost of some of the VMs, those not settled, which weigh and
// measure so much together.
func (f *levelSearch) knapsack(vms []int, weight, size float64) float64 {
	h := f.h
	lowest := math.Inf(1)
	var w, m float64
	for _, vm := range vms {
		if !f.set[vm] {
			w += h.w(vm)
			m += h.m(vm)
		}
	}
	var pick func(i int, weight, size, w, m, cost float64)
	pick = func(i int, weight, size, w, m, cost float64) {
		if cost >= lowest {
			return
		}
		if weight <= 0 && size <= 0 {
			lowest = cost
			return
		}
		for ; i < len(vms); i++ {
			vm := vms[i]
			if f.set[vm] {
				continue
			}
			if w < weight || m < size {
				return
			}
			w -= h.w(vm)
			m -= h.m(vm)
			pick(i+1, weight-h.w(vm), size-h.m(vm), w, m, cost+h.cost[vm])
		}
	}
	pick(0, weight, size, w, m, 0)
	return lowest
}

// over says whether a host is beyond its limits, or has two VMs that must be
// apart, one of which is free to leave.
func (f *levelSearch) over(j int) bool {
	h := f.h
	if h.need[j] > f.limit[j] || !fits(h.used[j], h.room[j]) {
		return true
	}
	if h.f.p.Rules == nil {
		return false
	}
	for i, a := range h.on[j] {
		for _, b := range h.on[j][:i] {
			if f.set[a] != f.set[b] && h.f.rules.Apart(h.f.group[a], h.f.group[b]) {
				return true
			}
		}
	}
	return false
}

// branch tries every VM that may leave the host beyond its limits with the greatest cover; without
// such a host it notes the placement. sum is the sum of cover.
func (f *levelSearch) branch(sum float64, stop int) {
	h := f.h
	if f.left--; f.left%nodesAsked == 0 && f.s.done(nodesAsked*nodeSteps) {
		f.left = 0
	}
	if f.left <= stop || f.spent+sum >= f.minBytes || f.minBytes <= f.floor {
		return
	}
	if len(f.loose) > 0 {
		f.place(sum, stop)
		return
	}
	j := -1
	for _, k := range f.hosts {
		if f.over(k) && (j < 0 || f.cover[k] > f.cover[j]) {
			j = k
		}
	}
	if j < 0 {
		f.note()
		return
	}
	vms := slices.DeleteFunc(slices.Clone(h.on[j]), func(vm int) bool { return f.set[vm] || h.w(vm) == 0 && h.m(vm) == 0 })
	slices.SortStableFunc(vms, func(a, b int) int { return cmp.Compare(h.cost[a], h.cost[b]) })
	begin := f.cover[j]
	final := 0
	for i, vm := range vms {
		rest := sum - f.cover[j]
		if math.IsInf(f.cover[j], 1) || f.spent+sum >= f.minBytes {
			break
		}
		same := i > 0 && f.same(vms[i-1], vm)
		if !same {
			f.away(vm, j, rest, stop)
		}
		f.put(vm, j)
		final++
		f.cover[j] = f.covers(j)
		sum = rest + f.cover[j]
	}
	for _, vm := range vms[:final] {
		f.unsettle(vm, j)
	}
	f.cover[j] = begin
}

// same says whether it makes no difference which of two VMs of a host leaves it.
func (f *levelSearch) same(a, b int) bool {
	return f.h.f.group[a] == f.h.f.group[b] && f.h.cost[a] == f.h.cost[b]
}

// away moves a VM from its host to every other, one after the other; rest is the
// cover of all hosts but its own.
func (f *levelSearch) away(vm, from int, rest float64, stop int) {
	h := f.h
	was := f.cover[from]
	f.spent += h.cost[vm]
	f.set[vm] = true
	for _, k := range f.hosts {
		if k == from || f.fixed[k]+h.w(vm) > f.limit[k] || !fits(f.full[k]+h.m(vm), h.room[k]) || !f.may(vm, k) {
			continue
		}
		h.move(vm, k)
		f.fixed[k] += h.w(vm)
		f.full[k] += h.m(vm)
		before := f.cover[k]
		f.cover[from], f.cover[k] = f.covers(from), f.covers(k)
		f.branch(rest-before+f.cover[from]+f.cover[k], stop)
		f.cover[from], f.cover[k] = was, before
		f.fixed[k] -= h.w(vm)
		f.full[k] -= h.m(vm)
		h.move(vm, from)
		if f.left <= stop {
			break
		}
	}
	f.set[vm] = false
	f.spent -= h.cost[vm]
}

// may says whether a VM may be on a host beside those settled there.
func (f *levelSearch) may(vm, to int) bool {
	h := f.h
	if h.f.p.Hosts[to].Cordoned || !h.f.allowed(vm, to) {
		return false
	}
	if h.f.p.Rules == nil {
		return true
	}
	return !slices.ContainsFunc(h.on[to], func(o int) bool { return f.set[o] && h.f.rules.Apart(h.f.group[vm], h.f.group[o]) })
}

// leaf judges a placement that keeps to the level.
func (f *levelSearch) leaf() {
	h, s := f.h, f.s
	level, _ := h.level()
	c := candidate{at: slices.Clone(h.at), direct: s.f.cost(h.at), yield: 1 / max(1, level)}
	if s.f.p.Rules != nil {
		c.broken = s.f.broken(c.at)
	}
	if c.broken > 0 {
		return
	}
	b := f.bytes(&c)
	if f.orders && b > c.direct {
		f.left -= orderNodes
	}
	if f.orders && b >= f.minBytes {
		return // the other walk has looked at it
	}
	s.found = append(s.found, c)
	f.best, f.minBytes = &c, b
}
