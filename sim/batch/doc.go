// Package batch replays parallel jobs on a cluster under batch scheduling and under fractional sharing, to compare the two
// as Stillwell, Vivien and Casanova do in "Dynamic Fractional Resource Scheduling vs. Batch Scheduling" (arXiv 1106.4985;
// IEEE TPDS 2012).
//
// A job is T equal tasks that all make progress at the same rate, its yield: what each is given of the CPU it needs. A job
// that is never slowed down takes Job.Run seconds; Policies do not know that number, EASY apart. Memory is a hard limit. A job may be
// paused (it gives its memory back) and its tasks may be moved to other nodes; a job that was paused, or one of whose tasks was
// moved, makes no progress for Cluster.Penalty seconds once it is back, on nodes it has already.
//
// Policies:
//
//   - FCFS and EASY, which give whole nodes to one job at a time.
//   - Sharing, the paper's family: Greedy, GreedyP, GreedyPM and MCB8 on submission, all of them with or without starting
//     jobs when others end, MCB8 with a period, and times of grace.
//   - Evenkeel: admission and CPU by package allocator, moves by package migration with a bound on their bytes.
//
// Run replays; Bound is a lower bound of the greatest stretch that any schedule can reach.
//
// Time passes in events, never in ticks: between two of them rates are constant. The package does no I/O, reads no clock and
// starts no goroutine: equal input gives equal output.
package batch
