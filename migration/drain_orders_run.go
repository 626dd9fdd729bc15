package migration

import (
	"cmp"
	"math"
	"slices"
)

// orderRun is one pass of an orderSearch with one weight.
type orderRun struct {
	s      *orderSearch
	weight float64
	limit  float64 // of the bytes of an order
	move   float64 // bytes that a move counts for besides its own
	pruned bool    // a state was passed over, orders through which cost more
	nodes  []orderNode
	open   orderHeap
	spent  map[[2]uint64]float64
	layout orderLayout
	path   []int32
	gaps   []float64
	parts  [][2]uint64
}

// run looks for an order of at most so many bytes among so many states, within some steps, and says how many steps are left.
// With weight 0 the order has the fewest bytes.
func (s *orderSearch) run(weight, limit float64, states int, steps int64) (*candidate, searched, int64) {
	r := &orderRun{s: s, weight: weight, limit: limit, spent: map[[2]uint64]float64{}}
	if weight > 0 {
		r.move = moveShare * s.mean
	}
	r.nodes = []orderNode{{before: -1, vm: -1, left: int16(s.begin.left)}}
	r.open.push(orderEntry{0, 0})
	s.begin.copyTo(&r.layout)
	r.spent[r.key()] = 0
	for len(r.open) > 0 {
		if steps <= 0 || len(r.nodes) >= states || s.e.p.Stop != nil && s.e.p.Stop() {
			return nil, notFound, steps
		}
		n := r.open.pop().node
		steps -= int64(len(s.f.home)) / 8
		r.restore(n)
		if r.layout.left == 0 {
			if c := r.goal(n); c != nil {
				return c, foundOrder, steps
			}
			if !s.f.rules.Required() {
				continue
			}
		}
		if r.nodes[n].spent > r.spent[r.key()] {
			continue
		}
		steps -= stateSteps * r.expand(n)
	}
	if r.pruned || !s.whole || !s.plain {
		return nil, notFound, steps
	}
	return nil, exhausted, steps
}

func (r *orderRun) key() (k [2]uint64) {
	r.parts = r.parts[:0]
	for i := range r.layout.on {
		p := r.s.part(&r.layout, i)
		r.parts = append(r.parts, p)
		k[0] += p[0]
		k[1] += p[1]
	}
	return k
}

// restore brings the layout to a state.
func (r *orderRun) restore(n int32) {
	r.path = r.path[:0]
	for m := n; r.nodes[m].before >= 0; m = r.nodes[m].before {
		r.path = append(r.path, m)
	}
	r.s.begin.copyTo(&r.layout)
	for i := len(r.path) - 1; i >= 0; i-- {
		r.s.move(&r.layout, int(r.nodes[r.path[i]].vm), int(r.nodes[r.path[i]].to))
	}
}

// expand reaches all states that one move leads to, and counts those.
func (r *orderRun) expand(n int32) (reached int64) {
	s, l := r.s, &r.layout
	base := r.key()
	node := r.nodes[n]
	parts := slices.Clone(r.parts)
	leaving := r.leaving()
	for from := range l.on {
		for k := 0; k < len(l.on[from]); k++ {
			vm := l.on[from][k]
			if int32(vm) == node.vm && s.routes == nil && s.plain {
				continue // it could have gone there at once
			}
			if slices.ContainsFunc(l.on[from][:k], func(o int) bool { return s.class[o] == s.class[vm] }) {
				continue
			}
			bytes := node.bytes + s.f.bytes[vm]
			for to := s.closed; to < len(l.on); to++ {
				if to == from || !s.may(l, vm, to) {
					continue
				}
				rest := l.rest
				if from < s.closed {
					rest -= s.f.bytes[vm]
				}
				if bytes+rest > r.limit {
					r.pruned = true
					continue
				}
				reached++
				spent := node.spent + s.f.bytes[vm] + r.move
				key := r.keyAfter(base, parts, vm, from, to)
				if was, ok := r.spent[key]; ok && was <= spent {
					continue
				}
				r.spent[key] = spent
				left := node.left
				if from < s.closed {
					left--
				}
				worth := spent + rest + r.move*float64(left)
				if r.weight > 0 {
					worth += r.weight * r.deficit(leaving, vm, from, to)
				}
				r.nodes = append(r.nodes, orderNode{before: n, vm: int32(vm), from: int16(from), to: int16(to), left: left, spent: spent, bytes: bytes})
				r.open.push(orderEntry{worth, int32(len(r.nodes) - 1)})
			}
		}
	}
	return reached
}

// keyAfter is the key of the state after a move.
func (r *orderRun) keyAfter(key [2]uint64, parts [][2]uint64, vm, from, to int) [2]uint64 {
	s, l := r.s, &r.layout
	was := l.reserves[to]
	if q := s.f.of(vm); q.Reclaimable > 0 && s.f.home[vm] != s.hosts[to] {
		l.reserves[to].Add(q.Reclaimable)
	}
	s.sum(l, from, vm, ^uint64(0))
	s.sum(l, to, vm, 1)
	a, b := s.part(l, from), s.part(l, to)
	s.sum(l, from, vm, 1)
	s.sum(l, to, vm, ^uint64(0))
	l.reserves[to] = was
	for i := range key {
		key[i] += a[i] + b[i] - parts[from][i] - parts[to][i]
	}
	return key
}

