// Package rebalance decides when VMs that run are moved for a higher minimum yield (trigger.go), which plan is worth its bytes,
// and which moves make room for a virtual cluster that waits (plan.go) or for the slot of one to come (slot.go). All but Runner (run.go) takes values and returns
// values; package moves has the plans carried out.
package rebalance
