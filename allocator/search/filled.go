package search

import "slices"

// filled looks for a placement that fills all equal hosts to the last, in weight and in size. Where all hosts together have
// next to nothing left over, few sets of VMs fill a host: they are listed (fillings), and steps from one set of disjoint fillings
// to the next cover more and more VMs: a filling of a VM that is not covered comes in, those that it meets go out. What a VM
// counts for rises as long as it stays uncovered and no step helps (breakout: Morris 1993). It proves nothing.
type filled struct {
	m      *Model
	order  []int32 // [item]: VM, largest weight first
	w, s   []int64 // [item]
	load   int64   // of a host, at most
	minW   int64   // of a host, at least: the others take no more
	minS   int64
	least  int64   // weight of the smallest item
	first  []int32 // [filling]: where its items begin; one more for the end
	items  []int32
	set    []int32 // items of the one that is being listed
	steps  *int64
	gaveUp bool
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
	x.least = x.w[n-1]
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
	lo, mid, light := notAbove(x.load-w), notAbove(x.minW-w-1), notAbove(x.load-w-x.least)
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

// cover is disjoint fillings, as places in the list of them, that have all items; nil: none were found.
func (f *finder) coverBy(x *filled) []int32 {
	n, fillings := len(x.order), len(x.first)-1
	with := make([][]int32, n) // [item]: fillings
	for k := range int32(fillings) {
		for _, i := range x.filling(k) {
			with[i] = append(with[i], k)
		}
	}
	on := make([]int32, n)     // [item]: filling, -1: not covered
	counts := make([]int64, n) // [item]: what it counts for
	open, at := all(n), make([]int32, n)
	until := make([]int64, fillings) // [filling]: not before this step, since it went out
	for i := range on {
		if on[i], counts[i], at[i] = -1, 1, int32(i); len(with[i]) == 0 {
			return nil
		}
	}
	cost := func(set []int32) int64 {
		c := int64(0)
		for k, i := range set {
			if on[i] < 0 {
				c -= counts[i]
				continue
			}
			if slices.ContainsFunc(set[:k], func(o int32) bool { return on[o] == on[i] }) {
				continue
			}
			for _, o := range x.filling(on[i]) {
				if !slices.Contains(set, o) {
					c += counts[o]
				}
			}
		}
		return c
	}
	for step := int64(0); len(open) > 0; step++ {
		if step&63 == 0 && f.done() || f.steps < 0 {
			return nil
		}
		item := open[f.rng.IntN(len(open))]
		best, least, ties := int32(-1), int64(0), 0
		for _, k := range with[item] {
			if until[k] > step {
				continue
			}
			c := cost(x.filling(k))
			switch {
			case best < 0 || c < least:
				best, least, ties = k, c, 1
			case c == least:
				if ties++; f.rng.IntN(ties) == 0 {
					best = k
				}
			}
		}
		f.steps -= int64(4 + 4*len(with[item]))
		if best < 0 {
			continue
		}
		if least >= 0 {
			for _, i := range open {
				counts[i]++
			}
		}
		for _, i := range x.filling(best) {
			if k := on[i]; k >= 0 {
				until[k] = step + 5 + f.rng.Int64N(10)
				for _, o := range x.filling(k) {
					on[o], at[o] = -1, int32(len(open))
					open = append(open, o)
				}
			}
		}
		for _, i := range x.filling(best) {
			last := open[len(open)-1]
			open[at[i]], at[last], on[i] = last, at[i], best
			open = open[:len(open)-1]
		}
	}
	slices.Sort(on)
	return slices.Compact(on)
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
