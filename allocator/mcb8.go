package allocator

import (
	"cmp"
	"slices"
)

// searchTolerance ends the binary search for the yield. It bounds how far the
// search's own target may lie below the greatest yield that the packing
// reaches; the yield of the placement found is then computed exactly.
const searchTolerance = 1e-6

// MCB8 places all VMs of p, wherever they are now, by the multi-capacity bin
// packing heuristic of sec. 3.4 with the list order that the paper found best
// (MCB8: max(memory, CPU), descending), searching for the greatest minimum
// yield by bisection, and then divides the CPU as Allocate does. Cordoned hosts
// take no VM. A virtual cluster is packed at its MinYield where that is above
// the yield searched for. ok is false if the heuristic finds no placement,
// which proves nothing, or if p is malformed.
//
// Beside the paper: the upper end of the search is tried before its middle,
// and zero if all else fails; a placement's own yield, which may exceed the
// target, raises the lower end; hosts that differ are filled from the
// smallest, then from the largest; each sees the needs as fractions of itself.
func MCB8(p Problem) (s Solution, ok bool) {
	if p.Validate() != nil {
		return Solution{}, false
	}
	loads, ok := mcb8(&p)
	if !ok {
		return Solution{}, false
	}
	return solutionOf(&p, loads, spread(&p, loads, true)), true
}

func mcb8(p *Problem) ([][]load, bool) {
	t := tenancyOf(p.Groups)
	counts := make([]int, len(p.Groups))
	floor := make([]float64, len(p.Groups))
	for g := range p.Groups {
		counts[g] = p.Groups[g].Count
		floor[g] = t.floor[t.of[g]]
	}
	pk := newPacker(p, nil, counts)
	need := make([]float64, len(p.Groups))
	var best [][]load
	bestYield := -1.0
	// try returns the minimum yield that the packing found at y can really
	// have, -1 if there is none.
	try := func(y float64) float64 {
		for g := range p.Groups {
			need[g] = max(y, floor[g]) * p.Groups[g].CPU
		}
		if !pk.pack(need) {
			return -1
		}
		loads := pk.loads(nil)
		realized := maxMin(p, loads, floor)
		if realized > bestYield {
			best, bestYield = loads, realized
		}
		return max(y, realized)
	}
	searchYield(Bound(*p), try)
	return best, best != nil
}

// searchYield bisects [0, hi] for the greatest yield at which try finds a
// placement, starting at the half (sec. 3.4). try returns -1 for failure, else
// a yield, not below the one asked for, from which to go on.
func searchYield(hi float64, try func(y float64) float64) {
	if try(hi) >= 0 {
		return
	}
	lo, found := 0.0, false
	for hi-lo > searchTolerance {
		mid := lo + (hi-lo)/2
		if y := try(mid); y >= 0 {
			lo, found = y, true
		} else {
			hi = mid
		}
	}
	if !found {
		try(0)
	}
}

// packer packs VMs of given CPU and memory onto hosts, beside VMs that stay.
// It may be used again and again with other CPU needs.
type packer struct {
	p      *Problem
	fixed  [][]load // [group]: VMs that stay; nil: none
	closed []bool   // [host]: takes no new VM
	exempt []bool   // [host]: may lack CPU for the VMs that stay
	items  []int    // groups with VMs to be placed
	count  []int    // [item]: VMs to be placed

	shapeOf []int // [host]: index of its capacity among the distinct ones
	shapes  []shape

	memory []float64 // [host]: free beside the VMs that stay

	// State of the current or last packing.
	freeCPU, freeMemory []float64 // [host]
	left                []int     // [item]: VMs not placed yet
	total               int       // sum of left
	runs                []run
	order               []int
	size                []float64
	taken               []int // [item]: VMs placed on the current host
	touched             []int
}

// run is n VMs of an item on a host.
type run struct{ item, host, n int }

// shape is one distinct host capacity, with the two lists of sec. 3.4 as a host
// of that capacity sees them.
type shape struct {
	cpu, memory float64 // capacity
	ready       bool    // the lists hold for the current CPU needs
	cpuList     []entry // VMs that need a greater fraction of the CPU than of the memory
	memoryList  []entry
}

