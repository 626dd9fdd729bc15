package allocator

import (
	"cmp"
	"slices"
)

// singles are virtual clusters without a floor that have all their VMs on one
// host each: hosts have nothing to do with each other then, and the CPU of each
// is divided in one pass, as divide does it.
type singles struct {
	p     *Problem
	on    []int32 // [group]: host, -1: none
	count []int32 // [group]: VMs; nil: one each
}

// singlesOf is nil where the loads are not of that kind.
func singlesOf(p *Problem, loads [][]load, t tenancy) *singles {
	if len(t.members) != len(p.Groups) {
		return nil
	}
	for g := range loads {
		if len(loads[g]) > 1 || t.floor[g] > 0 {
			return nil
		}
	}
	s := &singles{p: p, on: make([]int32, len(loads)), count: make([]int32, len(loads))}
	for g := range loads {
		s.on[g] = -1
		if len(loads[g]) == 1 {
			s.on[g], s.count[g] = int32(loads[g][0].host), int32(loads[g][0].n)
		}
	}
	return s
}

func (s *singles) vms(g int32) int {
	if s.count == nil {
		return 1
	}
	return int(s.count[g])
}

// lone is a group on a host.
type lone struct {
	group  int32
	weight float64 // need of all its VMs
}

// divide gives each group the CPU of one of its VMs.
func (s *singles) divide() []float64 {
	p := s.p
	cpu := make([]float64, len(p.Groups))
	need := make([]float64, len(p.Hosts))
	first := make([]int32, len(p.Hosts)+1)
	for g, j := range s.on {
		cpu[g] = p.Groups[g].CPU
		if j >= 0 && cpu[g] > 0 {
			need[j] += float64(s.vms(int32(g))) * cpu[g]
			first[j+1]++
		}
	}
	lowest := 1.0
	for j := range need {
		if need[j] > 0 {
			lowest = min(lowest, p.Hosts[j].CPU/need[j])
		}
		first[j+1] += first[j]
	}
	all := make([]lone, first[len(need)])
	for g, j := range s.on {
		if j >= 0 && cpu[g] > 0 {
			all[first[j]] = lone{int32(g), float64(s.vms(int32(g))) * cpu[g]}
			first[j]++ // to where the next host's begin
		}
	}
	var order []lone
	from := int32(0)
	for j := range need {
		on := all[from:first[j]]
		from = first[j]
		capacity := p.Hosts[j].CPU
		if need[j] > capacity {
			free := capacity
			for _, l := range on {
				free -= l.weight * lowest
			}
			free = max(0, free)
			order = append(order[:0], on...)
			slices.SortFunc(order, func(a, b lone) int { return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.group, b.group)) })
			for _, l := range order {
				y := lowest
				if up := min(1-lowest, free/l.weight); up >= 1-lowest {
					y = 1
				} else if up > 0 {
					y += up
				}
				free = max(0, free-l.weight*(y-lowest))
				cpu[l.group] *= y
			}
		}
		s.cut(on, capacity, cpu)
	}
	return cpu
}

// cut takes away what rounding put above the capacity, see cutToCapacity.
func (s *singles) cut(on []lone, capacity float64, cpu []float64) {
	for round := 1.0; ; round *= 4 {
		var one, many float64
		for _, l := range on {
			n, c := s.vms(l.group), cpu[l.group]
			many += float64(float64(n) * c)
			for range n {
				one += c
			}
		}
		highest := max(one, many)
		if highest <= capacity {
			return
		}
		f := capacity / highest * (1 - round*0x1p-52)
		for _, l := range on {
			cpu[l.group] *= f
		}
	}
}
