package migration

import (
	"cmp"
	"math"
	"slices"
)

// shed finds placements with few moves, for one level after another from the
// present one down to the average: the level of a host is what its VMs need over
// what it has, and the minimum yield is 1 over the greatest. Every host above the
// level gives away VMs that cost least together; they are packed, largest first,
// where least is left; and where one fits nowhere two hosts exchange VMs. Last,
// VMs whose home can do with them after all go back.
//
// None of the levels hangs on a budget. Every placement on the way is a candidate.
type shed struct {
	f            *fleet
	weight, size []float64 // [vm]: CPU, memory
	room         []float64 // [host]: memory
	cpu          []float64
	base         []int     // [vm]: where it is, or, if it is new, would be without moves
	cost         []float64 // [vm]: 0 if it is new
	idle         []float64 // [vm]: cost per need
	stay         []bool    // [vm]

	was  [][]int   // [host]: VMs in base, cheapest per need first
	load []float64 // of base
	full []float64

	at   []int
	on   [][]int
	need []float64
	used []float64
}

func newShed(s *search, base []int) *shed {
	f := s.f
	n := len(f.p.Hosts)
	h := &shed{f: f, room: make([]float64, n), cpu: make([]float64, n), base: base, weight: make([]float64, len(base)), size: make([]float64, len(base)), cost: slices.Clone(f.bytes), idle: make([]float64, len(base)), stay: slices.Clone(f.held),
		was: make([][]int, n), load: make([]float64, n), full: make([]float64, n)}
	for j := range h.room {
		h.room[j], h.cpu[j] = s.p.Hosts[j].Memory, f.p.Hosts[j].CPU
	}
	for vm, j := range base {
		if f.home[vm] < 0 {
			h.cost[vm] = 0
		}
		x := f.of(vm)
		h.weight[vm], h.size[vm] = x.CPU, x.Memory
		h.idle[vm] = math.Inf(1)
		if x.CPU > 0 {
			h.idle[vm] = h.cost[vm] / x.CPU
		}
		if j < 0 {
			continue
		}
		h.was[j] = append(h.was[j], vm)
		h.load[j] += x.CPU
		h.full[j] += x.Memory
	}
	for j := range h.was {
		slices.SortStableFunc(h.was[j], func(a, b int) int { return cmp.Compare(h.idle[a], h.idle[b]) })
	}
	return h
}

func (h *shed) w(vm int) float64 { return h.weight[vm] }
func (h *shed) m(vm int) float64 { return h.size[vm] }

// level is the greatest level now.
func (h *shed) level() (level float64, host int) {
	for j := range h.need {
		if l := h.need[j] / h.cpu[j]; l > level {
			level, host = l, j
		}
	}
	return level, host
}

// levels are how many levels are tried.
func (h *shed) levels() int {
	switch n := len(h.base); {
	case n <= 2000:
		return 160
	case n <= 20_000:
		return 120
	}
	return 40
}

// run calls found for every placement; it may keep it.
func (h *shed) run(found func(at []int, level float64)) {
	total, cpu := 0.0, 0.0
	h.reset()
	for j := range h.load {
		total += h.load[j]
		cpu += h.cpu[j]
	}
	top, _ := h.level()
	low := max(1, total/cpu)
	if top <= low {
		return
	}
	k := h.levels()
	for i := 1; i <= k; i++ {
		h.reset()
		h.reach(top - (top-low)*float64(i)/float64(k))
		l, _ := h.level()
		if l = max(l, 1); l >= top {
			continue
		}
		h.takeBack(l)
		found(slices.Clone(h.at), l)
	}
	for _, share := range tight {
		h.reset()
		t := low + (top-low)*share
		h.reach(t)
		h.polish(max(t, low*evenEnough), top, found)
	}
}

func (h *shed) reset() {
	h.at = slices.Clone(h.base)
	h.need = append(h.need[:0], h.load...)
	h.used = append(h.used[:0], h.full...)
	if h.on == nil {
		h.on = make([][]int, len(h.was))
	}
	for j := range h.on {
		h.on[j] = append(h.on[j][:0], h.was[j]...)
	}
}

// may tells whether a VM may be on a host beside those that are there, the one
// that goes away in exchange (-1: none) not counted. Memory is another matter.
func (h *shed) may(vm, to, but int) bool {
	f := h.f
	if to == h.base[vm] && f.home[vm] < 0 || to == f.home[vm] {
		return !h.conflict(vm, to, but)
	}
	return !f.p.Hosts[to].Cordoned && f.rules.Allowed(f.group[vm], to) && !h.conflict(vm, to, but)
}

func (h *shed) conflict(vm, to, but int) bool {
	if h.f.p.Rules == nil {
		return false
	}
	return slices.ContainsFunc(h.on[to], func(o int) bool { return o != but && o != vm && h.f.rules.Apart(h.f.group[vm], h.f.group[o]) })
}

func (h *shed) move(vm, to int) {
	if from := h.at[vm]; from >= 0 {
		if i := slices.Index(h.on[from], vm); i >= 0 {
			h.on[from] = slices.Delete(h.on[from], i, i+1)
		}
		h.need[from] -= h.w(vm)
		h.used[from] -= h.m(vm)
	}
	h.on[to] = append(h.on[to], vm)
	h.need[to] += h.w(vm)
	h.used[to] += h.m(vm)
	h.at[vm] = to
}

// mostExchanges is how often two hosts exchange VMs at one level.
const mostExchanges = 12

// above is how far a load may pass a level: rounding of sums.
const above = 1 + 1e-12