type entry struct {
	item           int
	greater, other float64 // fractions of the host's capacity
}

func newPacker(p *Problem, fixed [][]load, counts []int) *packer {
	n := len(p.Hosts)
	k := &packer{
		p: p, fixed: fixed, closed: make([]bool, n), exempt: make([]bool, n), shapeOf: make([]int, n),
		memory: make([]float64, n), freeCPU: make([]float64, n), freeMemory: make([]float64, n),
		order: make([]int, n), size: make([]float64, n),
	}
	for g, c := range counts {
		if c > 0 {
			k.items = append(k.items, g)
			k.count = append(k.count, c)
		}
	}
	k.left = make([]int, len(k.items))
	k.taken = make([]int, len(k.items))
	type capacity struct{ cpu, memory float64 }
	var known map[capacity]int
	for j := range p.Hosts {
		h := &p.Hosts[j]
		k.closed[j] = h.Cordoned
		k.memory[j] = h.Memory
		if s := len(k.shapes) - 1; s >= 0 && k.shapes[s].cpu == h.CPU && k.shapes[s].memory == h.Memory {
			k.shapeOf[j] = s // the common case: a row of equal hosts
			continue
		}
		if known == nil {
			known = make(map[capacity]int)
		}
		s, ok := known[capacity{h.CPU, h.Memory}]
		if !ok {
			s = len(k.shapes)
			known[capacity{h.CPU, h.Memory}] = s
			k.shapes = append(k.shapes, shape{cpu: h.CPU, memory: h.Memory})
		}
		k.shapeOf[j] = s
	}
	for g := range fixed {
		for _, l := range fixed[g] {
			k.memory[l.host] -= float64(float64(l.n) * p.Groups[g].Memory)
		}
	}
	return k
}

// pack places the VMs, need[group] being the CPU that one VM must have. It
// fails at once if a host cannot give the VMs that stay what they must have.
func (k *packer) pack(need []float64) bool {
	if !k.begin(need) {
		return false
	}
	differ := k.sortHosts()
	if k.fill(need) {
		return true
	}
	if !differ {
		return false
	}
	k.begin(need)
	slices.Reverse(k.order)
	return k.fill(need)
}

// begin takes all new VMs off the hosts. It reports whether the VMs that stay fit.
func (k *packer) begin(need []float64) bool {
	hosts := k.p.Hosts
	for j := range hosts {
		k.freeCPU[j] = hosts[j].CPU
	}
	copy(k.freeMemory, k.memory)
	for g := range k.fixed {
		for _, l := range k.fixed[g] {
			k.freeCPU[l.host] -= float64(float64(l.n) * need[g])
		}
	}
	copy(k.left, k.count)
	k.total = 0
	for _, c := range k.count {
		k.total += c
	}
	k.runs = k.runs[:0]
	for s := range k.shapes {
		k.shapes[s].ready = false
	}
	for j := range hosts {
		if k.freeCPU[j] < -roundingSlack*hosts[j].CPU && !k.exempt[j] {
			return false
		}
	}
	return true
}

// sortHosts orders the hosts by what they have free, least first, and reports
// whether they differ at all. Equal ones keep their order.
func (k *packer) sortHosts() (differ bool) {
	var mostCPU, mostMemory float64
	for j := range k.p.Hosts {
		mostCPU = max(mostCPU, k.p.Hosts[j].CPU)
		mostMemory = max(mostMemory, k.p.Hosts[j].Memory)
	}
	for j := range k.order {
		k.order[j] = j
		k.size[j] = fraction(k.freeCPU[j], mostCPU) + fraction(k.freeMemory[j], mostMemory)
		differ = differ || k.size[j] != k.size[0]
	}
	if differ {
		slices.SortStableFunc(k.order, func(a, b int) int { return cmp.Compare(k.size[a], k.size[b]) })
	}
	return differ
}

