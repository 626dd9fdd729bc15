// Package manyhosts measures a control plane of several servers with many hosts, all on one
// machine: the servers are processes of their own with Raft on disk, the hosts are simulated,
// and between them is what is between them anywhere else: TLS, certificates that came by join
// tokens, streams of desired state, reports, leases and permits. Requests come over the REST API.
//
// It decides nothing and shortens nothing: all that it runs but the hosts themselves is the
// product's own.
package manyhosts
