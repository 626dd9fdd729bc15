package migration

import (
	"math"
	"slices"
)

// Where the whole front is too much work, refine walks down its lower part by a few hosts at a
// time, from a placement whose bytes are known to be fewest. It places the VMs of the host with the
// greatest level and of one to three others again, by the same branch and bound, so that these
// hosts are below that level for the fewest bytes more. Then it does the same with other small sets
// of hosts, so that bytes are saved and no level rises above the greatest.
const (
	refineNodes = 1_500_000 // for all
	subNodes    = 3_000     // for one set of hosts
	maxSub      = 16        // VMs of a set
)

// refine adds placements from one on downwards.
func (f *levelSearch) refine(from candidate, low float64) {
	h := f.h
	f.left, f.orders, f.floor = refineNodes, false, 0
	n := len(h.cpu)
	level := func() float64 { l, _ := h.level(); return l }
	f.take(from.at)
	cost := from.direct
	for f.left > 0 {
		top, a := h.level()
		if top <= low*(1+sameYield) {
			return
		}
		// Down.
		var best []int
		lower, lowest := math.Inf(1), top
		try := func(set []int) {
			at, extra := f.replace(set, top*(1-sameYield), lower+1e-9*lower)
			if at == nil {
				return
			}
			was := h.at
			f.take(at)
			l := level()
			if extra < lower*(1-sameBytes) || extra <= lower*(1+sameBytes) && l < lowest {
				best, lower, lowest = at, extra, l
			}
			f.take(was)
		}
		for size := 2; size <= 4 && f.left > 0; size++ {
			if size == 4 && best != nil {
				break
			}
			subsets(a, n, size, func(set []int) bool { try(set); return f.left > 0 })
		}
		if best == nil {
			return
		}
		f.take(best)
		cost += lower
		// Cheaper.
		t := level()
		for better := true; better && f.left > 0; {
			better = false
			for j := range n {
				for size := 2; size <= 3; size++ {
					subsets(j, n, size, func(set []int) bool {
						if slices.Min(set) != j {
							return f.left > 0
						}
						if at, extra := f.replace(set, t, -sameBytes*cost); at != nil {
							f.take(at)
							cost += extra
							better = true
						}
						return f.left > 0
					})
				}
			}
		}
		c := candidate{at: slices.Clone(h.at), direct: f.s.f.cost(h.at), yield: 1 / max(1, level())}
		cost = c.direct
		f.s.found = append(f.s.found, c)
		// What is known already may be better.
		for i := range f.s.found {
			if o := &f.s.found[i]; o.broken == 0 && o.missing == 0 && o.yield >= c.yield && o.direct < c.direct*(1-sameBytes) {
				c = *o
			}
		}
		if c.direct < cost {
			f.take(c.at)
			cost = c.direct
		}
	}
}

// subsets calls f with every set of so many hosts that has j in it, until it says no.
func subsets(j, n, size int, f func(set []int) bool) {
	set := make([]int, 1, size)
	set[0] = j
	var grow func(from int) bool
	grow = func(from int) bool {
		if len(set) == size {
			return f(set)
		}
		for k := from; k < n; k++ {
			if k == j {
				continue
			}
			set = append(set, k)
			ok := grow(k + 1)
			set = set[:len(set)-1]
			if !ok {
				return false
			}
		}
		return true
	}
	grow(0)
}

// take makes a placement the one that is looked at.
func (f *levelSearch) take(at []int) {
	h := f.h
	h.at = slices.Clone(at)
	clear(h.need)
	clear(h.used)
	for j := range h.on {
		h.on[j] = h.on[j][:0]
	}
	for vm, j := range at {
		h.on[j] = append(h.on[j], vm)
		h.need[j] += h.w(vm)
		h.used[j] += h.m(vm)
	}
}

// replace is a placement in which the VMs of some hosts are placed again such that none of these is
// above level t, and the bytes that it costs more, which are below highest; nil: none is found.
func (f *levelSearch) replace(set []int, t, highest float64) (at []int, extra float64) {
	h := f.h
	vms := 0
	for _, j := range set {
		vms += len(h.on[j])
	}
	if vms > maxSub {
		return nil, 0
	}
	was := slices.Clone(h.at)
	paid := 0.0 // for VMs of the set that are away from a host of the set
	f.hosts, f.loose, f.spent = set, f.loose[:0], 0
	for _, j := range set {
		for _, vm := range slices.Clone(h.on[j]) {
			switch base := h.base[vm]; {
			case base == j:
			case slices.Contains(set, base):
				paid += h.cost[vm]
			default:
				f.loose = append(f.loose, vm)
			}
		}
	}
	for _, j := range set {
		h.on[j], h.need[j], h.used[j], f.fixed[j], f.full[j] = h.on[j][:0], 0, 0, 0, 0
		f.limit[j] = t * h.cpu[j] * above
	}
	for vm, j := range was {
		f.set[vm] = true
		if !slices.Contains(set, j) {
			continue
		}
		if base := h.base[vm]; slices.Contains(set, base) {
			h.at[vm] = base
			h.on[base] = append(h.on[base], vm)
			h.need[base] += h.w(vm)
			h.used[base] += h.m(vm)
			if f.set[vm] = h.stay[vm]; h.stay[vm] {
				f.fixed[base] += h.w(vm)
				f.full[base] += h.m(vm)
			}
		} else {
			h.at[vm] = -1
		}
	}
	slices.SortStableFunc(f.loose, func(a, b int) int {
		switch {
		case h.w(a) > h.w(b):
			return -1
		case h.w(a) < h.w(b):
			return 1
		}
		return 0
	})
	sum := 0.0
	for _, j := range set {
		f.cover[j] = f.covers(j)
		sum += f.cover[j]
	}
	f.minBytes = paid + highest
	f.note = func() {
		if f.spent < f.minBytes {
			at, extra, f.minBytes = slices.Clone(h.at), f.spent-paid, f.spent
		}
	}
	f.branch(sum, max(0, f.left-subNodes))
	f.take(was)
	return at, extra
}

// place puts the first loose VM on every host, one after the other.
func (f *levelSearch) place(sum float64, stop int) {
	h := f.h
	vm, rest := f.loose[0], f.loose
	f.loose = f.loose[1:]
	for _, k := range f.hosts {
		if f.fixed[k]+h.w(vm) > f.limit[k] || !fits(f.full[k]+h.m(vm), h.room[k]) || !f.may(vm, k) {
			continue
		}
		h.at[vm] = -1
		h.move(vm, k)
		f.put(vm, k)
		before := f.cover[k]
		f.cover[k] = f.covers(k)
		f.branch(sum-before+f.cover[k], stop)
		f.cover[k] = before
		f.unsettle(vm, k)
		f.set[vm] = true
		h.on[k] = slices.DeleteFunc(h.on[k], func(o int) bool { return o == vm })
		h.need[k] -= h.w(vm)
		h.used[k] -= h.m(vm)
		h.at[vm] = -1
	}
	f.loose = rest
}