func fraction(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// fill takes host after host in k.order and puts VMs on it as long as any fits,
// always looking first in the list of the VMs that need more of what the host
// has more of left.
func (k *packer) fill(need []float64) bool {
	for _, j := range k.order {
		if k.total == 0 {
			break
		}
		if !k.closed[j] {
			k.fillHost(j, need)
		}
	}
	return k.total == 0
}

func (k *packer) fillHost(j int, need []float64) {
	s := &k.shapes[k.shapeOf[j]]
	if !s.ready {
		k.list(s, need)
	}
	groups := k.p.Groups
	cpu, memory := k.freeCPU[j], k.freeMemory[j]
	cpuSlack, memorySlack := roundingSlack*s.cpu, roundingSlack*s.memory
	// What does not fit now fits no better once more is on the host, so each
	// list is walked once.
	next := func(list []entry, at int) int {
		for ; at < len(list); at++ {
			i := list[at].item
			if k.left[i] > 0 && need[k.items[i]] <= cpu+cpuSlack && groups[k.items[i]].Memory <= memory+memorySlack {
				break
			}
		}
		return at
	}
	atCPU, atMemory := 0, 0
	for {
		item := -1
		// cpu/s.cpu >= memory/s.memory without dividing by a zero capacity.
		cpuFirst := cpu*s.memory >= memory*s.cpu
		if cpuFirst {
			if atCPU = next(s.cpuList, atCPU); atCPU < len(s.cpuList) {
				item = s.cpuList[atCPU].item
			}
		}
		if item < 0 {
			if atMemory = next(s.memoryList, atMemory); atMemory < len(s.memoryList) {
				item = s.memoryList[atMemory].item
			}
		}
		if item < 0 && !cpuFirst {
			if atCPU = next(s.cpuList, atCPU); atCPU < len(s.cpuList) {
				item = s.cpuList[atCPU].item
			}
		}
		if item < 0 {
			break
		}
		cpu -= need[k.items[item]]
		memory -= groups[k.items[item]].Memory
		k.left[item]--
		k.total--
		if k.taken[item] == 0 {
			k.touched = append(k.touched, item)
		}
		k.taken[item]++
	}
	k.freeCPU[j], k.freeMemory[j] = cpu, memory
	for _, i := range k.touched {
		k.runs = append(k.runs, run{i, j, k.taken[i]})
		k.taken[i] = 0
	}
	k.touched = k.touched[:0]
}

// list splits the VMs into the two lists and sorts both by the greater of the
// two fractions, descending. Ties go to the greater other fraction, so that
// the packing does not depend on the order of the groups.
func (k *packer) list(s *shape, need []float64) {
	s.cpuList, s.memoryList = s.cpuList[:0], s.memoryList[:0]
	for i, g := range k.items {
		cpu, memory := fraction(need[g], s.cpu), fraction(k.p.Groups[g].Memory, s.memory)
		if cpu > memory {
			s.cpuList = append(s.cpuList, entry{i, cpu, memory})
		} else {
			s.memoryList = append(s.memoryList, entry{i, memory, cpu})
		}
	}
	byFraction := func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.greater, a.greater), cmp.Compare(b.other, a.other), cmp.Compare(a.item, b.item))
	}
	slices.SortFunc(s.cpuList, byFraction)
	slices.SortFunc(s.memoryList, byFraction)
	s.ready = true
}

// loads is the last packing by group, added to base (which is not changed; nil: nothing).
func (k *packer) loads(base [][]load) [][]load {
	loads := make([][]load, len(k.p.Groups))
	copy(loads, base)
	room := make([]load, 0, len(k.runs)) // one allocation for all groups that are in base not at all
	n := make([]int, len(k.items))
	for _, r := range k.runs {
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
	for _, r := range k.runs {
		g := k.items[r.item]
		// A host may hold VMs of the group already.
		if at := slices.IndexFunc(loads[g], func(l load) bool { return l.host == r.host }); at >= 0 && base != nil {
			loads[g][at].n += r.n
			continue
		}
		loads[g] = append(loads[g], load{r.host, r.n})
	}
	return loads
}

// spread turns loads into a host per VM. VMs that have a host keep it, unless
// anew is set; the others are given hosts in the order of the loads.
func spread(p *Problem, loads [][]load, anew bool) [][]int {
	hosts := make([][]int, len(p.Groups))
	kept := make([]int, len(p.Hosts))
	for g := range p.Groups {
		hosts[g] = make([]int, p.Groups[g].Count)
		given := p.Groups[g].Hosts
		if anew {
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
