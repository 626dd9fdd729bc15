package search

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// swapper evens the levels of a crowd by exchanges of at most two VMs each between
// two hosts. There are some thousand possible exchanges between two hosts; the one that transfers
// about the wanted weight is found in about a microsecond.
type swapper struct {
	c        *crowd
	give     []uint64 // what the host with more may give: weight, then twice 1 + which guest, 0: none
	take     []uint64 // what it may get for it
	room     []uint64 // what may be taken, sorted
	sections sections
	moved    []guest
	over     []int64 // [host]: load above the even level
	high     []int32 // hosts above the limit
	low      []int32 // hosts below the even level, a heap, the lowest first
}

// maxGuests is how many VMs of a host take part in an exchange, if it has more.
const maxGuests = 14

const (
	guestBits = 6
	guestMask = 1<<guestBits - 1

	sectionBits = 7
)

// offers lists the weights of no, one and two of the guests.
func offers(list []uint64, on []guest) (offers []uint64, limit uint64) {
	list = append(list[:0], 0)
	for i := range on {
		w := uint64(on[i].w) << (2 * guestBits)
		list = append(list, w|uint64(i+1))
		for k := range i {
			v := w + uint64(on[k].w)<<(2*guestBits)
			limit = max(limit, v)
			list = append(list, v|uint64(k+1)<<guestBits|uint64(i+1))
		}
		limit = max(limit, w)
	}
	return list, limit
}

// sections is where the offers of about a weight begin in a sorted list.
type sections struct {
	shift int
	at    [1<<sectionBits + 1]uint8
}

