package batch

import (
	"cmp"
	"slices"
)

// accuracy of the search for a yield, as in the paper.
const accuracy = 0.01

// repack places as many jobs as possible, those of high priority first, wherever they are now, by MCB8 (Casanova et al. 2008,
// sec. 3.4) at the greatest equal yield. Pinned jobs stay where they are, if they stay at all. If not all jobs can be placed, those of
// the lowest priority are dropped. Nodes are filled in order, regardless of which jobs were there before.
func (s *state) repack(pinned func(*job) bool) {
	runs := s.byRank(func(*job) bool { return true })
	need := 0.0
	for _, j := range runs {
		need += j.Memory * float64(j.Tasks)
	}
	drop := func() {
		last := runs[len(runs)-1]
		need -= last.Memory * float64(last.Tasks)
		runs = runs[:len(runs)-1]
	}
	for need > float64(s.Nodes)*(1+slack) {
		drop()
	}
	p := newPacking(s, pinned)
	for len(runs) > 0 && !p.pack(runs, accuracy) {
		drop()
	}
	if len(runs) > 0 {
		p.keep()
		for low, high := accuracy, 1.0; high-low > accuracy; {
			middle := (low + high) / 2
			if high == 1 && low == accuracy {
				middle = 1 // nothing else will do in a cluster with room
			}
			if p.pack(runs, middle) {
				low = middle
				p.keep()
				if middle == 1 {
					break
				}
			} else {
				high = middle
				if middle == 1 {
					high = 1 - slack
				}
			}
		}
	}
	for _, j := range s.jobs {
		if placed(j) {
			s.lift(j)
		}
	}
	for i, j := range runs {
		s.place(j, p.kept[i])
	}
}

// packing is one attempt after another to place jobs at a yield.
type packing struct {
	s           *state
	pinned      func(*job) bool
	cpu, memory []float64 // used of each node
	nodes, kept [][]int   // of each job
	lists       [2][]entry
}

// entry of a list: tasks of one job that have no node yet.
type entry struct {
	index, left int
	cpu, memory float64
}

func newPacking(s *state, pinned func(*job) bool) *packing {
	return &packing{s: s, pinned: pinned, cpu: make([]float64, s.Nodes), memory: make([]float64, s.Nodes)}
}

// keep makes the last attempt the result so far.
func (p *packing) keep() {
	p.kept = make([][]int, len(p.nodes))
	for i, nodes := range p.nodes {
		p.kept[i] = slices.Clone(nodes)
	}
}

func (p *packing) pack(jobs []*job, yield float64) bool {
	for n := range p.cpu {
		p.cpu[n], p.memory[n] = 0, 0
	}
	for len(p.nodes) < len(jobs) {
		p.nodes = append(p.nodes, nil)
	}
	p.nodes = p.nodes[:len(jobs)]
	p.lists[0], p.lists[1] = p.lists[0][:0], p.lists[1][:0]
	left := 0
	for i, j := range jobs {
		p.nodes[i] = p.nodes[i][:0]
		if placed(j) && p.pinned(j) {
			for _, n := range j.nodes {
				p.cpu[n] += yield * j.CPU
				p.memory[n] += j.Memory
				if p.cpu[n] > 1+slack {
					return false
				}
			}
			p.nodes[i] = append(p.nodes[i], j.nodes...)
			continue
		}
		e := entry{i, j.Tasks, yield * j.CPU, j.Memory}
		if e.cpu > e.memory {
			p.lists[0] = append(p.lists[0], e)
		} else {
			p.lists[1] = append(p.lists[1], e)
		}
		left += j.Tasks
	}
	slices.SortStableFunc(p.lists[0], func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.memory, a.memory), cmp.Compare(a.index, b.index))
	})
	slices.SortStableFunc(p.lists[1], func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.memory, a.memory), cmp.Compare(b.cpu, a.cpu), cmp.Compare(a.index, b.index))
	})
	for n := range p.cpu {
		if left == 0 {
			break
		}
		// Room only shrinks: what did not fit once is not tried again on this node.
		at := [2]int{}
		for at[0] < len(p.lists[0]) || at[1] < len(p.lists[1]) {
			l := 1
			if at[1] >= len(p.lists[1]) || (p.cpu[n] <= p.memory[n] && at[0] < len(p.lists[0])) {
				l = 0
			}
			e := &p.lists[l][at[l]]
			if p.cpu[n]+e.cpu > 1+slack || p.memory[n]+e.memory > 1+slack {
				at[l]++
				continue
			}
			p.cpu[n] += e.cpu
			p.memory[n] += e.memory
			p.nodes[e.index] = append(p.nodes[e.index], n)
			left--
			if e.left--; e.left == 0 {
				p.lists[l] = slices.Delete(p.lists[l], at[l], at[l]+1)
			}
		}
	}
	return left == 0
}
