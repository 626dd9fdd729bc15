package allocator

import (
	"cmp"
	"math"
	"slices"
)

// ListOrder is the order of the two lists of sec. 3.4: 1 to 8 for MCB1 to MCB8.
//
//	1, 5: memory + CPU
//	2, 6: max(memory, CPU) - min(memory, CPU)
//	3, 7: max(memory, CPU) / min(memory, CPU)
//	4, 8: max(memory, CPU)
//
// 1 to 4 are ascending, 5 to 8 descending; CPU is the need at the yield searched
// for, both are fractions of the host. Ties go by CPU, then memory, in the same
// direction, so that the packing does not depend on the order of the groups.
type ListOrder int

func (o ListOrder) descending() bool { return o > 4 }

// byGreater says whether the lists are ordered by the greater of the two
// fractions. In the list where CPU is the greater that is the order of the CPU
// needs, in the other that of the memory: the yield and the host change which VM
// is in which list, but not the order.
func (o ListOrder) byGreater() bool { return o == 4 || o == 8 }

// key is what the lists are ordered by.
func (o ListOrder) key(cpu, memory float64) float64 {
	switch o {
	case 1, 5:
		return cpu + memory
	case 2, 6:
		return math.Abs(cpu - memory)
	case 3, 7:
		switch lowest := min(cpu, memory); {
		case lowest > 0:
			return max(cpu, memory) / lowest
		case cpu == memory:
			return 1
		}
		return math.Inf(1)
	}
	return max(cpu, memory)
}

// entry is an item in a sorted list.
type entry struct {
	key  float64
	item int32
}

// ordered is an item of a list that is sorted once for many packings.
type ordered struct {
	need        demand
	item, count int32
}

// sortEntries sorts by key, CPU and memory, all in the direction given, and then
// by item. What it returns is s or scratch, which must be as long.
func (k *packer) sortEntries(s, scratch []entry, descending bool) []entry {
	sign := 1
	if descending {
		sign = -1
	}
	compare := func(a, b entry) int {
		switch {
		case a.key < b.key:
			return -sign
		case a.key > b.key:
			return sign
		}
		if c := cmp.Or(cmp.Compare(k.need[a.item], k.need[b.item]), cmp.Compare(k.size[a.item], k.size[b.item])); c != 0 {
			return sign * c
		}
		return cmp.Compare(a.item, b.item)
	}
	if len(s) >= fewEntries {
		if sorted, ends := spreadEntries(s, scratch, descending); sorted {
			from := int32(0)
			for _, to := range ends {
				if to-from > 12 {
					slices.SortFunc(scratch[from:to], compare)
				} else {
					insert(scratch[from:to], sign, compare)
				}
				from = to
			}
			return scratch
		}
	}
	slices.SortFunc(s, compare)
	return s
}

// insert sorts few entries: mostly two or three, whose keys differ.
func insert(s []entry, sign int, compare func(a, b entry) int) {
	for i := 1; i < len(s); i++ {
		for k := i; k > 0; k-- {
			a, b := &s[k-1], &s[k]
			if a.key != b.key {
				if (a.key < b.key) == (sign > 0) {
					break
				}
			} else if compare(*a, *b) < 0 {
				break
			}
			*a, *b = *b, *a
		}
	}
}

// fewEntries are sorted by comparing alone.
const fewEntries = 64

// spreadEntries puts the entries into scratch by sections of the range of keys, in
// order: what is left is to sort the sections, most of which are a few entries
// long. ends is where each section ends. It does nothing where the keys have no
// range, or an infinite one, or come sorted.
func spreadEntries(s, scratch []entry, descending bool) (done bool, ends []int32) {
	lowest, greatest, inOrder := s[0].key, s[0].key, true
	for i := 1; i < len(s); i++ {
		lowest, greatest = min(lowest, s[i].key), max(greatest, s[i].key)
		inOrder = inOrder && (s[i].key >= s[i-1].key) != descending
	}
	sections := len(s) / 2
	perKey := float64(sections-1) / (greatest - lowest)
	if inOrder || !(perKey > 0) || math.IsInf(perKey, 1) {
		return false, nil
	}
	of := func(key float64) int {
		if descending {
			return int((greatest - key) * perKey)
		}
		return int((key - lowest) * perKey)
	}
	ends = make([]int32, sections+1)
	for i := range s {
		ends[of(s[i].key)+1]++
	}
	for i := 1; i <= sections; i++ {
		ends[i] += ends[i-1]
	}
	// ends[k] is where section k begins, and moves to where it ends.
	for i := range s {
		k := of(s[i].key)
		scratch[ends[k]] = s[i]
		ends[k]++
	}
	return true, ends[:sections]
}

// sortItems orders all items by CPU and by memory, for the orders 4 and 8.
func (k *packer) sortItems() {
	sorted := func(list []ordered, key []float64) {
		for at := range list {
			i := list[at].item // in the order of the last time: much of it has often not changed
			k.entries[at] = entry{key[i], i}
		}
		entries := k.sortEntries(k.entries[:len(list)], k.scratch[:len(list)], k.lists.descending())
		for at := range list {
			i := entries[at].item
			list[at] = ordered{demand{k.need[i], k.size[i]}, i, int32(k.count[i])}
		}
	}
	sorted(k.byCPU, k.need)
	sorted(k.byMemory, k.size)
	k.sorted = true
}

