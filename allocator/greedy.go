package allocator

import (
	"cmp"
	"math"
	"slices"
)

// Attempts is how often the backtracking algorithms of the paper put a VM on a
// host before they give up (sec. 3.3).
const Attempts = 500_000

// GR places VM after VM in the order of p on the least loaded host that has the
// memory for it (sec. 3.3, GR). ok is false if a VM finds no host, which proves
// nothing, or if p is malformed.
//
// All four greedy algorithms place all VMs again, wherever they are now, pass
// over cordoned hosts and divide the CPU as Allocate does. The load of a host is
// what its VMs need over what it has, so that unequal hosts compare; of equally
// loaded hosts the first is taken.
func GR(p Problem) (s Solution, ok bool) { return greedy(p, false, 0) }

// SG is GR with the VMs that need most memory first (sec. 3.3, SG).
func SG(p Problem) (s Solution, ok bool) { return greedy(p, true, 0) }

// GB is GR that backtracks: a VM that finds no host makes the VM before it try
// the next of its hosts, in order of load, and so on (sec. 3.3, GB). attempts
// bounds how often a VM is put on a host; the paper's bound is Attempts. A host
// without the memory for a VM is no attempt.
func GB(p Problem, attempts int) (s Solution, ok bool) { return greedy(p, false, attempts) }

// SGB is GB with the VMs that need most memory first (sec. 3.3, SGB).
func SGB(p Problem, attempts int) (s Solution, ok bool) { return greedy(p, true, attempts) }

// greedy backtracks if attempts is greater than 0.
func greedy(p Problem, sorted bool, attempts int) (Solution, bool) {
	if p.Validate() != nil {
		return Solution{}, false
	}
	vms := vmsOf(&p)
	if sorted {
		slices.SortStableFunc(vms, func(a, b vmRef) int {
			return cmp.Compare(p.Groups[b.group].Memory, p.Groups[a.group].Memory)
		})
	}
	f := newFilling(&p)
	placed := false
	if attempts > 0 {
		placed = f.backtrack(vms, attempts)
	} else {
		placed = f.toEmptiest(vms)
	}
	if !placed {
		return Solution{}, false
	}
	return placedSolution(&p, vms, f.at), true
}

// vmRef is one VM of a problem.
type vmRef struct{ group, vm int }

func vmsOf(p *Problem) []vmRef {
	var vms []vmRef
	for g := range p.Groups {
		for vm := range p.Groups[g].Count {
			vms = append(vms, vmRef{g, vm})
		}
	}
	return vms
}

// placedSolution is the solution with vms[k] on host at[k].
func placedSolution(p *Problem, vms []vmRef, at []int) Solution {
	q := *p
	q.Groups = slices.Clone(p.Groups)
	for g := range q.Groups {
		q.Groups[g].Hosts = make([]int, q.Groups[g].Count)
	}
	for k, v := range vms {
		q.Groups[v.group].Hosts[v.vm] = at[k]
	}
	loads, _ := countLoads(&q)
	return solutionOf(&q, loads, spread(&q, loads, false))
}

// filling is hosts that are filled VM by VM.
type filling struct {
	p          *Problem
	load       []float64 // [host]: CPU that its VMs need
	rank       []float64 // [host]: load over capacity
	freeMemory []float64 // [host]; -1: takes no VM
	at         []int     // [k]: host of the k-th VM
}

func newFilling(p *Problem) *filling {
	n := len(p.Hosts)
	f := &filling{p: p, load: make([]float64, n), rank: make([]float64, n), freeMemory: make([]float64, n)}
	for j := range p.Hosts {
		f.freeMemory[j] = p.Hosts[j].Memory * (1 + roundingSlack)
		if p.Hosts[j].Cordoned {
			f.freeMemory[j] = -1
		}
	}
	return f
}

// put places a VM of group g on host j.
func (f *filling) put(g, j int) {
	f.load[j] += f.p.Groups[g].CPU
	f.freeMemory[j] -= f.p.Groups[g].Memory
	f.rankHost(j)
}

