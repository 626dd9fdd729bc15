// Package skyline fits the resource model of a periodic job: the amount to reserve in each step of a run, learned from
// the use of past runs (Jyothi et al. 2016, Morpheus, sec. 5).
//
// It takes values and returns values. It never reads a clock, never does I/O, and never decides whether a job has
// enough runs for a model: forecast/periodic does.
package skyline
