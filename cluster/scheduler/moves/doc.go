// Package moves plans and carries out live migrations of VMs. Fleet is a snapshot as the problem of package migration, with the
// way back to a plan that is recorded (plan.go); Next returns what to do now for the plans that run (execute.go). Rebalancing,
// draining, failover and simulation use it.
//
// All but Runner (run.go), which has the steps of plans proposed, takes values and returns values. The package does not decide
// when VMs are moved, nor which plan is worth its bytes.
package moves
