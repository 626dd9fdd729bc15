package allocator

import (
	"math"
	"slices"
)

// fitIndex finds in a list the first VM that fits into what is left of a host.
// It is a tree over the list: a leaf holds what one VM of an item needs, a node
// above the least CPU and the least memory of its children, so that whole parts of
// the list are passed over at once. It is built without allocating.
type fitIndex struct {
	items []listed   // the list
	level [][]demand // [0]: leaves; each a whole number of blocks
	room  [][]demand // what backs level
	head  int        // no VM is left before it

	// limit, where it is not empty, is a third number beside each demand: firstWithin
	// asks for it, too. A node has the least of its children's.
	limit [][]float64
}

// listed is an item in a list, with how many of its VMs are left.
type listed struct{ item, left int32 }

// demand is CPU and memory.
type demand struct{ cpu, memory float64 }

var nothingLeft = demand{math.Inf(1), math.Inf(1)}

// Children of a node.
const (
	fanShift = 3
	fan      = 1 << fanShift
)

// reset empties the index and makes room for lists of up to n items.
func (x *fitIndex) reset(n int) {
	x.items, x.limit = cleared(x.items, n)[:0:n], nil
	for k := 0; ; k++ {
		blocks := (n + fan - 1) / fan
		if k == len(x.room) {
			x.room = append(x.room, nil)
		}
		x.room[k] = cleared(x.room[k], blocks*fan)
		if blocks <= 1 {
			x.room = x.room[:k+1]
			break
		}
		n = blocks
	}
	x.level = cleared(x.level, len(x.room))[:0]
}

// build makes the index of the items and leaves that were set.
func (x *fitIndex) build() {
	x.level = x.level[:0]
	x.head = 0
	n := len(x.items)
	for k := 0; ; k++ {
		blocks := (n + fan - 1) / fan
		lv := x.room[k][:blocks*fan]
		for i := n; i < len(lv); i++ {
			lv[i] = nothingLeft
		}
		x.level = append(x.level, lv)
		if blocks <= 1 {
			return
		}
		up := x.room[k+1]
		for b := range blocks {
			up[b] = minDemand((*[fan]demand)(lv[b*fan:]))
		}
		n = blocks
	}
}

func minDemand(block *[fan]demand) demand {
	d := block[0]
	for i := 1; i < fan; i++ {
		d.cpu = min(d.cpu, block[i].cpu)
		d.memory = min(d.memory, block[i].memory)
	}
	return d
}

// first is the first place from i on whose VMs need at most cpu and memory;
// len(x.items) if there is none.
func (x *fitIndex) first(i int, cpu, memory float64) int {
	if i >= len(x.items) {
		return len(x.items)
	}
	k := 0
	lv := x.level[0]
	for {
		block := (*[fan]demand)(lv[i&^(fan-1):])
		c := i & (fan - 1)
		for ; c < fan; c++ {
			if d := &block[c]; d.cpu <= cpu && d.memory <= memory {
				break
			}
		}
		i = i&^(fan-1) + c
		if c == fan { // on with the parent's next sibling
			if k++; k == len(x.level) {
				return len(x.items)
			}
			lv = x.level[k]
			if i >>= fanShift; i >= len(lv) {
				return len(x.items)
			}
			continue
		}
		if k == 0 {
			return i
		}
		// it may be here, but CPU and memory may be of different children
		k--
		lv = x.level[k]
		i <<= fanShift
	}
}

// buildLimits makes the index of the limits of the leaves, of which there are as
// many as items. build must have come before.
func (x *fitIndex) buildLimits(leaf func(i int) float64) {
	if x.limit == nil {
		x.limit = make([][]float64, len(x.room))
		for k := range x.room {
			x.limit[k] = make([]float64, len(x.room[k]))
		}
	}
	for i := range x.level[0] {
		x.limit[0][i] = math.Inf(1)
		if i < len(x.items) {
			x.limit[0][i] = leaf(i)
		}
	}
	for k := 1; k < len(x.level); k++ {
		for b := range x.level[k] {
			x.limit[k][b] = math.Inf(1)
			if from := b << fanShift; from < len(x.level[k-1]) {
				x.limit[k][b] = slices.Min(x.limit[k-1][from : from+fan])
			}
		}
	}
}

// removeWithin is remove for a list with limits.
func (x *fitIndex) removeWithin(i int) {
	x.remove(i)
	x.limit[0][i] = math.Inf(1)
	for k := 1; k < len(x.level); k++ {
		i >>= fanShift
		from := i << fanShift
		lowest := slices.Min(x.limit[k-1][from : from+fan])
		if lowest == x.limit[k][i] {
			return
		}
		x.limit[k][i] = lowest
	}
}

// firstWithin is first among the items whose limit is at most the one given.
func (x *fitIndex) firstWithin(i int, cpu, memory, limit float64) int {
	k := 0
	for i < len(x.level[k]) {
		lv, lm := x.level[k], x.limit[k]
		end := i | (fan - 1)
		for ; i <= end; i++ {
			if lv[i].cpu <= cpu && lv[i].memory <= memory && lm[i] <= limit {
				break
			}
		}
		switch {
		case i > end:
			if k++; k == len(x.level) {
				return len(x.items)
			}
			i = end>>fanShift + 1
		case k == 0:
			return i
		default:
			k--
			i <<= fanShift
		}
	}
	return len(x.items)
}

// remove takes the item at place i out of the list.
func (x *fitIndex) remove(i int) {
	lv := x.level[0]
	old := lv[i]
	lv[i] = nothingLeft
	if i == x.head {
		for x.head++; x.head < len(x.items) && lv[x.head] == nothingLeft; x.head++ {
		}
	}
	for k := 1; k < len(x.level); k++ {
		up := x.level[k]
		b := i >> fanShift
		node := up[b]
		if old.cpu > node.cpu && old.memory > node.memory {
			return
		}
		d := minDemand((*[fan]demand)(lv[b<<fanShift:]))
		if d == node {
			return
		}
		up[b] = d
		old, lv, i = node, up, b
	}
}
