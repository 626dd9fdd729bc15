// Package loop decides: given a snapshot of the state and a request or an
// event, which plan to propose.
//
// Every function takes values and returns values. There is no I/O, no clock,
// no randomness (ids come from a function handed in), no goroutine: any
// decision can be replayed from a saved snapshot. The figures come from package
// allocator; this package turns the state into its problem and its answer into
// a plan.
//
// It never changes anything itself, and it never moves a running VM: VMs that
// hold CPU and memory stay where they are.
package loop
