package loop

import (
	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// MemoryLeft is the memory that a host has left beside its reserve, as the index has it.
func (r *CapacityIndex) MemoryLeft(s *state.Snapshot, host string) int64 {
	r.follow(s)
	return r.by[host].free.Memory
}

// MemoryLeft is the memory, bytes, that each host has left beside its reserve: as admission has it, and as plans of moves have it, which
// give a host that is beyond its limits exactly what its VMs take.
func MemoryLeft(s *state.Snapshot, env Env) (admission, moves map[string]float64) {
	admission, moves = map[string]float64{}, map[string]float64{}
	p := newProblem(s)
	for i, h := range p.hosts {
		admission[h.Name] = p.Hosts[i].Memory - float64(p.reserve[i].Bytes())
	}
	for i, g := range p.Groups {
		for k, at := range g.Hosts {
			if at >= 0 && p.groups[i].vms[k].ConsumesResources() {
				admission[p.hosts[at].Name] -= g.Memory
			}
		}
	}
	f := NewFleet(s, env, FleetObservation{}, FleetOptions{})
	reserves := make([]allocator.Reserve[float64], len(f.hosts))
	for j, h := range f.hosts {
		moves[h.Name] = f.Hosts[j].Memory - f.Hosts[j].Reserve
	}
	for _, g := range f.Groups {
		for _, at := range g.Hosts {
			if at >= 0 {
				moves[f.hosts[at].Name] -= g.Memory
				reserves[at].Add(g.Reclaimable)
			}
		}
	}
	for j, h := range f.hosts {
		moves[h.Name] -= reserves[j].Bytes()
	}
	return admission, moves
}
