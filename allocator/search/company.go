package search

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// maxParty bounds the VMs of one party: a VM, those that it must be with, and those that these must be with.
const maxParty = 8

// partyTries bounds the work of choosing one party.
const partyTries = 64

// Party returns the classes of VMs that must come to a host together so that a VM of the class may come to it: the
// class itself first, then one class for each further VM. on is the set of classes on the host. left is how many VMs of
// a class there are besides those on the host. nil: with sure no party keeps the rules and fits, without it none of at
// most maxParty VMs was found. Of rules, With and Apart count.
//
// fits, which may be nil, is also asked about parties that are not complete: what it refuses must not fit with more
// VMs.
func Party(class int32, on []uint64, left func(class int32) int, rules *Rules, fits func(party []int32) bool) (party []int32, sure bool) {
	x := partyChoice{on: on, left: left, r: rules, fits: fits, tries: partyTries, sure: true}
	if x.add(class) {
		return x.party, true
	}
	return nil, x.sure
}

// partyChoice is the choice of one party, depth first.
type partyChoice struct {
	party []int32
	on    []uint64
	left  func(class int32) int
	r     *Rules
	fits  func(party []int32) bool
	tries int
	sure  bool // nothing was cut off
}

// add tries the party with one VM of the class more, and then all that this one must be with.
func (x *partyChoice) add(class int32) bool {
	if x.tries--; x.tries < 0 || len(x.party) == maxParty {
		x.sure = false
		return false
	}
	n := 1
	for _, c := range x.party {
		if c == class {
			n++
		}
		if x.apart(c, class) {
			return false
		}
	}
	if n > x.left(class) || x.apartFromHost(class) {
		return false
	}
	x.party = append(x.party, class)
	if (x.fits == nil || x.fits(x.party)) && x.complete() {
		return true
	}
	x.party = x.party[:len(x.party)-1]
	return false
}

// complete adds VMs until each one of the party has its company.
func (x *partyChoice) complete() bool {
	for i, c := range x.party {
		if x.r.With == nil {
			return true
		}
		for _, set := range x.r.With[c] {
			if Meet(set, x.on) || x.amongOthers(set, i) {
				continue
			}
			// One more of the same class first: of equal VMs any number may follow.
			if has(set, c) && x.add(c) {
				return true
			}
			for o := range int32(len(x.r.With)) {
				if o != c && has(set, o) && x.add(o) {
					return true
				}
			}
			return false
		}
	}
	return true
}

func (x *partyChoice) amongOthers(set []uint64, i int) bool {
	for k, c := range x.party {
		if k != i && has(set, c) {
			return true
		}
	}
	return false
}

func (x *partyChoice) apart(a, b int32) bool { return x.r.Apart != nil && has(x.r.Apart[a], b) }

func (x *partyChoice) apartFromHost(class int32) bool {
	return x.r.Apart != nil && Meet(x.r.Apart[class], x.on)
}

// Meet says whether two sets of bits have one in common.
func Meet(a, b []uint64) bool {
	for k := range min(len(a), len(b)) {
		if a[k]&b[k] != 0 {
			return true
		}
	}
	return false
}

// Deal places the VMs without a search: party by party where some must be with others. nil: some found no host.
func Deal(m *Model) []int32 {
	if p := newFinder(m, 0, math.MaxInt64/4, nil).dealt(); p != nil {
		return p.host
	}
	return nil
}

// parties deals VMs that must be with others: each to the host that it loads least, together with those that it would
// miss there. Where VMs are equal, hosts lie in a heap, so that a VM costs about the logarithm of the hosts.
//
// Many fields: it is the work space of one deal.
type parties struct {
	f       *finder
	p       *placement
	over    bool // VMs may exceed the memory
	fill    bool // hosts with VMs of the class are filled first
	classes [][]uint64
	queue   [][]int32 // [class]: VMs without a host, in order
	offers  offerHeap
}

// offer is what a host is for the VMs that are dealt.
type offer struct {
	host         int32
	level, share float64 // CPU and memory in use, with the party
	party        []int32
}

type offerHeap []offer

func (h offerHeap) Len() int { return len(h) }
func (h offerHeap) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(h[i].level, h[k].level), cmp.Compare(h[i].share, h[k].share), cmp.Compare(h[i].host, h[k].host)) < 0
}
func (h offerHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *offerHeap) Push(v any)   { *h = append(*h, v.(offer)) }
func (h *offerHeap) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}

