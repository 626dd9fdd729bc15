package loop

import "evenkeel/cluster/state"

// MemoryLeft of a host beside its reserve, as Rooms keeps it.
func (r *CapacityIndex) MemoryLeft(s *state.Snapshot, host string) int64 {
	r.follow(s)
	return r.by[host].memory
}