// reach tries to bring every host to level t.
func (h *shed) reach(t float64) {
	var away []int
	for j := range h.need {
		if excess := h.need[j] - t*h.cpu[j]*above; excess > 0 {
			away = append(away, h.cheapest(j, excess)...)
		}
	}
	slices.SortStableFunc(away, func(a, b int) int { return cmp.Compare(h.w(b), h.w(a)) })
	// The CPU of those that go is free for others at once, their memory as soon
	// as they have found a host.
	for _, vm := range away {
		h.need[h.at[vm]] -= h.w(vm)
	}
	left := func(k int) float64 { return t*h.cpu[k]*above - h.need[k] }
	order := make([]int, len(h.need)) // least left first
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(left(a), left(b)) })
	at := func(l float64) int {
		i, _ := slices.BinarySearchFunc(order, l, func(k int, l float64) int { return cmp.Compare(left(k), l) })
		return i
	}
	for _, vm := range away {
		from := h.at[vm]
		h.need[from] += h.w(vm)
		for i := at(h.w(vm)); i < len(order); i++ {
			k := order[i]
			if k == from || !fits(h.used[k]+h.m(vm), h.room[k]) || !h.may(vm, k, -1) {
				continue
			}
			order = slices.Delete(order, i, i+1)
			h.need[from] -= h.w(vm) // as the order has it
			to := at(left(k) - h.w(vm))
			h.need[from] += h.w(vm)
			h.move(vm, k)
			order = slices.Insert(order, to, k)
			break
		}
		if h.at[vm] != from {
			continue
		}
		// It stays, and its host has less left.
		i := slices.Index(order, from)
		order = slices.Delete(order, i, i+1)
		order = slices.Insert(order, at(left(from)), from)
	}
	random := uint64(1)
	for range mostExchanges {
		l, j := h.level()
		if l <= t*above || !h.exchange(j, t, h.partners(j, &random)) {
			return
		}
	}
}

// cheapest is VMs of a host, at home all of them, that cost least among those
// looked at and need as much as is too much together.
func (h *shed) cheapest(j int, excess float64) []int {
	var vms []int
	for _, vm := range h.on[j] {
		if !h.stay[vm] && h.w(vm) > 0 {
			vms = append(vms, vm)
		}
	}
	best, _ := cover(vms, h.weight, h.cost, excess)
	return best
}

// cover is some of the VMs, given by cost per weight, that weigh excess or more
// together, and their cost: the first of them, and one or two others that bring
// what then lacks. nil: all together weigh less.
func cover(vms []int, weight, cost []float64, excess float64) (best []int, least float64) {
	least = math.Inf(1)
	take := func(prefix []int, c float64, more ...int) {
		for _, vm := range more {
			c += cost[vm]
		}
		if c < least {
			best, least = append(slices.Clone(prefix), more...), c
		}
	}
	sum := 0.0
	for n := 0; n <= len(vms) && sum < least; n++ {
		rest := vms[n:]
		if excess <= 0 {
			take(vms[:n], sum)
			break
		}
		for i, a := range rest {
			if sum+cost[a] >= least {
				continue
			}
			if weight[a] >= excess {
				take(vms[:n], sum, a)
				continue
			}
			for _, b := range rest[i+1:] {
				if weight[a]+weight[b] >= excess && sum+cost[a]+cost[b] < least {
					take(vms[:n], sum, a, b)
				}
			}
		}
		if n < len(vms) {
			sum += cost[vms[n]]
			excess -= weight[vms[n]]
		}
	}
	return best, least
}

// exchange moves a VM off a host, in return for another if need be, such that it
// and the other host end at level t or below, for the fewest bytes.
func (h *shed) exchange(j int, t float64, with []int) bool {
	best, cost, to, back := -1, math.Inf(1), -1, -1
	high := t * h.cpu[j] * above
	for _, a := range h.on[j] {
		if h.stay[a] || h.need[j]-h.w(a) > high && h.need[j] <= high {
			continue
		}
		for _, k := range with {
			limit := t * h.cpu[k] * above
			c := h.extra(a, k)
			if c < cost && h.need[j]-h.w(a) <= high && h.need[k]+h.w(a) <= limit && fits(h.used[k]+h.m(a), h.room[k]) && h.may(a, k, -1) {
				best, cost, to, back = a, c, k, -1
			}
			for _, b := range h.on[k] {
				d := h.w(a) - h.w(b)
				if d <= 0 || h.stay[b] || h.need[j]-d > high || h.need[k]+d > limit || c+h.extra(b, j) >= cost {
					continue
				}
				if fits(h.used[k]+h.m(a)-h.m(b), h.room[k]) && fits(h.used[j]-h.m(a)+h.m(b), h.room[j]) && h.may(a, k, b) && h.may(b, j, a) {
					best, cost, to, back = a, c+h.extra(b, j), k, b
				}
			}
		}
	}
	if best < 0 {
		return false
	}
	if back >= 0 {
		h.move(back, j)
	}
	h.move(best, to)
	return true
}

// takeBack lets VMs stay at home where the level allows it, the dearest first.
func (h *shed) takeBack(level float64) {
	var gone []int
	for vm, j := range h.at {
		if h.base[vm] != j {
			gone = append(gone, vm)
		}
	}
	slices.SortStableFunc(gone, func(a, b int) int { return cmp.Compare(h.cost[b], h.cost[a]) })
	for _, vm := range gone {
		if j := h.base[vm]; h.need[j]+h.w(vm) <= level*h.cpu[j]*above && fits(h.used[j]+h.m(vm), h.room[j]) && h.may(vm, j, -1) {
			h.move(vm, j)
		}
	}
}
