// Package control is the leader's service: what the API and the agents call.
//
// It takes a request, checks it, plans on a snapshot with the schedulers,
// proposes the plan to the log and, if the state changed meanwhile, plans
// again. It holds what never goes through the log: the last samples of each
// host, and how far its agent has come.
//
// It decides nothing itself (cluster/scheduler and allocator do), talks to no
// hypervisor (agents do) and speaks no HTTP (api does).
package control
