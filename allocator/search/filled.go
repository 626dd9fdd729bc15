package search

import (
	"math/rand/v2"
	"slices"
)

// filled looks for a placement that fills all equal hosts to the last, in weight and in size. Where all hosts together have
// next to nothing left over, few sets of VMs fill a host: they are listed (fillings), and steps from one set of disjoint fillings
// to the next cover more and more VMs: a filling of a VM that is not covered comes in, those that it meets go out. What a VM
// counts for rises as long as it stays uncovered and no step helps (breakout: Morris 1993). It proves nothing.
type filled struct {
	m        *Model
	order    []int32 // [item]: VM, largest weight first
	w, s     []int64 // [item]
	load     int64   // of a host, at most
	minW     int64   // of a host, at least: the others take no more
	minS     int64
	lightest int64   // weight of the item of least weight
	first    []int32 // [filling]: where its items begin; one more for the end
	items    []int32
	set      []int32 // items of the one that is being listed
	steps    *int64
	gaveUp   bool
}

// maxFillings bounds the memory for fillings.
const maxFillings = 1 << 18

// fillings lists what fills a host at a level; nil: too many, too much work, or the hosts have more left over.
func (f *finder) fillings(t float64) *filled {
	m := f.m
	n, h := int64(len(m.Weight)), int64(len(m.CPU))
	if m.Rules != nil || h < 2 || n > 16*h || !uniform(m.CPU) || !uniform(m.Memory) {
		return nil
	}
	load := under(m.CPU[0], t, true)
	weight, size := int64(0), int64(0)
	for i, w := range m.Weight {
		weight += w
		size += m.Size[i]
	}
	if load >= unlimited/h || m.Memory[0] >= unlimited/h {
		return nil
	}
	// With so little left over no h+1 fillings are disjoint: what one lacks is at most what all lack.
	overW, overS := h*load-weight, h*m.Memory[0]-size
	if overW < 0 || overS < 0 || overW > load/(h+2) || overS > m.Memory[0]/(h+2) {
		return nil
	}
	x := &filled{m: m, order: all(int(n)), load: load, minW: load - overW, minS: m.Memory[0] - overS, steps: &f.steps}
	slices.SortStableFunc(x.order, func(a, b int32) int {
		switch {
		case m.Weight[a] > m.Weight[b]:
			return -1
		case m.Weight[a] < m.Weight[b]:
			return 1
		}
		return 0
	})
	x.w, x.s = make([]int64, n), make([]int64, n)
	for i, vm := range x.order {
		x.w[i], x.s[i] = m.Weight[vm], m.Size[vm]
	}
	x.lightest = x.w[n-1]
	x.grow(0, 0, 0)
	x.first = append(x.first, int32(len(x.items)))
	if x.gaveUp {
		return nil
	}
	return x
}

// grow lists the set, of weight w and size s, and all with more items from on.
func (x *filled) grow(from int, w, s int64) {
	if *x.steps--; *x.steps < 0 || len(x.first) == maxFillings {
		x.gaveUp = true
		return
	}
	if w >= x.minW && s >= x.minS {
		x.first = append(x.first, int32(len(x.items)))
		x.items = append(x.items, x.set...)
	}
	n := len(x.w)
	// Of the items that are not too heavy, those between enough and so light that the smallest fits beside lead nowhere.
	notAbove := func(limit int64) int {
		at, _ := slices.BinarySearchFunc(x.w[from:], limit, func(w, limit int64) int {
			if w > limit {
				return -1
			}
			return 1
		})
		return from + at
	}
	lo, mid, light := notAbove(x.load-w), notAbove(x.minW-w-1), notAbove(x.load-w-x.lightest)
	*x.steps -= 2
	for i := lo; i < n && !x.gaveUp; i++ {
		if i == mid && light > mid {
			if i = light; i >= n {
				break
			}
		}
		if *x.steps--; s+x.s[i] <= x.m.Memory[0] {
			x.set = append(x.set, int32(i))
			x.grow(i+1, w+x.w[i], s+x.s[i])
			x.set = x.set[:len(x.set)-1]
		}
	}
}

