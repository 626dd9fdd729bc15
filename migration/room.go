package migration

import (
	"cmp"
	"math"
	"slices"
)

// room is a placement in which VMs that are new have hosts, for few bytes; nil: none was found.
// Others make room where there is none. The largest VMs are placed first. Each goes to the host
// with the lowest level that has the memory, or else to the host whose VMs that must leave, and fit
// elsewhere, cost least.
func (s *search) room() []int {
	f := s.f
	h := newShedding(s, f.home)
	h.reset()
	var fresh []int
	for vm, j := range f.home {
		if j < 0 {
			fresh = append(fresh, vm)
			h.stay[vm] = true // from its first host on
		}
	}
	slices.SortStableFunc(fresh, func(a, b int) int {
		return cmp.Or(cmp.Compare(h.m(b), h.m(a)), cmp.Compare(h.w(b), h.w(a)))
	})
	for _, vm := range fresh {
		if to := h.lowest(vm, -1); to >= 0 {
			h.move(vm, to)
		} else if !h.displace(vm) {
			return nil
		}
	}
	return slices.Clone(h.at)
}

// lowest is the host, but for one, that has room for a VM and the lowest level with it; -1: none.
func (h *shedding) lowest(vm, but int) int {
	best, level := -1, math.Inf(1)
	for k := range h.need {
		if k == but || k == h.at[vm] || !fits(h.used[k]+h.m(vm), h.room[k]) || !h.may(vm, k, -1) {
			continue
		}
		if l := (h.need[k] + h.w(vm)) / h.cpu[k]; l < level {
			best, level = k, l
		}
	}
	return best
}

// displace places a VM where others leave for it.
func (h *shedding) displace(vm int) bool {
	type clearing struct {
		host int
		out  []int
		cost float64
	}
	var found []clearing
	for k := range h.need {
		if h.m(vm) > h.room[k] || !h.may(vm, k, -1) {
			continue
		}
		var out []int
		for _, o := range h.on[k] {
			if !h.stay[o] && h.m(o) > 0 && h.at[o] == h.base[o] {
				out = append(out, o)
			}
		}
		slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(h.cost[a]*h.m(b), h.cost[b]*h.m(a)) })
		if out, cost := cover(out, h.size, h.cost, h.used[k]+h.m(vm)-h.room[k]); out != nil {
			found = append(found, clearing{k, out, cost})
		}
	}
	slices.SortStableFunc(found, func(a, b clearing) int { return cmp.Compare(a.cost, b.cost) })
	for _, w := range found {
		done := 0
		slices.SortStableFunc(w.out, func(a, b int) int { return cmp.Compare(h.m(b), h.m(a)) })
		for _, o := range w.out {
			to := h.lowest(o, w.host)
			if to < 0 {
				break
			}
			h.move(o, to)
			done++
		}
		if done == len(w.out) {
			h.move(vm, w.host)
			return true
		}
		for _, o := range w.out[:done] {
			h.move(o, w.host)
		}
	}
	return false
}
