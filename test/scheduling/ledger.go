package scheduling

import (
	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// MemoryLeft is the memory, bytes, that each host has left beside its reserve: as admission has it, and as plans of moves have it,
// which give a host that is beyond its limits exactly what its VMs take.
func MemoryLeft(s *state.Snapshot, env placement.Env) (byAdmission, byMoves map[string]float64) {
	byAdmission, byMoves = map[string]float64{}, map[string]float64{}
	p := placement.NewProblem(s)
	for i, h := range p.Rows {
		byAdmission[h.Name] = p.Hosts[i].Memory - float64(p.Reserve(i))
	}
	for i, g := range p.Groups {
		for k, at := range g.Hosts {
			if at >= 0 && p.Refs[i].VMs[k].ConsumesResources() {
				byAdmission[p.Rows[at].Name] -= g.Memory
			}
		}
	}
	f := moves.NewFleet(s, env, moves.Observation{}, moves.Options{})
	reserves := allocator.NewReserves[float64](len(f.Hosts), f.LargestOnly)
	for _, h := range f.Hosts {
		byMoves[h.Name] = h.Memory - h.Reserve
	}
	for _, g := range f.Groups {
		for _, at := range g.Hosts {
			if at >= 0 {
				byMoves[f.Hosts[at].Name] -= g.Memory
				reserves[at].Add(g.Reclaimable)
			}
		}
	}
	for j, h := range f.Hosts {
		byMoves[h.Name] -= reserves[j].Bytes()
	}
	return byAdmission, byMoves
}