func (f *filling) rankHost(j int) {
	switch c := f.p.Hosts[j].CPU; {
	case c > 0:
		f.rank[j] = f.load[j] / c
	case f.load[j] > 0:
		f.rank[j] = math.Inf(1)
	default:
		f.rank[j] = 0
	}
}

// next is the host after host last (-1: the first), in the order of load, that
// has the memory; -1 if there is none.
func (f *filling) next(memory float64, last int) int {
	best := -1
	for j, free := range f.freeMemory {
		if memory > free {
			continue
		}
		if last >= 0 && (f.rank[j] < f.rank[last] || f.rank[j] == f.rank[last] && j <= last) {
			continue
		}
		if best < 0 || f.rank[j] < f.rank[best] {
			best = j
		}
	}
	return best
}

func (f *filling) toEmptiest(vms []vmRef) bool {
	f.at = make([]int, len(vms))
	h := newHostHeap(f)
	for k, v := range vms {
		j := h.place(v.group)
		if j < 0 {
			return false
		}
		f.at[k] = j
	}
	return true
}

func (f *filling) backtrack(vms []vmRef, attempts int) bool {
	// What the host of the k-th VM had before: subtracting would not give it back exactly.
	type before struct{ load, freeMemory float64 }
	undo := make([]before, 0, len(vms))
	f.at = make([]int, 0, len(vms))
	last := -1
	for len(f.at) < len(vms) {
		g := vms[len(f.at)].group
		j := f.next(f.p.Groups[g].Memory, last)
		if j >= 0 {
			if attempts == 0 {
				return false
			}
			attempts--
			undo = append(undo, before{f.load[j], f.freeMemory[j]})
			f.at = append(f.at, j)
			f.put(g, j)
			last = -1
			continue
		}
		k := len(f.at) - 1
		if k < 0 {
			return false
		}
		last = f.at[k]
		f.load[last], f.freeMemory[last] = undo[k].load, undo[k].freeMemory
		f.rankHost(last)
		f.at, undo = f.at[:k], undo[:k]
	}
	return true
}

// hostHeap orders hosts by load, so that the least loaded need not be searched for.
type hostHeap struct {
	f     *filling
	hosts []int
	aside []int
}

func newHostHeap(f *filling) *hostHeap {
	h := &hostHeap{f: f}
	for j, free := range f.freeMemory {
		if free >= 0 {
			h.hosts = append(h.hosts, j) // all without load, ascending: a heap
		}
	}
	return h
}

// place puts a VM of group g on the least loaded host that has the memory, and
// returns it; -1 if there is none.
func (h *hostHeap) place(g int) int {
	h.aside = h.aside[:0]
	found := -1
	for found < 0 && len(h.hosts) > 0 {
		j := h.pop()
		if h.f.p.Groups[g].Memory <= h.f.freeMemory[j] {
			h.f.put(g, j)
			found = j
		}
		h.aside = append(h.aside, j)
	}
	for _, j := range h.aside {
		h.push(j)
	}
	return found
}

func (h *hostHeap) less(a, b int) bool {
	x, y := h.hosts[a], h.hosts[b]
	return h.f.rank[x] < h.f.rank[y] || h.f.rank[x] == h.f.rank[y] && x < y
}

func (h *hostHeap) push(j int) {
	h.hosts = append(h.hosts, j)
	for i := len(h.hosts) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h.hosts[i], h.hosts[(i-1)/2] = h.hosts[(i-1)/2], h.hosts[i]
	}
}

func (h *hostHeap) pop() int {
	top, n := h.hosts[0], len(h.hosts)-1
	h.hosts[0] = h.hosts[n]
	h.hosts = h.hosts[:n]
	for i := 0; ; {
		lowest := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if h.less(c, lowest) {
				lowest = c
			}
		}
		if lowest == i {
			return top
		}
		h.hosts[i], h.hosts[lowest] = h.hosts[lowest], h.hosts[i]
		i = lowest
	}
}
