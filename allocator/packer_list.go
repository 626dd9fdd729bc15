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

// byGreater tells whether the lists are ordered by the greater of the two
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
		switch least := min(cpu, memory); {
		case least > 0:
			return max(cpu, memory) / least
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
	need demand
	item int32
}

// ordered is an item of a list that is sorted once for many packings.
type ordered struct {
	need        demand
	item, count int32
}

func compareEntries(a, b entry) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.need.cpu, b.need.cpu), cmp.Compare(a.need.memory, b.need.memory), cmp.Compare(a.item, b.item))
}

// sortEntries sorts by key, CPU, memory and item, the first three in the
// direction given.
func sortEntries(s []entry, descending bool) {
	byKey := compareEntries
	if descending {
		byKey = func(a, b entry) int {
			switch {
			case a.key > b.key:
				return -1
			case a.key < b.key:
				return 1
			}
			return cmp.Or(cmp.Compare(b.need.cpu, a.need.cpu), cmp.Compare(b.need.memory, a.need.memory), cmp.Compare(a.item, b.item))
		}
	}
	slices.SortFunc(s, byKey)
}

// sortItems orders all items by CPU and by memory, for the orders 4 and 8.
func (k *packer) sortItems() {
	if k.byCPU == nil {
		k.byCPU = make([]ordered, len(k.items))
		k.byMemory = make([]ordered, len(k.items))
		k.entries = make([]entry, len(k.items))
		for i := range k.items {
			k.byCPU[i].item, k.byMemory[i].item = int32(i), int32(i)
		}
	}
	sorted := func(list []ordered, key []float64) {
		for at := range list {
			i := list[at].item // in the order of the last time: much of it has often not changed
			k.entries[at] = entry{key[i], demand{k.need[i], k.size[i]}, i}
		}
		sortEntries(k.entries[:len(list)], k.lists.descending())
		for at := range list {
			e := &k.entries[at]
			list[at] = ordered{e.need, e.item, int32(k.count[e.item])}
		}
	}
	sorted(k.byCPU, k.need)
	sorted(k.byMemory, k.size)
	k.sorted = true
}

// list splits the VMs that are left into the two lists, as hosts of shape s see
// them.
func (k *packer) list(s int) {
	k.settle()
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
				d := demand{k.need[i], k.size[i]}
				k.entries = append(k.entries, entry{k.lists.key(fraction(d.cpu, cpu), fraction(d.memory, memory)), d, int32(i)})
			}
		}
		sortEntries(k.entries, k.lists.descending())
		for i := range k.entries {
			e := &k.entries[i]
			it := listed{e.item, int32(k.left[e.item])}
			if e.need.cpu*memory > e.need.memory*cpu {
				c.room[0][nc], c.items[nc] = e.need, it
				nc++
			} else {
				m.room[0][nm], m.items[nm] = e.need, it
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
	items, leaves := x.items[:len(list)], x.room[0][:max(len(list), 0)]
	untouched := len(k.runs) == 0
	for i := range list {
		e := &list[i]
		left := e.count
		if !untouched {
			left = int32(k.left[e.item])
		}
		leaves[n], items[n] = e.need, listed{e.item, left}
		if (e.need.cpu*memory > e.need.memory*cpu) == greater && left > 0 {
			n++
		}
	}
	return n
}

// settle notes in k.left what the lists have left.
func (k *packer) settle() {
	if k.listed < 0 {
		return
	}
	for _, x := range []*fitIndex{&k.cpuList, &k.memoryList} {
		for _, it := range x.items {
			k.left[it.item] = int(it.left)
		}
	}
}
