package allocator

import "slices"

// packer packs VMs of given CPU and memory onto hosts, beside VMs that stay, as
// sec. 3.4 describes for a given yield. It may be used again and again, with other
// CPU needs or another scale, and allocates next to nothing then.
//
// It places every VM where a walk through the lists from their beginning would
// place it, but finds the first VM that fits by an index, and stops as soon as
// the VMs that are left cannot fit into the hosts that are left.
// Many fields: it is work space that is kept from one packing to the next, so that a packing allocates nothing.
type packer struct {
	p      *Problem
	fixed  [][]load // [group]: VMs that stay; nil: none
	lists  ListOrder
	orders []HostOrder
	closed []bool // [host]: takes no new VM
	exempt []bool // [host]: may lack CPU for the VMs that stay
	items  []int  // groups with VMs to be placed
	count  []int  // [item]: VMs to be placed
	all    int    // VMs to be placed
	total  int    // VMs not placed yet

	need  []float64 // [item]: CPU that one VM must have
	size  []float64 // [item]: memory of one VM
	scale float64   // all CPU capacities count this many times; may be infinite

	shapeOf []int // [host]: index of its capacity among the distinct ones
	shapes  []shape
	memory  []float64 // [host]: free beside the VMs that stay

	// The lists, valid for hosts of shape listed, or noShape or allShapes, in the
	// current packing.
	byCPU, byMemory     []ordered // all items, see ListOrder.byGreater
	sorted              bool      // byCPU and byMemory hold for need
	apart               bool      // lists of their own for each shape, always
	entries, scratch    []entry
	listed              int
	cpuList, memoryList fitIndex

	placeCPU, placeMemory []int32 // [item]: in the lists for all shapes

	// State of the current or last packing.
	freeCPU, freeMemory []float64 // [host]
	left                []int     // [item]: VMs not placed yet, those in the lists as of recordLeft
	runs, others        []run     // others: what an earlier packing has, see best
	order               []int
	rank                []float64
	worst               float64 // greatest of the hosts' new need over capacity (not scaled)
}

// run is n VMs of an item on a host.
type run struct{ item, host, n int32 }

// What packer.listed may be beside a shape.
const (
	noShape   = -1
	allShapes = -2
)

// shape is one distinct host capacity.
type shape struct{ cpu, memory float64 }

func newPacker(p *Problem, fixed [][]load, counts []int) *packer {
	k := new(packer)
	k.reset(p, fixed, counts)
	return k
}

// reset makes k the packer of another problem. Of what it was only the memory is left.
func (k *packer) reset(p *Problem, fixed [][]load, counts []int) {
	n, was := len(p.Hosts), *k
	*k = packer{
		p: p, fixed: fixed, lists: 8, orders: defaultHostOrders, scale: 1, listed: noShape,
		closed: cleared(was.closed, n), exempt: cleared(was.exempt, n), shapeOf: cleared(was.shapeOf, n), shapes: was.shapes[:0],
		memory: cleared(was.memory, n), freeCPU: cleared(was.freeCPU, n), freeMemory: cleared(was.freeMemory, n),
		order: cleared(was.order, n), rank: cleared(was.rank, n),
	}
	items := 0
	for _, c := range counts {
		if c > 0 {
			items++
		}
	}
	k.items, k.count = cleared(was.items, items), cleared(was.count, items)
	items = 0
	for g, c := range counts {
		if c > 0 {
			k.items[items], k.count[items] = g, c
			items++
			k.all += c
		}
	}
	k.left = cleared(was.left, items)
	k.need, k.size = cleared(was.need, items), cleared(was.size, items)
	for i, g := range k.items {
		k.need[i], k.size[i] = p.Groups[g].CPU, p.Groups[g].Memory
	}
	k.byCPU, k.byMemory = cleared(was.byCPU, items), cleared(was.byMemory, items)
	for i := range k.byCPU {
		k.byCPU[i].item, k.byMemory[i].item = int32(i), int32(i)
	}
	k.entries, k.scratch = cleared(was.entries, items), cleared(was.scratch, items)
	k.cpuList, k.memoryList = was.cpuList, was.memoryList
	k.cpuList.reset(items)
	k.memoryList.reset(items)
	k.runs, k.others = slices.Grow(was.runs[:0], items), was.others[:0]
	k.findShapes()
	for g := range fixed {
		for _, l := range fixed[g] {
			k.memory[l.host] -= float64(float64(l.n) * p.Groups[g].Memory)
		}
	}
}

