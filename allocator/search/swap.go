package search

import (
	"cmp"
	"math"
	"slices"
)

// swapper evens the levels of a crowd by exchanges between two hosts of at most
// two VMs each: some thousand exchanges, of which one that takes over about the
// wanted weight is found in less than a microsecond.
type swapper struct {
	c        *crowd
	t        float64   // even level
	over     []int64   // [host]: the load above the even level
	give     []uint64  // what the host with more may give, and
	take     []uint64  // get for it: weight, then twice 1 + which guest, 0: none
	room     []uint64  // work space
	pairs    []guest   // of the two hosts
	byOver   []int32   // hosts, greatest over first
	failures [64]int32 // of the hosts' last tries
}

// Of more VMs on a host mostGuests take part in an exchange.
const mostGuests = 14

const (
	guestBits = 6
	guestMask = 1<<guestBits - 1
)

// offers lists the weights of no, one and two of the guests, least first.
func (x *swapper) offers(list []uint64, on []guest) []uint64 {
	list = append(list[:0], 0)
	least, most := uint64(0), uint64(0)
	for i := range on {
		w := uint64(on[i].w) << (2 * guestBits)
		list = append(list, w|uint64(i+1))
		for k := range i {
			v := w + uint64(on[k].w)<<(2*guestBits)
			most = max(most, v)
			list = append(list, v|uint64(k+1)<<guestBits|uint64(i+1))
		}
		most = max(most, w)
	}
	// Into as many sections as there are offers, by weight; within them by insertion.
	n := len(list)
	x.room = resize(x.room, n)
	var at [mostGuests*(mostGuests+1)/2 + 2]int32
	per := float64(n-1) / (float64(most-least) + 1)
	for _, v := range list {
		at[int(float64(v>>(2*guestBits)<<(2*guestBits))*per)+1]++
	}
	for k := range n {
		at[k+1] += at[k]
	}
	for _, v := range list {
		k := int(float64(v>>(2*guestBits)<<(2*guestBits)) * per)
		x.room[at[k]] = v
		at[k]++
	}
	out := x.room
	for i := 1; i < n; i++ {
		v := out[i]
		k := i
		for ; k > 0 && out[k-1] > v; k-- {
			out[k] = out[k-1]
		}
		out[k] = v
	}
	x.room = list
	return out
}

// exchange brings the level of host a closer to that of b, which is lower, by
// the exchange after which the two are most even, if any brings both below
// what a has. It reports whether.
func (x *swapper) exchange(a, b int32, turn int) bool {
	c, m := x.c, x.c.m
	cpuA, cpuB := float64(m.CPU[a]), float64(m.CPU[b])
	// Weight that would take the two to one level.
	ideal := int64((float64(c.load[a])*cpuB - float64(c.load[b])*cpuA) / (cpuA + cpuB))
	if ideal <= 0 {
		return false
	}
	onA, onB := some(c.on(a), turn), some(c.on(b), turn)
	x.give = x.offers(x.give, onA)
	x.take = x.offers(x.take, onB)
	roomA, roomB := c.first[a+1]-c.first[a]-c.n[a], c.first[b+1]-c.first[b]-c.n[b]
	freeA, freeB := c.free[a], c.free[b]
	best := ideal // how far from ideal; what is not closer leaves b above, or a where it is
	var bestGive, bestTake uint64
	try := func(g, v uint64) bool {
		gap := int64(g>>(2*guestBits)) - int64(v>>(2*guestBits)) - ideal
		if gap < 0 {
			gap = -gap
		}
		if gap >= best {
			return false
		}
		gi, gk, ti, tk := g&guestMask, g>>guestBits&guestMask, v&guestMask, v>>guestBits&guestMask
		size, more := int64(0), int32(0) // that b gets
		if gi > 0 {
			size, more = size+onA[gi-1].s, more+1
		}
		if gk > 0 {
			size, more = size+onA[gk-1].s, more+1
		}
		if ti > 0 {
			size, more = size-onB[ti-1].s, more-1
		}
		if tk > 0 {
			size, more = size-onB[tk-1].s, more-1
		}
		if size > freeB || -size > freeA || more > roomB || -more > roomA {
			return true
		}
		best, bestGive, bestTake = gap, g, v
		return true
	}
	p := 0
	for _, g := range x.give {
		want := int64(g>>(2*guestBits)) - ideal
		for p < len(x.take) && int64(x.take[p]>>(2*guestBits)) < want {
			p++
		}
		for k := p; k < len(x.take) && try(g, x.take[k]); k++ {
		}
		for k := p - 1; k >= 0 && try(g, x.take[k]); k-- {
		}
	}
	if best >= ideal {
		return false
	}
	x.pairs = x.pairs[:0]
	both := func(on []guest, v uint64) {
		for _, i := range [2]uint64{v >> guestBits & guestMask, v & guestMask} {
			if i > 0 {
				x.pairs = append(x.pairs, on[i-1])
			}
		}
	}
	both(onA, bestGive)
	given := len(x.pairs)
	both(onB, bestTake)
	for i, g := range x.pairs {
		if i < given {
			c.remove(a, g.vm)
		} else {
			c.remove(b, g.vm)
		}
	}
	for i, g := range x.pairs {
		if i < given {
			c.add(b, g)
		} else {
			c.add(a, g)
		}
	}
	return true
}

