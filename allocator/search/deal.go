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

// newQueue is empty; next has room for the hosts, which are in one queue at most.
func newQueue(hosts int, next []int32, highest, lowest float64) *queue {
	steps := min(max(1024, 4*hosts), 1<<19)
	q := &queue{head: make([]int32, steps), next: next, deficit0: highest, top: steps}
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

// choices is how many hosts with about the same deficit are compared for one VM where memory is scarce:
// see better.
const choices = 6

// choiceSteps is how many steps of the queue these hosts may lie apart.
const choiceSteps = 64

// dealer deals the VMs, largest first, to hosts in queues: one queue, or one for each class of hosts.
// Many fields: it is the work space of one deal.
type dealer struct {
	m           *Model
	memoryFirst bool // each VM goes to a host with about the most memory left, else to one that lacks about the most weight
	total       float64
	size        float64
	free        []int64   // [host]: memory
	deficits    []float64 // [host]: weight
	queues      []*queue
	choices     int
	meanSize    int64
	meanWeight  int64
	passed      int // hosts without the memory
}

func newDealer(m *Model, memoryFirst bool) *dealer {
	n, h := len(m.Weight), len(m.CPU)
	d := &dealer{m: m, memoryFirst: memoryFirst, free: append([]int64(nil), m.Memory...), deficits: make([]float64, h), choices: 1}
	var cpu, memory float64
	for i := range n {
		d.total += float64(m.Weight[i])
		d.size += float64(m.Size[i])
	}
	for j := range h {
		cpu += float64(m.CPU[j])
		memory += float64(m.Memory[j])
	}
	for j := range h {
		d.deficits[j] = float64(m.CPU[j]) * (d.total / cpu)
	}
	d.meanSize, d.meanWeight = int64(d.size/float64(n)), int64(d.total/float64(n))
	if memoryFirst || d.size > memory/2 {
		d.choices = choices
	}
	return d
}

func (d *dealer) key(j int32) float64 {
	if d.memoryFirst {
		return float64(d.free[j])
	}
	return d.deficits[j]
}

// line puts the hosts of each class in a queue. next has room for all hosts.
func (d *dealer) line(classes [][]int32) {
	largest := int64(0)
	if !d.memoryFirst {
		for _, w := range d.m.Weight {
			largest = max(largest, w)
		}
	}
	next := make([]int32, len(d.m.CPU))
	for _, class := range classes {
		highest := 0.0
		for _, j := range class {
			highest = max(highest, d.key(j))
		}
		q := newQueue(len(class), next, highest, -float64(largest))
		for i := len(class) - 1; i >= 0; i-- {
			q.put(class[i], d.key(class[i]))
		}
		d.queues = append(d.queues, q)
	}
}

// better reports whether host j suits the VM better than another host that has about as much left. A VM of more
// than the mean size gets the host with more memory left, a smaller one the host with less. With memoryFirst,
// weight takes the place of memory.
func (d *dealer) better(vm, j, than int32) bool {
	if d.memoryFirst {
		return (d.m.Weight[vm] >= d.meanWeight) == (d.deficits[j] > d.deficits[than])
	}
	return (d.m.Size[vm] >= d.meanSize) == (d.free[j] > d.free[than])
}

// place puts the VM on a host of the queue. Hosts with less memory than minSize are out of it for good.
// It reports whether the VM found a host.
func (d *dealer) place(q *queue, vm int32, minSize int64) (on int32, found bool) {
	s := d.m.Size[vm]
	at, before, step := int32(-1), int32(-1), 0
	left, started := d.choices, false
search:
	for b := q.top; b < len(q.head) && (at < 0 || b <= step+choiceSteps); b++ {
		prev := int32(-1)
		for j := q.head[b]; j >= 0; j = q.next[j] {
			if !started {
				started, q.top = true, b
			}
			if d.free[j] < s {
				if d.free[j] < minSize {
					q.drop(b, prev, j)
				} else {
					prev = j
				}
				d.passed++
				continue
			}
			if at < 0 || d.better(vm, j, at) {
				at, before, step = j, prev, b
			}
			if left--; left == 0 {
				break search
			}
			prev = j
		}
	}
	if at < 0 {
		return -1, false
	}
	q.drop(step, before, at)
	d.free[at] -= s
	d.deficits[at] -= float64(d.m.Weight[vm])
	q.put(at, d.key(at))
	return at, true
}

// minBlock is of how many VMs in a row the least size is known.
const minBlock = 256

// minSizesFrom is, per block, the least size in the order from that block on.
func (m *Model) minSizesFrom(order []int32) []int64 {
	n := len(order)
	lowest := make([]int64, n/minBlock+2)
	lowest[n/minBlock+1] = math.MaxInt64
	for b := n / minBlock; b >= 0; b-- {
		lowest[b] = lowest[b+1]
		for _, vm := range order[b*minBlock : min(n, b*minBlock+minBlock)] {
			lowest[b] = min(lowest[b], m.Size[vm])
		}
	}
	return lowest
}

// dealCrowd deals as deal does, without rules, to many hosts: each VM to a host
// that lacks about the most weight or, memoryFirst, has about the most memory
// left; with a mix, to one of the class that the mix says. nil: some VM found no host with the memory.
func (f *finder) dealCrowd(memoryFirst bool, x *mix) []int32 {
	m := f.m
	n, h := len(m.Weight), len(m.CPU)
	d := newDealer(m, memoryFirst)
	if x != nil {
		d.line(x.hosts)
	} else {
		d.line([][]int32{all(h)})
	}
	// The shares of what the VMs need, as far as the memory is used up.
	memory := 0.0
	for _, s := range m.Memory {
		memory += float64(s)
	}
	order := m.byGreater(1/max(1, d.total), 1/max(1, memory))
	minSizes := m.minSizesFrom(order)
	host := make([]int32, n)
	defer func() { f.steps -= int64(3*n + 2*d.passed) }()
	for k, vm := range order {
		c := 0
		if x != nil {
			c = x.class(m, vm)
		}
		at, found := d.place(d.queues[c], vm, minSizes[k/minBlock])
		// A class that has no memory left: those with more of it, then those with less.
		for o := 1; !found && o < len(d.queues); o++ {
			b := c + o
			if b >= len(d.queues) {
				b = len(d.queues) - 1 - o
			}
			at, found = d.place(d.queues[b], vm, minSizes[k/minBlock])
		}
		// The start is not cut short by a limit, unless it is a search in itself.
		if d.passed > 50*(n+h) || !found {
			return nil
		}
		host[vm] = at
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
