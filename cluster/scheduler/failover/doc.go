// Package failover decides that a host is silent, lost or proved dead, has it fenced, and says what its agent may begin
// meanwhile. What agents renewed and reported (observe.go) becomes one action for each host (plan.go), which Runner carries out
// (run.go), and an answer to each agent that asks for a permit (permits.go).
//
// Capacity (capacity.go) says beforehand what would become of the VMs of a host that fails.
//
// Plan, Permits and Handovers decide; they take values and return values. Runner has the clock, the goroutines and the lease
// table of one term. A host counts as lost by a proof only: its fence device, an operator, or silence for so long
// that its armed watchdog has reset it. Gossip and the host's own clock prove nothing.
package failover
