// Package rightsizing decides what VMs with estimated needs are given, and sees to it: forecasts and samples that hosts report
// (observe.go) become recommendations, needs and balloon targets (plan.go, fill.go), which the leader proposes (run.go).
//
// Rightsizer and Preempt decide; they take values and return values. Runner has the clock, the goroutine and the log.
package rightsizing
