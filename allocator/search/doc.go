// Package search minimizes the greatest load of a set of hosts: it places VMs,
// each with a weight (CPU) and a size (memory), so that no host has more memory
// in use than it has and the greatest level (CPU in use over CPU) is least. With
// C that level, the minimum yield of the placement is min(1, 1/C); see package
// allocator, which turns its problems into models and the answers back.
//
// All amounts are whole numbers, so that every sum and every comparison is
// exact and proofs have no rounding errors. The maker of a model rounds needs down, so
// that a bound on the model is a bound on the problem that it models.
//
//   - Minimize is the whole search: a start, improvement, and, where asked for,
//     the proof.
//   - many hosts without rules are dealt to by a queue, and evened by exchanges
//     between two of them.
//   - improvement re-splits pairs of hosts optimally (meet in the middle) and
//     re-packs a few hosts at a time (bin completion).
//   - completion decides whether VMs fit into hosts, host by host, always with
//     the largest VM that is left as pivot.
//   - partition decides the same for equal hosts near their average load, where
//     few sets of VMs fit on one host (patterns): all are listed, and linear
//     programs, confirmed in whole numbers, say which ones lead nowhere.
//   - lowerLevel limits what any placement can reach: Result.Lower.
//
// The package never does I/O, reads no clock, logs nothing, starts no goroutine
// and keeps nothing between calls. Equal models, seeds and steps give equal
// answers. A caller that has a clock passes Stop.
package search