// cleared is a slice of n zeros, in the memory of s where that is enough.
func cleared[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (k *packer) findShapes() {
	var known map[shape]int
	for j := range k.p.Hosts {
		h := &k.p.Hosts[j]
		k.closed[j] = h.Cordoned
		k.memory[j] = h.Memory
		c := shape{h.CPU, h.Memory}
		if s := len(k.shapes) - 1; s >= 0 && k.shapes[s] == c {
			k.shapeOf[j] = s // the common case: a row of equal hosts
			continue
		}
		if known == nil {
			known = make(map[shape]int)
		}
		s, ok := known[c]
		if !ok {
			s = len(k.shapes)
			known[c] = s
			k.shapes = append(k.shapes, c)
		}
		k.shapeOf[j] = s
	}
}

// capacity is the scaled CPU of hosts of shape s.
func (k *packer) capacity(s int) float64 { return scaled(k.shapes[s].cpu, k.scale) }

// scaled is a CPU capacity times a scale that may be infinite.
func scaled(cpu, scale float64) float64 {
	if scale > GreatestNumber {
		return scale
	}
	return cpu * scale
}

// pack places the VMs, need[group] being the CPU that one VM must have. It
// fails at once if a host cannot give the VMs that stay what they must have.
func (k *packer) pack(need []float64) bool {
	for try := range k.orders {
		if !k.begin(need) {
			return false
		}
		differ := k.arrange(k.orders[try])
		if k.fill(true) {
			return true
		}
		if !differ {
			break
		}
	}
	return false
}

// packScaled places the VMs with the needs as they are and scaled capacities.
// There must be no VM that stays.
func (k *packer) packScaled(scale float64) bool {
	k.scale = scale
	for try := range k.orders {
		k.empty()
		differ := k.arrange(k.orders[try])
		if k.fill(true) {
			return true
		}
		if !differ {
			break
		}
	}
	return false
}

// begin takes all new VMs off the hosts. It reports whether the VMs that stay fit.
func (k *packer) begin(need []float64) bool {
	for i, g := range k.items {
		if k.need[i] != need[g] {
			k.need[i] = need[g]
			k.sorted = false
		}
	}
	k.empty()
	for g := range k.fixed {
		for _, l := range k.fixed[g] {
			k.freeCPU[l.host] -= float64(float64(l.n) * need[g])
		}
	}
	hosts := k.p.Hosts
	for j := range hosts {
		if k.freeCPU[j] < -roundingSlack*hosts[j].CPU && !k.exempt[j] {
			return false
		}
	}
	return true
}

func (k *packer) empty() {
	for j := range k.p.Hosts {
		k.freeCPU[j] = scaled(k.p.Hosts[j].CPU, k.scale)
	}
	copy(k.freeMemory, k.memory)
	copy(k.left, k.count)
	k.total = k.all
	k.runs = k.runs[:0]
	k.listed = noShape
	k.worst = 0
}

func fraction(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// hopelessSlack widens what the hosts that are left could take, so that no sum's
// rounding makes a packing be given up that would have succeeded.
const hopelessSlack = 1e-9

// fill takes host after host in k.order and puts VMs on it as long as any fits,
// always looking first in the list of the VMs that need more of what the host
// has more of left. With giveUp it stops when the rest cannot fit any more.
func (k *packer) fill(giveUp bool) bool {
	var rest, room demand
	if giveUp {
		for i, n := range k.left {
			rest.cpu += float64(n) * k.need[i]
			rest.memory += float64(n) * k.size[i]
		}
		for j, closed := range k.closed {
			if !closed {
				room.cpu += max(0, k.freeCPU[j])
				room.memory += max(0, k.freeMemory[j])
			}
		}
	}
	slack := demand{hopelessSlack * room.cpu, hopelessSlack * room.memory}
	for _, j := range k.order {
		if k.total == 0 {
			break
		}
		if k.closed[j] {
			continue
		}
		// The difference is infinite or no number where the CPU is without limit.
		if giveUp && (rest.cpu-room.cpu > slack.cpu || rest.memory-room.memory > slack.memory) {
			return false
		}
		room.cpu -= max(0, k.freeCPU[j])
		room.memory -= max(0, k.freeMemory[j])
		used := k.fillHost(j)
		rest.cpu -= used.cpu
		rest.memory -= used.memory
	}
	if !giveUp {
		k.recordLeft()
	}
	return k.total == 0
}

// fillHost fills host j and returns what its new VMs need.
func (k *packer) fillHost(j int) (used demand) {
	s := k.shapeOf[j]
	shared := k.shares()
	var withinCPU, withinMemory float64
	if shared {
		if k.listed != allShapes {
			k.listAll()
		}
		withinCPU, withinMemory = k.limits(s)
	} else if k.listed != s {
		k.list(s)
	}
	capacity, total := k.capacity(s), k.shapes[s].memory
	cpu, memory := k.freeCPU[j], k.freeMemory[j]
	cpuSlack, memorySlack := roundingSlack*capacity, roundingSlack*total
	next := func(list *fitIndex, at int, within float64) int {
		if shared {
			return list.firstWithin(at, cpu+cpuSlack, memory+memorySlack, within)
		}
		return list.first(at, cpu+cpuSlack, memory+memorySlack)
	}
	// What does not fit now fits no better once more is on the host, so each
	// list is walked once.
	cpuItems, memoryItems := k.cpuList.items, k.memoryList.items
	atCPU, atMemory := k.cpuList.head, k.memoryList.head
	for {
		// cpu/capacity >= memory/total without dividing by a zero capacity.
		fromCPU := cpu*total >= memory*capacity
		if fromCPU {
			if atCPU = next(&k.cpuList, atCPU, withinCPU); atCPU == len(cpuItems) {
				if atMemory = next(&k.memoryList, atMemory, withinMemory); atMemory == len(memoryItems) {
					break
				}
				fromCPU = false
			}
		} else if atMemory = next(&k.memoryList, atMemory, withinMemory); atMemory == len(memoryItems) {
			if atCPU = next(&k.cpuList, atCPU, withinCPU); atCPU == len(cpuItems) {
				break
			}
			fromCPU = true
		}
		list, at := &k.memoryList, atMemory
		if fromCPU {
			list, at = &k.cpuList, atCPU
		}
		d, it := list.level[0][at], &list.items[at]
		cpu -= d.cpu
		memory -= d.memory
		used.cpu += d.cpu
		used.memory += d.memory
		k.total--
		if r := len(k.runs) - 1; r >= 0 && k.runs[r].item == it.item && int(k.runs[r].host) == j {
			k.runs[r].n++
		} else {
			k.runs = append(k.runs, run{it.item, int32(j), 1})
		}
		if shared {
			if k.left[it.item]--; k.left[it.item] == 0 {
				k.cpuList.removeWithin(int(k.placeCPU[it.item]))
				k.memoryList.removeWithin(int(k.placeMemory[it.item]))
			}
		} else if it.left--; it.left == 0 {
			list.remove(at)
		}
	}
	k.freeCPU[j], k.freeMemory[j] = cpu, memory
	if c := k.p.Hosts[j].CPU; c > 0 {
		k.worst = max(k.worst, used.cpu/c)
	}
	return used
}

// loads is the last packing by group, added to base (which is not changed; nil: nothing).
func (k *packer) loads(base [][]load) [][]load { return k.loadsOf(k.runs, base) }

func (k *packer) loadsOf(runs []run, base [][]load) [][]load {
	loads := make([][]load, len(k.p.Groups))
	copy(loads, base)
	room := make([]load, 0, len(runs)) // one allocation for all groups that are in base not at all
	n := make([]int, len(k.items))
	for _, r := range runs {
		n[r.item]++
	}
	for i, g := range k.items {
		if len(loads[g]) == 0 {
			at := len(room)
			room = room[:at+n[i]]
			loads[g] = room[at:at:len(room)]
		} else {
			loads[g] = slices.Clone(loads[g])
		}
	}
	for _, r := range runs {
		g := k.items[r.item]
		// A run of another item may have come between two of one item and host.
		if last := len(loads[g]) - 1; last >= 0 && loads[g][last].host == int(r.host) {
			loads[g][last].n += int(r.n)
			continue
		}
		// A host may hold VMs of the group already.
		if base != nil {
			if at := slices.IndexFunc(loads[g], func(l load) bool { return l.host == int(r.host) }); at >= 0 {
				loads[g][at].n += int(r.n)
				continue
			}
		}
		loads[g] = append(loads[g], load{int(r.host), int(r.n)})
	}
	return loads
}

// spread turns loads into a host per VM. VMs that have a host keep it, unless
// again is set; the others are given hosts in the order of the loads.
func spread(p *Problem, loads [][]load, again bool) [][]int {
	hosts := make([][]int, len(p.Groups))
	kept := make([]int, len(p.Hosts))
	total := 0
	for g := range p.Groups {
		total += p.Groups[g].Count
	}
	room := make([]int, total)
	for g := range p.Groups {
		n := p.Groups[g].Count
		hosts[g], room = room[:n:n], room[n:]
		given := p.Groups[g].Hosts
		if again {
			given = nil
		}
		for _, j := range given {
			if j >= 0 {
				kept[j]++
			}
		}
		vm := 0
		for _, l := range loads[g] {
			for n := l.n - kept[l.host]; n > 0; n-- {
				for given != nil && given[vm] >= 0 {
					hosts[g][vm] = given[vm]
					vm++
				}
				hosts[g][vm] = l.host
				vm++
			}
			kept[l.host] = 0
		}
		for ; vm < len(hosts[g]); vm++ {
			hosts[g][vm] = given[vm]
		}
	}
	return hosts
}
