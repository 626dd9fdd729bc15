package search

import "math"

// crowd is a placement without rules for many hosts: the VMs of each host lie
// side by side, so that looking at a host is looking at one place in memory.
type crowd struct {
	m     *Model
	first []int32 // [host]: its first slot; [hosts]: one behind the last
	n     []int32 // [host]: slots in use
	slot  []guest
	load  []int64 // [host]
	free  []int64 // [host]: memory
}

// guest is a VM on a host.
type guest struct {
	w, s int64
	vm   int32
}

// extraSlots are for VMs that a host may get beyond those it has at first.
const extraSlots = 4

func crowdOf(m *Model, host []int32) *crowd {
	h := len(m.CPU)
	c := &crowd{m: m, first: make([]int32, h+1), n: make([]int32, h), load: make([]int64, h), free: make([]int64, h)}
	for _, j := range host {
		c.first[j+1]++
	}
	for j := range h {
		c.first[j+1] += c.first[j] + extraSlots
	}
	copy(c.free, m.Memory)
	c.slot = make([]guest, c.first[h])
	for vm, j := range host {
		g := guest{m.Weight[vm], m.Size[vm], int32(vm)}
		c.slot[c.first[j]+c.n[j]] = g
		c.n[j]++
		c.load[j] += g.w
		c.free[j] -= g.s
	}
	return c
}

func (c *crowd) on(j int32) []guest { return c.slot[c.first[j] : c.first[j]+c.n[j]] }

// hosts writes to host where each VM is.
func (c *crowd) hosts(host []int32) {
	for j := range c.n {
		for i := range c.on(int32(j)) {
			host[c.slot[c.first[j]+int32(i)].vm] = int32(j)
		}
	}
}

// queue holds hosts by how much weight they lack to an even level, those that
// lack most first, in steps: taking one and putting one takes a few operations.
type queue struct {
	head     []int32 // [step]: first host, -1: none
	next     []int32 // [host]
	top      int     // no host is in a step before it
	deficit0 float64 // what a host in step 0 lacks
	perOne   float64 // steps per weight
}

func newQueue(hosts int, highest, lowest float64) *queue {
	steps := min(max(1024, 4*hosts), 1<<19)
	q := &queue{head: make([]int32, steps), next: make([]int32, hosts), deficit0: highest, top: steps}
	if highest > lowest {
		q.perOne = float64(steps-1) / (highest - lowest)
	}
	for i := range q.head {
		q.head[i] = -1
	}
	return q
}

func (q *queue) put(j int32, deficits float64) {
	k := min(max(0, int((q.deficit0-deficits)*q.perOne)), len(q.head)-1)
	q.next[j] = q.head[k]
	q.head[k] = j
	q.top = min(q.top, k)
}

// byGreater lists the VMs by the greater of weight times perCPU and size times
// perMemory, greatest first. VMs that differ by less than 1 in 256 keep their
// order.
func (m *Model) byGreater(perCPU, perMemory float64) []int32 {
	// The bits of a positive float32 rise with it: exponent, then 8 bits of fraction.
	n := len(m.Weight)
	bits := make([]uint16, n)
	limit := uint16(0)
	for i := range bits {
		bits[i] = uint16(math.Float32bits(float32(max(float64(m.Weight[i])*perCPU, float64(m.Size[i])*perMemory))) >> 15)
		limit = max(limit, bits[i])
	}
	const steps = 1 << 13 // 32 octaves; what is smaller comes last
	var at [steps + 1]int32
	for _, b := range bits {
		at[min(int(limit-b), steps-1)+1]++
	}
	for k := range steps {
		at[k+1] += at[k]
	}
	order := make([]int32, n)
	for i, b := range bits {
		k := min(int(limit-b), steps-1)
		order[at[k]] = int32(i)
		at[k]++
	}
	return order
}