func (x *filled) filling(k int32) []int32 { return x.items[x.first[k]:x.first[k+1]] }

// covering is a set of disjoint fillings.
type covering struct {
	x      *filled
	with   [][]int32 // [item]: fillings
	on     []int32   // [item]: filling, -1: not covered
	counts []int64   // [item]: what it counts for
	open   []int32   // items that are not covered
	at     []int32   // [item]: place in open
	until  []int64   // [filling]: not before this step, since it went out
}

// coveringOf is the empty set; nil if some item has no filling.
func coveringOf(x *filled) *covering {
	n, fillings := len(x.order), len(x.first)-1
	c := &covering{x: x, with: make([][]int32, n), on: make([]int32, n), counts: make([]int64, n), open: all(n), at: all(n), until: make([]int64, fillings)}
	for k := range int32(fillings) {
		for _, i := range x.filling(k) {
			c.with[i] = append(c.with[i], k)
		}
	}
	for i := range c.on {
		if c.on[i], c.counts[i] = -1, 1; len(c.with[i]) == 0 {
			return nil
		}
	}
	return c
}

// cost is what a filling uncovers less what it covers.
func (c *covering) cost(k int32) int64 {
	sum, set := int64(0), c.x.filling(k)
	for at, i := range set {
		if c.on[i] < 0 {
			sum -= c.counts[i]
			continue
		}
		if slices.ContainsFunc(set[:at], func(o int32) bool { return c.on[o] == c.on[i] }) {
			continue
		}
		for _, o := range c.x.filling(c.on[i]) {
			if !slices.Contains(set, o) {
				sum += c.counts[o]
			}
		}
	}
	return sum
}

// enter takes a filling in, and out those that it meets, for some steps.
func (c *covering) enter(k int32, step int64, rng *rand.Rand) {
	for _, i := range c.x.filling(k) {
		if k := c.on[i]; k >= 0 {
			c.until[k] = step + 5 + rng.Int64N(10)
			for _, o := range c.x.filling(k) {
				c.on[o], c.at[o] = -1, int32(len(c.open))
				c.open = append(c.open, o)
			}
		}
	}
	for _, i := range c.x.filling(k) {
		last := c.open[len(c.open)-1]
		c.open[c.at[i]], c.at[last], c.on[i] = last, c.at[i], k
		c.open = c.open[:len(c.open)-1]
	}
}

// coverBy is disjoint fillings, as places in the list of them, that have all items; nil: none were found.
func (f *finder) coverBy(x *filled) []int32 {
	c := coveringOf(x)
	if c == nil {
		return nil
	}
	for step := int64(0); len(c.open) > 0; step++ {
		if step&63 == 0 && f.done() || f.steps < 0 {
			return nil
		}
		item := c.open[f.rng.IntN(len(c.open))]
		best, minCost, ties := int32(-1), int64(0), 0
		for _, k := range c.with[item] {
			if c.until[k] > step {
				continue
			}
			switch cost := c.cost(k); {
			case best < 0 || cost < minCost:
				best, minCost, ties = k, cost, 1
			case cost == minCost:
				if ties++; f.rng.IntN(ties) == 0 {
					best = k
				}
			}
		}
		f.steps -= int64(4 + 4*len(c.with[item]))
		if best < 0 {
			continue
		}
		if minCost >= 0 {
			for _, i := range c.open {
				c.counts[i]++
			}
		}
		c.enter(best, step, f.rng)
	}
	slices.Sort(c.on)
	return slices.Compact(c.on)
}

// fill is a placement at a level where all hosts must be filled for it, or nil.
func (f *finder) fill(t float64) *placement {
	var p *placement
	f.spend(f.steps/2, func() {
		x := f.fillings(t)
		if x == nil {
			return
		}
		chosen := f.coverBy(x)
		if chosen == nil || len(chosen) > len(f.m.CPU) {
			return
		}
		p = newPlacement(f.m)
		for j, k := range chosen {
			for _, i := range x.filling(k) {
				p.put(x.order[i], int32(j))
			}
		}
	})
	return p
}
