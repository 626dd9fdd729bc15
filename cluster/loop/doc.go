// Package loop decides: given a snapshot of the state and a request or an event, it returns the plan to propose.
//
// Every function takes values and returns values. There is no I/O, no clock, no randomness (ids come from a function that the
// caller gives), no goroutine: any decision can be replayed from a saved snapshot. The figures come from package allocator.
// This package turns the state into the allocator's problem, and its answer into a plan.
//
// It never changes anything itself. Admission never moves a running VM; re-balances and drains do, by plans of package migration.
package loop
