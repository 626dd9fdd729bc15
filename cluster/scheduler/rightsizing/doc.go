// Package rightsizing decides what VMs with estimated needs are given, and sees to it: forecasts and samples that hosts report
// (observe.go) become recommendations, needs and balloon targets (plan.go, fill.go), and evictions
// where memory is short (preempt.go), which Runner proposes (run.go). Its hours are recorded (hours.go).
//
// Rightsizer and Preempt decide; they take values and return values. Runner has the clock, the goroutine and the log.
package rightsizing
