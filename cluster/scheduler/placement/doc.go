// Package placement is what the schedulers share when they place VMs: what a decision may use besides the snapshot (Env), the
// VMs that a virtual cluster is to have, and a snapshot as the allocator's problem, with the way back to rows of the state.
// Reallocate divides CPU where nothing is to be placed.
//
// Every function takes values and returns values. There is no I/O, no clock, no randomness (ids come from a function that the
// caller gives), no goroutine: any decision can be replayed from a saved snapshot. Nothing here chooses among virtual clusters,
// and nothing moves a VM.
package placement
