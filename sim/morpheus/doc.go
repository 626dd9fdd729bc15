// Package morpheus repeats the evaluation of Jyothi et al. 2016 (Morpheus, OSDI, sec. 9) on drawn work: months of periodic jobs with
// the marginals that the paper states, as its traces are closed.
//
// The package learns, places and re-provisions with what production has: forecast/periodic, forecast/skyline and
// cluster/scheduler/reservation. It draws, plays and counts.
//
// Time is in minutes, use in containers, which are all equal. Equal options give equal results. The package does no I/O, reads no
// clock and starts no goroutine.
package morpheus