// dealParties is deal where some VMs must be with others.
func (f *finder) dealParties(order []int32, over, fill bool) (*placement, bool) {
	m := f.m
	x := &parties{f: f, p: newPlacement(m), over: over, fill: fill, classes: make([][]uint64, len(m.CPU)), queue: make([][]int32, len(m.Rules.With))}
	for j := range x.classes {
		x.classes[j] = setOf(64 * (1 + len(m.Rules.With)/64))
	}
	for _, vm := range order {
		c := m.Rules.Class[vm]
		x.queue[c] = append(x.queue[c], vm)
	}
	last := int32(-1)
	for _, vm := range order {
		if x.p.host[vm] >= 0 {
			continue
		}
		if last < 0 || !x.alike(last, vm) {
			x.offers = x.offers[:0]
			for j := range int32(len(m.CPU)) {
				if o, ok := x.offer(vm, j); ok {
					x.offers = append(x.offers, o)
				}
			}
			heap.Init(&x.offers)
			f.steps -= int64(len(m.CPU))
		}
		last = vm
		if !x.place(vm) {
			return nil, false
		}
	}
	return x.p, true
}

// alike says whether two VMs may be exchanged in any placement.
func (x *parties) alike(a, b int32) bool {
	m := x.p.m
	r := m.Rules
	same := func(s, t []uint64) bool { return len(s) == len(t) && (len(s) == 0 || &s[0] == &t[0]) }
	return r.Class[a] == r.Class[b] && m.Weight[a] == m.Weight[b] && m.Size[a] == m.Size[b] &&
		(r.Allowed == nil || same(r.Allowed[a], r.Allowed[b])) && (r.Home == nil || r.Home[a] == r.Home[b] && r.Cost[a] == r.Cost[b])
}

// place puts a VM and its party on the host with the best offer.
func (x *parties) place(vm int32) bool {
	for len(x.offers) > 0 {
		o := x.offers[0]
		// Parties that took VMs elsewhere may have changed what the host can offer.
		now, ok := x.offer(vm, o.host)
		switch {
		case !ok:
			heap.Pop(&x.offers)
			continue
		case now.level != o.level || now.share != o.share:
			x.offers[0] = now
			heap.Fix(&x.offers, 0)
			if x.offers[0].host != o.host {
				continue
			}
		}
		for _, v := range x.members(vm, now.party) {
			c := x.p.m.Rules.Class[v]
			x.p.put(v, o.host)
			x.classes[o.host][c>>6] |= 1 << (c & 63)
		}
		if more, ok := x.offer(vm, o.host); ok {
			x.offers[0] = more
			heap.Fix(&x.offers, 0)
		} else {
			heap.Pop(&x.offers)
		}
		return true
	}
	return false
}

// offer is what host j is for a VM and those that must come with it.
func (x *parties) offer(vm, j int32) (offer, bool) {
	p, m := x.p, x.p.m
	x.f.steps--
	if !x.over && p.used[j]+m.Size[vm] > m.Memory[j] || !m.allowed(vm, j) {
		return offer{}, false
	}
	party, _ := Party(m.Rules.Class[vm], x.classes[j], x.left, m.Rules, nil)
	if party == nil {
		return offer{}, false
	}
	load, used, cost := p.load[j], p.used[j], p.cost
	for _, v := range x.members(vm, party) {
		if !m.allowed(v, j) {
			return offer{}, false
		}
		load, used, cost = load+m.Weight[v], used+m.Size[v], cost+m.cost(v, j)
	}
	if !x.over && used > m.Memory[j] || m.budgeted() && cost > m.Rules.Budget {
		return offer{}, false
	}
	o := offer{host: j, level: level(load, m.CPU[j]), share: level(used, max(1, m.Memory[j])), party: party}
	if x.fill && o.level <= 1 {
		// The fuller a host is without being too full, the better, those with VMs of the class first.
		o.level = -o.level
		if has(x.classes[j], m.Rules.Class[vm]) {
			o.level--
		}
		o.share = -o.share
	}
	return o, true
}

// members are the VMs of a party: the one that is dealt, and the next ones of the other classes.
func (x *parties) members(vm int32, party []int32) []int32 {
	list := append(make([]int32, 0, len(party)), vm)
	for _, c := range party[1:] {
		for _, v := range x.waiting(c) {
			if !slices.Contains(list, v) {
				list = append(list, v)
				break
			}
		}
	}
	return list
}

// waiting are VMs of the class without a host, at least the next maxParty of them.
func (x *parties) waiting(c int32) []int32 {
	q := x.queue[c]
	for len(q) > 0 && x.p.host[q[0]] >= 0 {
		q = q[1:]
	}
	x.queue[c] = q
	return q
}

// left is of how many VMs of a class a party may be.
func (x *parties) left(c int32) int {
	n := 0
	for _, v := range x.waiting(c) {
		if x.p.host[v] < 0 {
			if n++; n == maxParty {
				break
			}
		}
	}
	return n
}