// some is mostGuests of the guests at most, others from turn to turn.
func some(on []guest, turn int) []guest {
	if len(on) <= mostGuests {
		return on
	}
	from := turn * (mostGuests / 2) % (len(on) - mostGuests + 1)
	return on[from : from+mostGuests]
}

func (c *crowd) remove(j, vm int32) {
	on := c.on(j)
	for i := range on {
		if on[i].vm == vm {
			c.load[j] -= on[i].w
			c.free[j] += on[i].s
			on[i] = on[len(on)-1]
			c.n[j]--
			return
		}
	}
}

func (c *crowd) add(j int32, g guest) {
	c.slot[c.first[j]+c.n[j]] = g
	c.n[j]++
	c.load[j] += g.w
	c.free[j] -= g.s
}

// partners is how many hosts a host above the limit is tried with in a sweep.
const partners = 4

// even lowers all levels to at most limit, above the even level t, by sweeps:
// the hosts with the greatest load above the even one are paired with those
// that have the least. It reports whether it got there.
func (f *finder) even(c *crowd, t, limit float64) bool {
	h := len(c.load)
	x := &swapper{c: c, t: t, over: make([]int64, h)}
	above := math.MaxInt
	for sweep, idle := 0, 0; sweep < 100 && idle < 4; sweep++ {
		x.byOver = x.byOver[:0]
		for j := range h {
			x.over[j] = c.load[j] - int64(t*float64(c.m.CPU[j]))
		}
		n := 0
		for j := range h {
			if level(c.load[j], c.m.CPU[j]) > limit {
				x.byOver = append(x.byOver, int32(j))
				n++
			}
		}
		if n == 0 {
			return true
		}
		if n >= above {
			idle++
		} else {
			above, idle = n, 0
		}
		for j := range h {
			if x.over[j] < 0 {
				x.byOver = append(x.byOver, int32(j))
			}
		}
		byOver := func(a, b int32) int { return cmp.Or(cmp.Compare(x.over[b], x.over[a]), cmp.Compare(a, b)) }
		slices.SortFunc(x.byOver[:n], byOver)
		under := x.byOver[n:]
		slices.SortFunc(under, func(a, b int32) int { return byOver(b, a) })
		f.steps -= int64(8 * len(x.byOver))
		if len(under) == 0 {
			return false
		}
		for i, a := range x.byOver[:n] {
			if i%64 == 0 && f.done() {
				return false
			}
			for k := range partners {
				b := under[(i+k)%len(under)]
				f.steps -= 60
				x.exchange(a, b, sweep)
				if level(c.load[a], c.m.CPU[a]) <= limit {
					break
				}
			}
		}
	}
	return false
}

// evenly deals the VMs to many hosts and evens their levels as far as exchanges
// do. It is nil where there are rules, few VMs to a host or few hosts, or where
// some VM finds no host with the memory.
func (f *finder) evenly(floor float64) []int32 {
	m := f.m
	if n, h := len(m.Weight), len(m.CPU); m.Rules != nil || h <= 16 || n < 3*h {
		return nil
	}
	var total, cpu int64
	for _, w := range m.Weight {
		total += w
	}
	for _, c := range m.CPU {
		cpu += c
	}
	host := f.dealCrowd()
	if host == nil || total >= 1<<(64-2*guestBits) {
		return host
	}
	c := crowdOf(m, host)
	t := float64(total) / float64(cpu)
	for over := 1e-4; ; over /= 8 {
		limit := max(t*(1+over), floor)
		if !f.even(c, t, limit) || limit == floor || over < 1e-9 {
			break
		}
	}
	c.hosts(host)
	return host
}
