// Package agent brings one host's VMs to the desired state that the leader sends.
//
// Decide is pure: from the desired state, what the hypervisor lists and what
// was tried before, it returns the operations to carry out, in order. Run is
// the shell around it: it takes rounds, woken by events of the hypervisor and by
// changes of the desired state. A round has six steps (round.go): Identify,
// Announce, Fetch, Decide, Act, Report. One that fails ends the round; Report follows Act all the same.
//
// The order keeps a host within its limits at every instant:
// VMs that leave come first, then those that shrink, then those that grow, then
// those that start. Nothing is done that would not fit with what is in force right then.
//
// Between two desired states the agent looks after its guests' memory (GuestNeed): a guest that is
// short of it gets more within a sample, as far as the host has it, and none is squeezed below what
// it uses. The agent lowers a balloon below the leader's target only where guests took more than the host has, then down to their
// minimum (MinMemory), and changes none while its VM moves.
//
// The agent never touches a VM that does not carry this cluster's mark, never stops
// one that it does not know, and never starts one without a permit for that very
// generation. Silence of the hypervisor is no answer: while the hypervisor is out
// of reach the agent decides nothing and reports no VM as gone.
package agent
