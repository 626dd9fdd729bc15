// Package state is the replicated state of a cluster: hosts, virtual
// clusters, their VMs, the image catalogue, operations and events, and the
// commands that change them.
//
// Three laws:
//
//  1. Apply is deterministic. Ids, times and placements arrive inside the
//     command; nothing here reads a clock, a random source or a map in map order.
//  2. Rows read from a Snapshot are constants. Copy before you change one.
//  3. A command applies whole or not at all. A plan is checked again against
//     the state it meets (versions, cordons, memory, CPU), and one that no longer
//     holds is rejected with ErrConflict, to be planned again.
//
// The package knows neither Raft nor hypervisors: cluster/node feeds it log
// entries, cluster/leader reads its snapshots. It never decides where a VM
// goes; it only refuses what would break a host's limits.
package state
