// Package agent makes one host's VMs be what the leader wants.
//
// Decide is pure: from the desired state, what the hypervisor lists and what
// was tried before, it returns the operations to carry out, in order. Run is
// the shell around it: it fetches, lists, decides, acts and reports, woken by
// events of the hypervisor and by changes of the desired state.
//
// The order keeps a host within its limits at every instant (design rule 3):
// what leaves first, then what shrinks, then what grows, then what starts,
// and nothing that would not fit with what is in force right then.
//
// Between the leader's words it looks after its guests' memory (GuestNeed): one that is short of
// it gets more within a sample, as far as the host goes, and none is squeezed below what it uses. It never lowers a
// balloon below the leader's target, nor changes one while its VM moves.
//
// It never touches a VM that does not carry this cluster's mark, never stops
// one that it does not know, never starts one without a permit for that very
// generation, and takes no silence of the hypervisor for an answer: while the
// hypervisor is out of reach nothing is decided and nothing reported gone.
package agent