// leaving are the VMs that have yet to leave, the largest first.
func (r *orderRun) leaving() (vms []int) {
	for i := range r.s.closed {
		vms = append(vms, r.layout.on[i]...)
	}
	slices.SortFunc(vms, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.s.f.of(b).Memory, r.s.f.of(a).Memory), cmp.Compare(a, b))
	})
	return vms
}

// deficit is the memory that is missing for the VMs that have yet to leave, after one more move. It places them greedily,
// the largest first: each on the host where least is left beside it, or, where none has room, on the host with most room.
func (r *orderRun) deficit(leaving []int, vm, from, to int) (sum float64) {
	s, l := r.s, &r.layout
	m := s.f.of(vm).Memory
	gaps := r.gaps[:0]
	for i := s.closed; i < len(l.free); i++ {
		free := l.free[i] - l.reserves[i].Bytes()
		switch i {
		case from:
			free += m
		case to:
			free -= m
		}
		gaps = append(gaps, max(0, free))
	}
	r.gaps = gaps
	for _, o := range leaving {
		if o == vm {
			continue
		}
		size, fit, widest := s.f.of(o).Memory, -1, 0
		for i, gap := range gaps {
			if gap >= size*(1-1e-12) && (fit < 0 || gap < gaps[fit]) {
				fit = i
			}
			if gap > gaps[widest] {
				widest = i
			}
		}
		if fit >= 0 {
			gaps[fit] = max(0, gaps[fit]-size)
			continue
		}
		if len(gaps) == 0 {
			return math.Inf(1)
		}
		sum += size - gaps[widest]
		gaps[widest] = 0
	}
	return sum
}

// goal returns a state in which all have left as a placement, with the moves to it; nil if a limit is not kept.
func (r *orderRun) goal(n int32) *candidate {
	s := r.s
	var ops []op
	for m := n; r.nodes[m].before >= 0; m = r.nodes[m].before {
		x := &r.nodes[m]
		ops = append(ops, op{vm: int(x.vm), from: s.hosts[x.from], to: s.hosts[x.to]})
	}
	slices.Reverse(ops)
	return s.e.ordered(ops)
}

// ordered returns the placement that moves lead to, with those of the moves that are needed; nil if it breaks
// memory, routes, rules or floors.
func (e *emptying) ordered(ops []op) *candidate {
	f := e.f
	if !f.valid(ops) {
		return nil
	}
	ops = f.shortened(ops, e.leaves)
	c := &candidate{at: slices.Clone(f.home), ordered: true, ops: ops}
	for i := range ops {
		c.at[ops[i].vm] = ops[i].to
	}
	if !e.keepsLimits(c) {
		return nil
	}
	for i := range ops {
		ops[i].staging = slices.ContainsFunc(ops[i+1:], func(o op) bool { return o.vm == ops[i].vm })
	}
	return c
}

// valid reports whether moves, one after another, keep memory, routes, and VMs apart that must be. The reserve of a
// host counts all VMs that are there at any time.
func (f *fleet) valid(ops []op) bool {
	at := slices.Clone(f.home)
	for _, x := range ops {
		at[x.vm] = x.to
	}
	o := newOrder(f, at)
	for i, x := range ops {
		if f.home[x.vm] != x.to && slices.ContainsFunc(ops[i+1:], func(y op) bool { return y.vm == x.vm }) {
			o.reserves[x.to].Add(f.of(x.vm).Reclaimable)
		}
	}
	for j := range o.room {
		o.room[j] = f.p.Hosts[j].room(o.reserves[j])
	}
	for _, x := range ops {
		if o.at[x.vm] != x.from || !f.allowed(x.vm, x.to) || !o.fits(x.vm, x.to) {
			return false
		}
		o.move(x.vm, x.to, false)
	}
	return true
}

// shortened leaves out moves that are not needed: all of a VM that need not leave, and stops on the way.
func (f *fleet) shortened(ops []op, leaves []bool) []op {
	for again := true; again; {
		again = false
		for i := range ops {
			vm := ops[i].vm
			var without []op
			for k, x := range ops {
				if x.vm != vm || k < i {
					without = append(without, x)
				}
			}
			if !leaves[f.home[vm]] && !slices.ContainsFunc(ops[:i], func(x op) bool { return x.vm == vm }) && f.valid(without) {
				ops, again = without, true
				break
			}
			next := slices.IndexFunc(ops[i+1:], func(x op) bool { return x.vm == vm })
			if next < 0 {
				continue
			}
			next += i + 1
			early, late := slices.Clone(ops), slices.Clone(ops)
			early[i].to = ops[next].to
			early = slices.Delete(early, next, next+1)
			late[next].from = ops[i].from
			late = slices.Delete(late, i, i+1)
			if early[i].from != early[i].to && f.valid(early) {
				ops, again = early, true
				break
			}
			if ops[i].from != ops[next].to && f.valid(late) {
				ops, again = late, true
				break
			}
		}
	}
	return ops
}

// movable is how many VMs a search may move.
func (s *orderSearch) movable() (n int) {
	for _, vms := range s.begin.on {
		n += len(vms)
	}
	return n
}