// list splits the VMs that are left into the two lists, as hosts of shape s see
// them.
func (k *packer) list(s int) {
	k.recordLeft()
	k.listed = s
	c, m := &k.cpuList, &k.memoryList
	c.items, m.items = c.items[:cap(c.items)], m.items[:cap(m.items)]
	nc, nm := 0, 0
	// need/cpu > memory/capacity, without dividing by a capacity of zero.
	cpu, memory := k.capacity(s), k.shapes[s].memory
	if k.lists.byGreater() {
		if !k.sorted {
			k.sortItems()
		}
		nc = k.pick(c, k.byCPU, cpu, memory, true)
		nm = k.pick(m, k.byMemory, cpu, memory, false)
	} else {
		k.entries = k.entries[:0]
		for i, n := range k.left {
			if n > 0 {
				k.entries = append(k.entries, entry{k.lists.key(fraction(k.need[i], cpu), fraction(k.size[i], memory)), int32(i)})
			}
		}
		entries := k.sortEntries(k.entries, k.scratch[:len(k.entries)], k.lists.descending())
		for i := range entries {
			e := &entries[i]
			d, it := demand{k.need[e.item], k.size[e.item]}, listed{e.item, int32(k.left[e.item])}
			if d.cpu*memory > d.memory*cpu {
				c.room[0][nc], c.items[nc] = d, it
				nc++
			} else {
				m.room[0][nm], m.items[nm] = d, it
				nm++
			}
		}
	}
	c.items, m.items = c.items[:nc], m.items[:nm]
	c.build()
	m.build()
}

// pick fills x with the items of the list that need a greater fraction of the
// CPU than of the memory, or with the others, and returns how many there are.
func (k *packer) pick(x *fitIndex, list []ordered, cpu, memory float64, greater bool) (n int) {
	items, leaves := x.items[:len(list)], x.room[0][:len(list)]
	untouched := len(k.runs) == 0
	for i := range list {
		e := &list[i]
		leaves[n], items[n] = e.need, listed{e.item, e.count}
		more := 0 // no branch: half of the items are of the list, in no order
		if (e.need.cpu*memory > e.need.memory*cpu) == greater {
			more = 1
		}
		if !untouched {
			if items[n].left = int32(k.left[e.item]); items[n].left == 0 {
				more = 0
			}
		}
		n += more
	}
	return n
}

// recordLeft notes in k.left what the lists have left.
func (k *packer) recordLeft() {
	if k.listed < 0 {
		return // no lists, or such as leave k.left true
	}
	for _, x := range []*fitIndex{&k.cpuList, &k.memoryList} {
		for _, it := range x.items {
			k.left[it.item] = int(it.left)
		}
	}
}

// manyShapes is from how many different capacities on the lists are made once for
// all of them.
const manyShapes = 9

// shares says whether one pair of lists, of all items each, serves hosts of all
// shapes: the order is the same for all, and which list a VM belongs to is looked
// up while searching.
func (k *packer) shares() bool {
	return !k.apart && k.lists.byGreater() && (len(k.shapes) >= manyShapes || len(k.shapes) > 1 && k.fixed != nil)
}

// ratio is how much CPU a VM needs per memory: more than a host has puts it into
// the CPU list.
func (d demand) ratio() float64 {
	if d.cpu == 0 {
		return 0
	}
	return d.cpu / d.memory
}

// listAll makes the lists for hosts of all shapes. The limit of an item is its
// ratio in the memory list, and the negative of it in the CPU list.
func (k *packer) listAll() {
	k.listed = allShapes
	if !k.sorted {
		k.sortItems()
	}
	if k.placeCPU == nil {
		k.placeCPU, k.placeMemory = make([]int32, len(k.items)), make([]int32, len(k.items))
	}
	fill := func(x *fitIndex, list []ordered, place []int32, sign float64) {
		x.items = x.items[:len(list)]
		for i := range list {
			e := &list[i]
			x.room[0][i], x.items[i] = e.need, listed{e.item, e.count}
			place[e.item] = int32(i)
		}
		x.build()
		x.buildLimits(func(i int) float64 { return sign * list[i].need.ratio() })
	}
	fill(&k.cpuList, k.byCPU, k.placeCPU, -1)
	fill(&k.memoryList, k.byMemory, k.placeMemory, 1)
}

// limits are those within which an item is of the CPU list and of the memory list
// of a host of shape s.
func (k *packer) limits(s int) (cpu, memory float64) {
	t := k.capacity(s) / k.shapes[s].memory
	if math.IsNaN(t) || math.IsInf(t, 1) {
		return math.NaN(), math.Inf(1) // no limit to the CPU, or no memory: one list, by memory
	}
	return math.Nextafter(-t, math.Inf(-1)), t // -ratio < -t, ratio <= t
}
