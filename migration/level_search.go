package migration

import (
	"cmp"
	"math"
	"slices"
)

// shedding finds placements with few moves, for one level after another from the
// present one down to the average: the level of a host is what its VMs need over
// what it has, and the minimum yield is 1 over the greatest. Every host above the
// level gives away the VMs that together cost least. They are packed, largest first,
// where least is left; where one fits nowhere two hosts exchange VMs. Last,
// VMs that fit on their present hosts after all go back.
//
// These levels do not depend on a budget; useBudget adds some that do. Every placement on the way is a candidate.
type shedding struct {
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

	at    []int
	on    [][]int
	need  []float64
	used  []float64
	order []freeCPU
	rank  ranking // while hosts exchange VMs
}

// freeCPU is the CPU that a host has left.
type freeCPU struct {
	cpu  float64
	host int
}

func newShedding(s *search, base []int) *shedding {
	f := s.f
	n := len(f.p.Hosts)
	h := &shedding{f: f, room: make([]float64, n), cpu: make([]float64, n), base: base, weight: make([]float64, len(base)), size: make([]float64, len(base)), cost: slices.Clone(f.bytes), idle: make([]float64, len(base)), stay: slices.Clone(f.pinned),
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

func (h *shedding) w(vm int) float64 { return h.weight[vm] }
func (h *shedding) m(vm int) float64 { return h.size[vm] }

// level is the greatest level now.
func (h *shedding) level() (level float64, host int) {
	for j := range h.need {
		if l := h.need[j] / h.cpu[j]; l > level {
			level, host = l, j
		}
	}
	return level, host
}

// levels returns how many levels run tries: the first ones at even distances, and all together. The
// rest go where gain is greatest.
func (h *shedding) levels() (first, all int) {
	switch n := len(h.base); {
	case n <= 2000:
		return 16, 160
	case n <= 20_000:
		return 12, 160
	}
	return 8, 32
}

// minStep is the least distance of two levels, as a part of the average.
const minStep = 0.002

// tried is one level and what came of it.
type tried struct {
	t     float64
	yield float64
	cost  float64
	found int // where it is among the candidates found, -1: nowhere
}

// reached reports whether every host came to the level.
func (r *tried) reached() bool { return r.yield*r.t >= 1-sameYield }

// gain estimates what a placement between two levels is worth: the relative yield that budgets between them lose, weighed by the root
// of the logarithm of the ratio of these budgets, so that neither small nor large budgets get most placements. Where the lower level
// b was not reached, the next placement is assumed to cost up to unknown times the bytes of a.
func gain(a, b tried, total float64) float64 {
	const (
		small   = 0.002 // part of all bytes below which budgets are of no interest
		unknown = 1.1   // times the bytes of the last level reached that the next may cost
	)
	cost := max(a.cost, b.cost)
	if !b.reached() {
		cost = max(cost, a.cost*unknown)
	}
	return max(0, 1/b.t-a.yield) / a.yield * math.Sqrt(math.Log((cost+small*total)/(a.cost+small*total)))
}

// run calls found with every placement, which found may keep, and then returns where it is among the candidates (-1: not kept). It
// ends early when s is done.
func (h *shedding) run(s *search, found func(at []int, level float64) int) {
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
	try := func(t float64) tried {
		h.begin(s, t)
		out := h.end(t, top)
		if out.yield > 1/top {
			out.found = found(slices.Clone(h.at), 1/out.yield)
		}
		return out
	}
	first, all := h.levels()
	row := []tried{{top, 1 / top, 0, -1}} // by falling level
	for i := 1; i <= first && !s.ended; i++ {
		row = append(row, try(top-(top-low)*float64(i)/float64(first)))
	}
	polish := func(share float64) {
		if s.ended {
			return
		}
		t := low + (top-low)*share
		h.begin(s, t)
		h.polish(s, max(t, low*evenEnough), top, found)
	}
	h.useBudget(s, row, low, found, func() { polish(0) }) // what many bytes would do is known early
	for range all - first {
		if s.ended {
			return
		}
		best, highest := -1, 0.0
		for i := range row[1:] {
			if g := gain(row[i], row[i+1], s.f.total); g > highest && row[i].t-row[i+1].t > low*minStep {
				best, highest = i, g
			}
		}
		if best < 0 {
			break
		}
		row = slices.Insert(row, best+1, try((row[best].t+row[best+1].t)/2))
	}
	shares := tight
	if len(h.need) > fewHosts {
		shares = tightOfMany
	}
	for _, share := range shares {
		polish(share)
	}
}

// begin starts from base and tries to bring every host to level t.
func (h *shedding) begin(s *search, t float64) {
	h.reset()
	s.done(int64(12*len(h.base)+20*len(h.cpu)) + h.reach(t)/pairsPerStep)
}

// end is what came of level t, after VMs that need not move went back. Nothing moves if level top was not left.
func (h *shedding) end(t, top float64) tried {
	l, _ := h.level()
	if l = max(l, 1); l >= top {
		return tried{t, 1 / top, 0, -1}
	}
	h.takeBack(l)
	cost := 0.0
	for vm, j := range h.at {
		if j != h.base[vm] {
			cost += h.cost[vm]
		}
	}
	return tried{t, 1 / l, cost, -1}
}

func (h *shedding) reset() {
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

// may reports whether a VM may be on a host beside the VMs there, except the VM but, which leaves
// in exchange (-1: none). It does not check memory.
func (h *shedding) may(vm, to, but int) bool {
	f := h.f
	if to == h.base[vm] && f.home[vm] < 0 || to == f.home[vm] {
		return !h.conflict(vm, to, but)
	}
	return !f.p.Hosts[to].Cordoned && f.allowed(vm, to) && !h.conflict(vm, to, but)
}

func (h *shedding) conflict(vm, to, but int) bool {
	if h.f.p.Rules == nil {
		return false
	}
	return slices.ContainsFunc(h.on[to], func(o int) bool { return o != but && o != vm && h.f.rules.Apart(h.f.group[vm], h.f.group[o]) })
}

func (h *shedding) move(vm, to int) {
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

// ascending compares numbers, none of which is NaN, and then what else differs.
func ascending(a, b float64, other int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return other
}

const (
	// maxExchanges is how often two hosts of a small cluster exchange VMs at one level.
	maxExchanges = 12
	// maxPairs is how many pairs of VMs and hosts are compared at one level before no host comes a part of the way to it any more.
	maxPairs = 3_000_000
	// fewOver is the divisor of the number of hosts: where more of them are above a level, as near the average, none comes a part of
	// the way to it.
	fewOver = 6
	// pairsPerStep is how many pairs are compared in the time of one step.
	pairsPerStep = 4
)

// above is the factor by which a load may pass a level: the rounding of sums.
const above = 1 + 1e-12

// reach tries to bring every host to level t, and returns how many pairs of VMs it compared for that.
func (h *shedding) reach(t float64) (pairs int64) {
	var away []int
	for j := range h.need {
		if excess := h.need[j] - t*h.cpu[j]*above; excess > 0 {
			away = append(away, h.cheapest(j, excess)...)
		}
	}
	slices.SortFunc(away, func(a, b int) int { return ascending(h.weight[b], h.weight[a], a-b) })
	// The CPU of VMs that leave is free for others at once. Their memory is free once they have
	// found a host.
	for _, vm := range away {
		h.need[h.at[vm]] -= h.w(vm)
	}
	order := h.order[:0] // least left first
	for k, need := range h.need {
		order = append(order, freeCPU{t*h.cpu[k]*above - need, k})
	}
	h.order = order
	slices.SortFunc(order, func(a, b freeCPU) int { return ascending(a.cpu, b.cpu, a.host-b.host) })
	// lower moves the host at place i, which has only so much CPU left now, to its place in order.
	lower := func(i int, cpu float64) {
		x := freeCPU{cpu, order[i].host}
		to, _ := slices.BinarySearchFunc(order[:i], x, func(o, x freeCPU) int { return cmp.Compare(o.cpu, x.cpu) })
		copy(order[to+1:i+1], order[to:i])
		order[to] = x
	}
	for _, vm := range away {
		from, w := h.at[vm], h.w(vm)
		h.need[from] += w
		i, _ := slices.BinarySearchFunc(order, w, func(o freeCPU, w float64) int { return cmp.Compare(o.cpu, w) })
		for ; i < len(order); i++ {
			k := order[i].host
			if k == from || !fits(h.used[k]+h.m(vm), h.room[k]) || !h.may(vm, k, -1) {
				continue
			}
			lower(i, order[i].cpu-w)
			h.move(vm, k)
			break
		}
		if h.at[vm] != from {
			continue
		}
		// It stays, and its host has less left.
		i = slices.IndexFunc(order, func(o freeCPU) bool { return o.host == from })
		lower(i, order[i].cpu-w)
	}
	return h.exchanges(t)
}

// exchanges lets the fullest host above level t give a VM to another, or exchange two, so that both end at t or below, until no host is
// above. Where there is no such exchange, one makes the fuller of the two less full. It returns how many pairs it compared.
func (h *shedding) exchanges(t float64) (pairs int64) {
	n, over := len(h.need), 0
	for j := range h.need {
		if h.need[j] > t*h.cpu[j]*above {
			over++
		}
	}
	if over == 0 {
		return 0
	}
	rounds, parts := maxExchanges+n/8, over <= n/fewOver
	if parts {
		rounds += n / 2
	}
	random := uint64(1)
	h.rank.sort(h)
	for range rounds {
		l, j := h.rank.top()
		if l <= t*above {
			break
		}
		with := h.partners(j, &random)
		compared := int64(n / 5) // the ranking
		for _, k := range with {
			compared += int64(len(h.on[j])) * int64(1+len(h.on[k]))
		}
		pairs += compared
		k := h.exchange(j, t, with)
		if k < 0 {
			if pairs += compared; !parts || pairs > maxPairs {
				break
			}
			if k = h.even(j, l, l-(l-t)*stride, with); k < 0 {
				break
			}
		}
		h.rank.update(h, j)
		h.rank.update(h, k)
	}
	return pairs
}

// cheapest returns VMs of a host, all of which must be at home, that need excess or more together
// and cost least among the sets that cover looks at.
func (h *shedding) cheapest(j int, excess float64) []int {
	var vms []int
	for _, vm := range h.on[j] {
		if !h.stay[vm] && h.w(vm) > 0 {
			vms = append(vms, vm)
		}
	}
	best, _ := cover(vms, h.weight, h.cost, excess)
	return best
}

// cover returns some of the VMs that weigh excess or more together, and their cost: the first ones,
// and one or two others that make up what then lacks. vms must be in order of cost per weight. nil:
// all together weigh less.
func cover(vms []int, weight, cost []float64, excess float64) (best []int, lowest float64) {
	lowest = math.Inf(1)
	take := func(prefix []int, c float64, more ...int) {
		for _, vm := range more {
			c += cost[vm]
		}
		if c < lowest {
			best, lowest = append(slices.Clone(prefix), more...), c
		}
	}
	sum := 0.0
	for n := 0; n <= len(vms) && sum < lowest; n++ {
		rest := vms[n:]
		if excess <= 0 {
			take(vms[:n], sum)
			break
		}
		for i, a := range rest {
			if sum+cost[a] >= lowest {
				continue
			}
			if weight[a] >= excess {
				take(vms[:n], sum, a)
				continue
			}
			for _, b := range rest[i+1:] {
				if weight[a]+weight[b] >= excess && sum+cost[a]+cost[b] < lowest {
					take(vms[:n], sum, a, b)
				}
			}
		}
		if n < len(vms) {
			sum += cost[vms[n]]
			excess -= weight[vms[n]]
		}
	}
	return best, lowest
}

// exchange moves a VM off a host, in return for another if need be, such that it
// and the other host end at level t or below, for the fewest bytes. It returns the other host, -1: there is none.
func (h *shedding) exchange(j int, t float64, with []int) int {
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
	if best >= 0 {
		h.swap(best, to, back, j)
	}
	return to
}

// swap moves a VM to host to, and another VM (-1: none) from there to host j.
func (h *shedding) swap(vm, to, back, j int) {
	if back >= 0 {
		h.move(back, j)
	}
	h.move(vm, to)
}

// takeBack lets VMs stay on their hosts where the level allows it, those with the most bytes first, or
// where it costs less that another VM leaves that host instead.
func (h *shedding) takeBack(level float64) {
	var evicted []int
	for vm, j := range h.at {
		if h.base[vm] != j {
			evicted = append(evicted, vm)
		}
	}
	slices.SortFunc(evicted, func(a, b int) int { return ascending(h.cost[b], h.cost[a], a-b) })
	for _, vm := range evicted {
		if j := h.base[vm]; h.need[j]+h.w(vm) <= level*h.cpu[j]*above && fits(h.used[j]+h.m(vm), h.room[j]) && h.may(vm, j, -1) {
			h.move(vm, j)
		}
	}
	freest := make([]int, 0, maxFreest+1)
	for range passes {
		freest = h.freest(freest[:0], level)
		better := false
		for _, vm := range evicted {
			better = h.at[vm] != h.base[vm] && h.cost[vm] > 0 && h.instead(vm, level, freest) || better
		}
		if !better {
			break
		}
	}
}

const (
	passes    = 3  // over the VMs that are away
	maxFreest = 12 // hosts that others may go to instead
)

// freest is the hosts with most CPU left below a level.
func (h *shedding) freest(hosts []int, level float64) []int {
	over := func(k int) float64 { return h.need[k] - level*h.cpu[k] }
	for k := range h.need {
		if len(hosts) == maxFreest && over(k) >= over(hosts[maxFreest-1]) {
			continue
		}
		i, _ := slices.BinarySearchFunc(hosts, over(k), func(o int, l float64) int { return cmp.Compare(over(o), l) })
		if len(hosts) == maxFreest {
			hosts = hosts[:maxFreest-1]
		}
		hosts = slices.Insert(hosts, i, k)
	}
	return hosts
}

// instead lets a VM go back to its host and another VM of that host leave, to where the first was or
// to a host with room, if that saves bytes and keeps to the level.
func (h *shedding) instead(vm int, level float64, freest []int) bool {
	j, k := h.base[vm], h.at[vm]
	if !h.may(vm, j, -1) {
		return false
	}
	excess := h.need[j] + h.w(vm) - level*h.cpu[j]*above
	best, to, saved := -1, -1, h.cost[vm]*sameBytes
	for _, u := range h.on[j] {
		if h.w(u) < excess || h.stay[u] || !fits(h.used[j]+h.m(vm)-h.m(u), h.room[j]) || h.cost[vm]-max(0, h.extra(u, k)) <= saved && h.base[u] == j {
			continue
		}
		try := func(m int, weight, size float64) {
			if save := h.cost[vm] - h.extra(u, m); save > saved && weight+h.w(u) <= level*h.cpu[m]*above && fits(size+h.m(u), h.room[m]) && h.may(u, m, vm) {
				best, to, saved = u, m, save
			}
		}
		try(k, h.need[k]-h.w(vm), h.used[k]-h.m(vm))
		for _, m := range freest {
			if m != j && m != k {
				try(m, h.need[m], h.used[m])
			}
		}
	}
	if best < 0 {
		return false
	}
	h.move(best, to)
	h.move(vm, j)
	return true
}
