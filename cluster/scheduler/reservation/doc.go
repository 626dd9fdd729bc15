// Package reservation keeps the agenda: what periodic virtual clusters have reserved, step by step, and on which hosts each
// reservation runs (Jyothi et al. 2016, Morpheus, sec. 6 and 7).
//
// A Request is placed by LowCost where it raises the load of the busiest step least. Its slot has the same offset in every
// period. An Agenda accepts a slot only with a witness: a host for every VM in every step, under the rules of affinity, the
// memory reserve and a bound on the bytes of moves before the slot. A refusal names the step and the resource or host that
// binds, and changes to the request that were tried and fit.
//
// CPU is in cores, memory in bytes, time in steps of an agenda. The package never does I/O, reads no clock, starts no goroutine,
// and moves no slot that it accepted.
package reservation
