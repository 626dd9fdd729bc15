// Package reprovision decides once a minute what runs of periodic jobs are sure of while they go on: what is reserved for them as far as
// they use it, and where a run would miss its deadline some of what is left (Jyothi et al. 2016, Morpheus, sec. 7). What a run does not
// use of its reservation others have; the run has it back one evaluation after it is held back.
//
// Evaluate takes values and returns values. Only the Runner reads a clock and proposes commands. The package moves, starts and stops no
// VM, and takes no CPU from what admission promised to others or from slots that are about to begin.
package reprovision