// sort orders the list, least first. what it returns is valid until the next call.
func (x *swapper) sort(list []uint64, limit uint64) []uint64 {
	// Into sections by weight, of about one offer each; within them by insertion.
	n := len(list)
	x.room = resize(x.room, n)
	q := &x.sections
	q.shift = bits.Len64(limit|(1<<(2*guestBits)-1)) - sectionBits
	clear(q.at[:])
	for _, v := range list {
		q.at[v>>q.shift+1]++
	}
	for k := 1; k < len(q.at); k++ {
		q.at[k] += q.at[k-1]
	}
	next := q.at
	for _, v := range list {
		k := v >> q.shift
		x.room[next[k]] = v
		next[k]++
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
	return out
}

// exchange moves about the wanted weight from host a to host b, more than none
// and less than twice as much, by the exchange that comes closest. It reports
// whether there is one.
func (x *swapper) exchange(a, b int32, want int64, turn int) bool {
	c := x.c
	onA, onB := some(c.on(a), turn), some(c.on(b), turn)
	var limit uint64
	x.give, _ = offers(x.give, onA)
	x.take, limit = offers(x.take, onB)
	take := x.sort(x.take, limit)
	roomA, roomB := c.first[a+1]-c.first[a]-c.n[a], c.first[b+1]-c.first[b]-c.n[b]
	freeA, freeB := c.free[a], c.free[b]
	best := want // how far from what is wanted
	var bestGive, bestTake uint64
	try := func(g, v uint64) bool {
		gap := int64(g>>(2*guestBits)) - int64(v>>(2*guestBits)) - want
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
	for _, g := range x.give {
		p, lowest := 0, int64(g>>(2*guestBits))-want
		if lowest > 0 {
			p = int(x.sections.at[min(uint64(lowest)<<(2*guestBits)>>x.sections.shift, 1<<sectionBits)])
		}
		for p < len(take) && int64(take[p]>>(2*guestBits)) < lowest {
			p++
		}
		for k := p; k < len(take) && try(g, take[k]); k++ {
		}
		for k := p - 1; k >= 0 && try(g, take[k]); k-- {
		}
	}
	if best >= want {
		return false
	}
	x.apply(a, b, onA, onB, bestGive, bestTake)
	return true
}

// apply moves what is given from host a to host b, and what is taken from b to a.
func (x *swapper) apply(a, b int32, onA, onB []guest, give, take uint64) {
	c := x.c
	x.moved = offered(x.moved[:0], onA, give)
	given := len(x.moved)
	x.moved = offered(x.moved, onB, take)
	for _, g := range x.moved[:given] {
		c.remove(a, g.vm)
	}
	for _, g := range x.moved[given:] {
		c.remove(b, g.vm)
	}
	for _, g := range x.moved[:given] {
		c.add(b, g)
	}
	for _, g := range x.moved[given:] {
		c.add(a, g)
	}
}

// offered adds the guests of an offer to a list.
func offered(list, on []guest, v uint64) []guest {
	for _, i := range [2]uint64{v >> guestBits & guestMask, v & guestMask} {
		if i > 0 {
			list = append(list, on[i-1])
		}
	}
	return list
}

// some is maxGuests of the guests at most, others from turn to turn.
func some(on []guest, turn int) []guest {
	if len(on) <= maxGuests {
		return on
	}
	from := turn * (maxGuests / 2) % (len(on) - maxGuests + 1)
	return on[from : from+maxGuests]
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

// partners is how many hosts a host above the limit is tried with in a sweep;
// twice as many after one that did not help.
const partners = 4

// even lowers all levels to at most limit, which is above the even level t, by
// sweeps over the hosts above it, highest first: each gives what it has too much
// to the host that is then lowest, so that one of the two is done with. It
// reports whether it got there.
func (f *finder) even(c *crowd, t, limit float64) bool {
	h := len(c.load)
	x := &swapper{c: c, over: make([]int64, h)}
	free := func(j int32) int64 { return int64((limit - t) * float64(c.m.CPU[j])) }
	above := math.MaxInt / 8
	for sweep, idle := 0, 0; sweep < 100 && idle < 3; sweep++ {
		x.high, x.low = x.high[:0], x.low[:0]
		for j := range h {
			x.over[j] = c.load[j] - int64(t*float64(c.m.CPU[j]))
			if level(c.load[j], c.m.CPU[j]) > limit {
				x.high = append(x.high, int32(j))
			} else if x.over[j] < 0 {
				x.low = append(x.low, int32(j))
			}
		}
		n := len(x.high)
		if n == 0 {
			return true
		}
		if n*5 <= above*4 {
			idle = 0
		} else {
			idle++
		}
		above = min(above, n)
		slices.SortFunc(x.high, func(a, b int32) int { return cmp.Or(cmp.Compare(x.over[b], x.over[a]), cmp.Compare(a, b)) })
		for i := len(x.low)/2 - 1; i >= 0; i-- {
			x.down(i, len(x.low))
		}
		f.steps -= int64(8*n + 4*h)
		for i, a := range x.high {
			if i%64 == 0 && f.done() {
				return false
			}
			// Hosts that were tried lie behind the heap.
			left := len(x.low)
			for left > max(0, len(x.low)-partners<<idle) && level(c.load[a], c.m.CPU[a]) > limit {
				b := x.low[0]
				// Half of what the limit allows is left to be used at the end.
				want := min(x.over[a]-free(a)/2, free(b)/2-x.over[b])
				if want <= 0 {
					break
				}
				f.steps -= 60
				if x.exchange(a, b, want, sweep) {
					x.over[a], x.over[b] = c.load[a]-int64(t*float64(c.m.CPU[a])), c.load[b]-int64(t*float64(c.m.CPU[b]))
				}
				left--
				x.low[0], x.low[left] = x.low[left], x.low[0]
				x.down(0, left)
			}
			for ; left < len(x.low); left++ {
				x.up(left)
			}
		}
	}
	return false
}

// down restores the heap of the first n low hosts where host i is too high.
func (x *swapper) down(i, n int) {
	for {
		k := 2*i + 1
		if k >= n {
			return
		}
		if k+1 < n && x.over[x.low[k+1]] < x.over[x.low[k]] {
			k++
		}
		if x.over[x.low[k]] >= x.over[x.low[i]] {
			return
		}
		x.low[i], x.low[k] = x.low[k], x.low[i]
		i = k
	}
}

// up restores the heap of the low hosts up to i.
func (x *swapper) up(i int) {
	for k := (i - 1) / 2; i > 0 && x.over[x.low[i]] < x.over[x.low[k]]; k = (i - 1) / 2 {
		x.low[i], x.low[k] = x.low[k], x.low[i]
		i = k
	}
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
	if total >= 1<<(64-2*guestBits) {
		return f.dealtCrowd(nil)
	}
	t := float64(total) / float64(cpu)
	x := mixOf(m)
	host := f.evened(f.dealtCrowd(x), t, floor)
	if x == nil || host != nil && m.Level(host) <= max(floor, t)*(1+evenEnough) {
		return host
	}
	plain := f.evened(f.dealtCrowd(nil), t, floor)
	if host == nil || plain != nil && m.Level(plain) < m.Level(host) {
		return plain
	}
	return host
}

// evenEnough is the distance from the even level, as a share of it, within which a placement by the
// mix is good enough to try no other.
const evenEnough = 0.002

// dealtCrowd deals by the mix, which may be nil; nil: not all VMs found a host.
func (f *finder) dealtCrowd(x *mix) []int32 {
	host := f.dealCrowd(false, x)
	if host == nil && x == nil {
		host = f.dealCrowd(true, nil)
	}
	return host
}

// evened evens the levels of a placement, which may be nil, to near the even level t, or to floor if that is above it.
func (f *finder) evened(host []int32, t, floor float64) []int32 {
	if host == nil {
		return nil
	}
	m := f.m
	c := crowdOf(m, host)
	for over := 1e-4; ; over /= 8 {
		limit := max(t*(1+over), floor)
		if !f.even(c, t, limit) || limit == floor || over < 1e-9 {
			break
		}
	}
	c.hosts(host)
	return host
}
