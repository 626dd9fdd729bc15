package loop

import "evenkeel/cluster/state"

// MemoryLeft is the memory that a host has left beside its reserve, as the index has it.
func (r *CapacityIndex) MemoryLeft(s *state.Snapshot, host string) int64 {
	r.follow(s)
	return r.by[host].memory
}
