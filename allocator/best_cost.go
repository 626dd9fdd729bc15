package allocator

import (
	"cmp"
	"math"
	"slices"
)

// costsKnown says whether MoveBytes has a usable number for every VM.
func (s *Search) costsKnown(p *Problem) bool {
	if s.MoveBytes == nil {
		return true
	}
	if len(s.MoveBytes) != len(p.Groups) {
		return false
	}
	for g, bytes := range s.MoveBytes {
		if len(bytes) != p.Groups[g].Count || slices.ContainsFunc(bytes, func(b float64) bool { return checkNumber(b) != nil }) {
			return false
		}
	}
	return true
}

// costs are what moves cost in the model, and its budget (-1: none).
func (w *work) costs() (cost []int64, budget int64) {
	cost, budget = make([]int64, len(w.home)), -1
	unit := w.unit
	if w.s.MoveBytes == nil {
		copy(cost, w.m.Size)
	} else {
		total := 0.0
		for _, bytes := range w.s.MoveBytes {
			for _, b := range bytes {
				total += b
			}
		}
		unit = powerUnder(0x1p59, total)
		for vm := range cost {
			cost[vm] = int64(math.Ceil(w.s.MoveBytes[w.group[vm]][w.task[vm]] * unit))
		}
	}
	if w.s.MoveBudget != nil {
		if b := *w.s.MoveBudget * (1 + 1e-12) * unit; b < 0x1p60 {
			budget = int64(b)
		}
	}
	return cost, budget
}

// keepHomes exchanges VMs of a group so that as many as can keep their host,
// those that cost most to move first.
func (s *Search) keepHomes(p *Problem, hosts [][]int) {
	n := make([]int, len(p.Hosts))
	for g := range hosts {
		home := p.Groups[g].Hosts
		if home == nil {
			continue
		}
		for _, j := range hosts[g] {
			n[j]++
		}
		at := hosts[g]
		keep := func(vm int) {
			if j := home[vm]; j >= 0 && n[j] > 0 {
				n[j]--
				at[vm] = j
			} else {
				at[vm] = -1
			}
		}
		if s.MoveBytes == nil || len(at) == 1 {
			for vm := range at {
				keep(vm)
			}
		} else {
			order := make([]int, len(at))
			for vm := range order {
				order[vm] = vm
			}
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.MoveBytes[g][b], s.MoveBytes[g][a]) })
			for _, vm := range order {
				keep(vm)
			}
		}
		j := 0
		for vm := range at {
			if at[vm] >= 0 {
				continue
			}
			for n[j] == 0 {
				j++
			}
			n[j]--
			at[vm] = j
		}
	}
}

// moved is what it costs that hosts of VMs are not the ones they had.
func (s *Search) moved(p *Problem, hosts [][]int) float64 {
	var bytes sum
	for g := range hosts {
		for vm, j := range p.Groups[g].Hosts {
			if j >= 0 && hosts[g][vm] != j {
				if s.MoveBytes != nil {
					bytes.add(s.MoveBytes[g][vm])
				} else {
					bytes.add(p.Groups[g].Memory)
				}
			}
		}
	}
	return bytes.value()
}
