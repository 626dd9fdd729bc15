// Package leader is the service of the server that leads: what the API and the agents call.
//
// It takes a request, checks it, plans on a snapshot with the schedulers, proposes the plan to the log and, if the state changed
// meanwhile, plans again. For each term in which its server leads it makes the schedulers again (term.go), and with them what never
// goes through the log: leases, the last reports of hosts, and how far their agents have come.
//
// It decides nothing itself (cluster/scheduler and allocator do), talks to no hypervisor (agents do) and speaks no HTTP (api
// does).
package leader
