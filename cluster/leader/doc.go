// Package leader is the service of the server that leads: what the API and the agents call.
//
// Its loop (run.go) calls these schedulers in this order: moves, restarts, the queue, shares, room for what waits,
// re-balancing. Others, such as drains, rightsizing and the agenda of periodic work, run beside it. A request is checked, planned on a snapshot by a scheduler and proposed to the log; if the state changed
// meanwhile, it is planned again. For each term in which its server leads the package makes the schedulers (term.go), and with
// them what never goes through the log: leases, the last reports of hosts, and how far their agents have come.
//
// The schedulers decide. The package talks to no hypervisor (agents do) and speaks no HTTP (api does).
package leader
