// Package agenda reserves room for periodic work in the cluster (Jyothi et al. 2016, Morpheus): it records what runs use, proposes
// contracts to the owners of jobs, and keeps the occurrences of the jobs that they signed off, each with hosts on which it can run
// (package reservation).
//
// Propose and Plan take values and return values. Only the Runner reads a clock and proposes commands. The package never starts,
// moves or stops a VM.
package agenda
