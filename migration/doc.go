// Package migration plans how VMs that run are moved between hosts: which, where
// to and in which order, so that the minimum yield becomes the best that a
// byte budget allows (Casanova et al. 2008, eq. 22-31), and so
// that no host ever exceeds its memory or its CPU while the moves go on.
//
// Entry points:
//
//   - New searches a Problem once: it finds placements for every amount of bytes
//     from none to all, and more of them near Problem.Budget.
//   - Planner.Plan is the best of them that can be reached, step by step, within
//     a budget; Planner.Curve is the minimum yield over the bytes; Planner.Cheapest is
//     the plan with the fewest bytes for a wanted minimum yield.
//   - VMs without a host are placed free of charge. Where no room can be made for
//     them within the budget, the Plan says how many bytes would.
//
// CPU is in cores, memory and what moves cost in bytes, times are in seconds.
//
// The package never moves anything. It does no I/O, reads no clock, logs nothing,
// starts no goroutine and keeps no state between calls: equal input gives equal plans.
package migration
