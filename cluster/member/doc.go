// Package member wires one vcd into a cluster: its certificate, its port, and by its
// roles a server (Raft, the leader's service while it leads) and an agent (of its host).
//
// Init and Join give a directory an identity; Start runs a member on it. The package
// decides nothing of VMs, hosts or leases; it issues certificates, because only
// here the CA's key, the state and the port meet.
package member
