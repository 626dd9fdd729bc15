package allocator

import (
	"cmp"
	"math"
	"slices"
)

// partnersOf a host are how many hosts at most, those with the most headroom, it swaps VMs with.
const partnersOf = 32

// improve moves a VM from host a, or swaps it, so that the less of the two headrooms rises as far as it can, or the greater
// one where the less stays. It reports the other host, -1: nothing helps.
func (x *arrangement) improve(a int32) int32 {
	before := x.headroom(a, 0, 0)
	lo, hi := math.Inf(-1), math.Inf(-1)
	var give, get, to int32 = -1, -1, -1
	weigh := func(v, u, b int32, other float64) {
		in := &x.p.Groups[x.movers[v].group]
		cpu, memory, out := in.CPU, in.Memory, -1
		if u >= 0 {
			out = int(x.movers[u].group)
			cpu, memory = cpu-x.p.Groups[out].CPU, memory-x.p.Groups[out].Memory
		}
		ha, hb := x.headroom(a, -cpu, -memory), x.headroom(b, cpu, memory)
		l, h := min(ha, hb), max(ha, hb)
		if l < lo-sameHeadroom || l <= lo+sameHeadroom && h <= hi+sameHeadroom {
			return
		}
		if was := min(before, other); l <= was+sameHeadroom && (l < was-sameHeadroom || h <= max(before, other)+sameHeadroom) {
			return
		}
		if !x.takes(b, int(x.movers[v].group), out) || out >= 0 && !x.takes(a, out, int(x.movers[v].group)) || !x.lawful(v, u, b) {
			return
		}
		lo, hi, give, get, to = l, h, v, u, b
	}
	swaps := x.partners(a)
	for i, v := range x.on[a] {
		if x.alike(x.on[a][:i], v) {
			continue
		}
		x.work -= len(x.targets)
		for _, b := range x.targets {
			if b != a && !x.closed[b] {
				weigh(v, -1, b, x.headroom(b, 0, 0))
			}
		}
		for _, b := range swaps {
			other := x.headroom(b, 0, 0)
			x.work -= len(x.on[b])
			for k, u := range x.on[b] {
				if x.movers[u].group != x.movers[v].group && !x.alike(x.on[b][:k], u) {
					weigh(v, u, b, other)
				}
			}
		}
	}
	if give >= 0 {
		x.exchange(give, get, to)
	}
	return to
}

// partners are the hosts with movers that host a may swap with: those with the most headroom, where there are many.
func (x *arrangement) partners(a int32) []int32 {
	var list []int32
	for _, b := range x.targets {
		if b != a && !x.closed[b] && len(x.on[b]) > 0 {
			list = append(list, b)
		}
	}
	x.work -= len(x.targets)
	if len(list) > partnersOf {
		slices.SortFunc(list, func(i, k int32) int {
			return cmp.Or(cmp.Compare(x.headroom(k, 0, 0), x.headroom(i, 0, 0)), cmp.Compare(i, k))
		})
		x.work -= 10 * len(list)
		list = list[:partnersOf]
	}
	return list
}

// alike says whether a VM of the group of v is among those before it.
func (x *arrangement) alike(before []int32, v int32) bool {
	n := len(before)
	return n > 0 && x.movers[before[n-1]].group == x.movers[v].group
}

// exchange puts v on host b, and u (-1: none) where v was.
func (x *arrangement) exchange(v, u, b int32) {
	a := x.movers[v].host
	x.take(v)
	if u >= 0 {
		x.take(u)
		x.put(u, a)
	}
	x.put(v, b)
}

// manyHosts is the number of targets up to which any exchange makes even try all stuck hosts again; above it,
// only the two of the exchange.
const manyHosts = 64

// even raises the headrooms of hosts with movers, the least first, until no exchange helps.
func (x *arrangement) even() {
	stuck := make([]bool, len(x.p.Hosts))
	for x.work > 0 {
		var a int32 = -1
		lowest := math.Inf(1)
		for _, j := range x.targets {
			if len(x.on[j]) > 0 && !stuck[j] && !x.closed[j] {
				if h := x.headroom(j, 0, 0); h < lowest {
					a, lowest = j, h
				}
			}
		}
		x.work -= len(x.targets)
		if a < 0 {
			return
		}
		b := x.improve(a)
		switch {
		case b < 0:
			stuck[a] = true
		case len(x.targets) <= manyHosts:
			clear(stuck)
		default:
			stuck[a], stuck[b] = false, false
		}
	}
}

// largestFirst lists movers by the greater of their shares of all CPU and memory.
func (x *arrangement) largestFirst(vms []int32) []int32 {
	var cpu, memory float64
	for j := range x.p.Hosts {
		cpu, memory = cpu+x.p.Hosts[j].CPU, memory+x.p.Hosts[j].Memory
	}
	size := func(v int32) float64 {
		g := &x.p.Groups[x.movers[v].group]
		return max(fraction(g.CPU, cpu), fraction(g.Memory, memory))
	}
	vms = slices.Clone(vms)
	slices.SortStableFunc(vms, func(a, b int32) int { return cmp.Compare(size(b), size(a)) })
	return vms
}

// deal places all movers again, largest first, each where the headroom is then the largest. false: one fits nowhere.
func (x *arrangement) deal() bool {
	all := make([]int32, len(x.movers))
	for v := range all {
		all[v] = int32(v)
		x.take(int32(v))
	}
	for _, v := range x.largestFirst(all) {
		if !x.putBest(v, x.closed, 1) {
			return false
		}
	}
	return true
}

// putBest puts a VM without a host where the headroom is then the largest, or the smallest for sign -1.
func (x *arrangement) putBest(v int32, closed []bool, sign float64) bool {
	g := int(x.movers[v].group)
	q := &x.p.Groups[g]
	best, to := math.Inf(-1), int32(-1)
	x.work -= len(x.targets)
	for _, j := range x.targets {
		if closed[j] || !x.takes(j, g, -1) {
			continue
		}
		if h := sign * x.headroom(j, q.CPU, q.Memory); h > best+sameHeadroom && x.welcome(v, int(j)) {
			best, to = h, j
		}
	}
	if to < 0 {
		return false
	}
	x.put(v, to)
	return true
}

// maxDealt is up to how many pairs of a mover and a host all movers are placed again from nothing.
const maxDealt = 1 << 18

// spread evens the headrooms, from where the movers are and from nothing, and keeps the better.
func (x *arrangement) spread() {
	best, value := x.hosts(), x.worth(nil)
	x.even()
	better := func() {
		if w := x.worth(nil); w.better(&value) {
			best, value = x.hosts(), w
		}
	}
	better()
	if len(x.movers)*len(x.targets) <= maxDealt && x.deal() {
		x.even()
		better()
	}
	x.restore(best)
}
