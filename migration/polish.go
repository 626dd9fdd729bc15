package migration

import (
	"math"
	"slices"
)

// Near the average level no packing in one go leaves every host equally full.
// Polishing takes the host with the greatest level again and again, and lets it
// give a VM, or exchange two, such that the greater level of the two hosts
// becomes as low as can be; or, if both come to the average that way, for the fewest
// bytes. Some of the placements on the way are candidates.
const (
	partners   = 12 // hosts with the lowest levels that are looked at, and as many others
	evenEnough = 1.0003
	maxPolish  = 60_000_000 // pairs of VMs looked at, about
	stride     = 0.4        // part of the way to the wanted level that is as good as more, if it costs less
	fewHosts   = 200        // all of which are asked where no partner helps
	everyStep  = 0.004      // part by which a level must have fallen for a new candidate
)

// tight are the levels from which polishing begins, as parts of the way from the
// average to the present level, besides the average; tightOfMany are those of
// more than fewHosts.
var (
	tight       = []float64{0.04, 0.025, 0.015, 0.01, 0.006, 0.003}
	tightOfMany = []float64{0.03}
)

// polish brings the levels to goal, as far as it can. Candidates are below top.
func (h *shedding) polish(s *search, goal, top float64, found func(at []int, level float64) int) {
	mark := top
	h.lower(s, goal, func(l float64) {
		if l < mark*(1-everyStep) && l > goal {
			mark = l
			found(slices.Clone(h.at), max(1, l))
		}
	})
	if l, _ := h.level(); l < top {
		h.takeBack(max(1, l))
		found(slices.Clone(h.at), max(1, l))
	}
}

// lower lowers the greatest level to goal, as far as it can, and reports every level on the way.
func (h *shedding) lower(s *search, goal float64, report func(level float64)) {
	n := len(h.need)
	perHost := 1 + len(h.base)/n
	random := uint64(1)
	work := perHost*perHost*partners + n/20 // steps: pairs of VMs, and the ranking
	h.rank.sort(h)
	for rounds := min(8*n, maxPolish/(2*work)); rounds >= 0; rounds-- {
		l, j := h.rank.top()
		report(l)
		if l <= goal || s.done(int64(work)) {
			break
		}
		next := l - (l-goal)*stride
		k := h.even(j, l, next, h.partners(j, &random))
		if k < 0 && n <= fewHosts {
			k = h.even(j, l, next, h.others(j))
		}
		if k < 0 {
			break
		}
		h.rank.update(h, j)
		h.rank.update(h, k)
	}
}

func (h *shedding) others(j int) []int {
	all := make([]int, 0, len(h.need))
	for k := range h.need {
		if k != j {
			all = append(all, k)
		}
	}
	return all
}

// partners of a host, by the ranking, are those with the lowest levels, and some others.
func (h *shedding) partners(j int, random *uint64) []int {
	n := len(h.need)
	if n <= 2*partners {
		return h.others(j)
	}
	lowest := make([]int, 0, 2*partners)
	for i := 0; len(lowest) < partners; i++ {
		if k := h.rank.hosts[i].host; k != j {
			lowest = append(lowest, k)
		}
	}
	for range partners {
		*random = *random*6364136223846793005 + 1442695040888963407
		if k := int(*random>>33) % n; k != j && !slices.Contains(lowest, k) {
			lowest = append(lowest, k)
		}
	}
	return lowest
}

// even is one exchange of host j, at level now, with one of its partners, which it returns; -1: none helps.
func (h *shedding) even(j int, now, goal float64, with []int) int {
	best, to, back := -1, -1, -1
	score, cost := now*(1-1e-9), math.Inf(1)
	consider := func(a, k, b int) {
		d, m, c := h.w(a), h.m(a), h.extra(a, k)
		if b >= 0 {
			d -= h.w(b)
			m -= h.m(b)
			c += h.extra(b, j)
		}
		worst := max((h.need[j]-d)/h.cpu[j], (h.need[k]+d)/h.cpu[k])
		worst = max(worst, goal)
		if worst > score || worst == score && c >= cost {
			return
		}
		if !fits(h.used[k]+m, h.room[k]) || m < 0 && !fits(h.used[j]-m, h.room[j]) || !h.may(a, k, b) || b >= 0 && !h.may(b, j, a) {
			return
		}
		best, to, back, score, cost = a, k, b, worst, c
	}
	for _, k := range with {
		for _, a := range h.on[j] {
			if h.stay[a] || h.w(a) == 0 {
				continue
			}
			consider(a, k, -1)
			for _, b := range h.on[k] {
				if h.w(b) < h.w(a) && !h.stay[b] {
					consider(a, k, b)
				}
			}
		}
	}
	if best >= 0 {
		h.swap(best, to, back, j)
	}
	return to
}

// extra is what it costs more if a VM goes to a host from where it is now.
func (h *shedding) extra(vm, to int) float64 {
	switch h.base[vm] {
	case to:
		return -h.cost[vm]
	case h.at[vm]:
		return h.cost[vm]
	}
	return 0
}
