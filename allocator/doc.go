// Package allocator decides which virtual clusters are admitted, on which
// hosts their VMs run, and how much CPU each VM gets.
//
// It implements the resource sharing problem VCSched of Casanova, Schanzenbach,
// Stillwell and Vivien, "Resource Allocation using Virtual Clusters" (INRIA
// RR-6692, 2008). A VM needs CPU (alpha, cores) and memory (m, bytes). Memory
// is all or nothing; CPU may be given in part. The yield of a VM is the CPU it
// is given over the CPU it needs, in [0, 1]; a VM with no need has yield 1. The
// yield of a virtual cluster is the least of its VMs. The first objective is
// the least yield of all (minimum yield), the second, at that minimum, the mean
// yield of the virtual clusters.
//
// Entry points:
//
//   - MCB8 places all VMs from nothing (sec. 3.4).
//   - MCB has its seven siblings, and orders of unequal hosts; GR, SG, GB, SGB
//     (sec. 3.3), RRND and RRNZ (sec. 3.2) are the paper's other heuristics, for
//     comparison.
//   - Allocate divides the CPU of every host among VMs whose hosts are given
//     (sec. 3.5 and 5).
//   - Admit places the VMs that are new beside those that stay where they are,
//     all or nothing, and says why when it refuses; AdmitUnder does so under rules of
//     affinity, AdmitQueue for all requests that wait.
//   - Best places all VMs as well as the work it may do allows, and says how far
//     from the optimum it is at most; Exact goes on until the optimum is proved.
//     Both heed floors, cordons, affinity and a bound on what moves.
//   - Bound and UpperBound limit what any placement can reach (sec. 3.1).
//   - ProveInfeasible shows, where it can, that no placement exists.
//   - Reserve is the memory that a host keeps free beside what its VMs have.
//
// CPU may be in any one unit and memory in any one unit; only the sentences
// that Admit writes assume cores and bytes. Hosts may differ from each other.
//
// The package never does I/O, reads no clock, logs nothing, starts no
// goroutine and keeps no state between calls: equal input gives equal output.
// Admit and Allocate never move a VM that has a host. Nothing here ever
// gives a host's VMs more CPU in sum than the host has.
package allocator