// choices is among how many hosts with about the same deficit the host of a VM is chosen where memory is
// scarce: by the memory that they have left.
const choices = 6

// choiceSteps is over how many steps of the queue they may be spread.
const choiceSteps = 64

// dealCrowd deals as deal does, without rules, to many hosts: each VM to a host
// that lacks about the most weight or, memoryFirst, has about the most memory
// left. nil: some VM found no host with the memory.
func (f *finder) dealCrowd(memoryFirst bool) []int32 {
	m := f.m
	n, h := len(m.Weight), len(m.CPU)
	var total, cpu, size, memory, largest, highest float64
	for i := range n {
		total += float64(m.Weight[i])
		size += float64(m.Size[i])
		largest = max(largest, float64(m.Weight[i]))
	}
	for j := range h {
		cpu += float64(m.CPU[j])
		memory += float64(m.Memory[j])
	}
	t := total / cpu
	// The shares of what the VMs need, as far as the memory is used up.
	order := m.byGreater(1/max(1, total), 1/max(1, memory))
	free := append([]int64(nil), m.Memory...)
	deficits := make([]float64, h) // weight
	key := func(j int32) float64 { return deficits[j] }
	if memoryFirst {
		key = func(j int32) float64 { return float64(free[j]) }
		largest = 0
	}
	for j := range h {
		deficits[j] = float64(m.CPU[j]) * t
		highest = max(highest, key(int32(j)))
	}
	q := newQueue(h, highest, -largest)
	for j := h - 1; j >= 0; j-- {
		q.put(int32(j), key(int32(j)))
	}
	left, mean := 1, int64(size/float64(n))
	if memoryFirst || size > memory/2 {
		left = choices
	}
	meanWeight := int64(total / float64(n))
	better := func(vm, j, than int32) bool {
		if memoryFirst {
			return (m.Weight[vm] >= meanWeight) == (deficits[j] > deficits[than])
		}
		return (m.Size[vm] >= mean) == (free[j] > free[than])
	}
	// least[b] is the least size in the order from block b on: hosts with less
	// memory are out of it.
	const block = 256
	lowest := make([]int64, n/block+2)
	lowest[n/block+1] = math.MaxInt64
	for b := n / block; b >= 0; b-- {
		lowest[b] = lowest[b+1]
		for _, vm := range order[b*block : min(n, b*block+block)] {
			lowest[b] = min(lowest[b], m.Size[vm])
		}
	}
	host := make([]int32, n)
	passed := 0 // hosts without the memory
	defer func() { f.steps -= int64(3*n + 2*passed) }()
	for k, vm := range order {
		s := m.Size[vm]
		at, before, step := int32(-1), int32(-1), 0
		left, started := left, false
	search:
		for b := q.top; b < len(q.head) && (at < 0 || b <= step+choiceSteps); b++ {
			prev := int32(-1)
			for j := q.head[b]; j >= 0; j = q.next[j] {
				if !started {
					started, q.top = true, b
				}
				if free[j] < s {
					if free[j] < lowest[k/block] {
						q.drop(b, prev, j)
					} else {
						prev = j
					}
					passed++
					continue
				}
				// Large VMs to hosts with much left of the other thing, small ones to those with little.
				if at < 0 || better(vm, j, at) {
					at, before, step = j, prev, b
				}
				if left--; left == 0 {
					break search
				}
				prev = j
			}
		}
		// The start is not cut short by a limit, unless it is a search in itself.
		if passed > 50*(n+h) || at < 0 {
			return nil
		}
		q.drop(step, before, at)
		host[vm] = at
		free[at] -= s
		deficits[at] -= float64(m.Weight[vm])
		q.put(at, key(at))
	}
	return host
}

// drop takes host j, the one after prev (-1: the first), out of a step.
func (q *queue) drop(step int, prev, j int32) {
	if prev < 0 {
		q.head[step] = q.next[j]
	} else {
		q.next[prev] = q.next[j]
	}
}
