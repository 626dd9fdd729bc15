// Package transport is the one port of a member: TLS connections sorted by
// protocol (ALPN), and what members say to each other over them. It is the only
// package of the cluster that speaks HTTP and TLS.
//
//   - Port listens. ek-raft/1 goes to Streams, the shape that Raft wants; ek-peer/1 to
//     the HTTP server of Peers; everything else, with or without a protocol, to the
//     listener of the public API. The first two take a certificate of a member of the cluster, and
//     end in the handshake without one. Who never finishes a handshake gets not a byte of
//     application data, and after a time is cut off.
//   - Dialer connects to other members, and believes their certificates, never
//     their addresses.
//   - Peers answers members: agents' calls (desired state as a stream of what changed, reports,
//     renewals of leases, permits), requests forwarded by servers that do not lead,
//     renewal of certificates, consoles. A server that does not lead says to agents which one
//     does, and relays the calls of those that cannot reach it; it copies bytes and decides nothing, and it is asked
//     once only: a call that comes from a relay is never relayed again.
//   - Agent is agent.Leader for one host over the network. It answers with an error whenever
//     it does not hear from a leader, so that nothing is done on old orders.
//   - Client forwards API requests, opens consoles and renews certificates; Join enters a
//     cluster.
//
// The package takes no decision of the control plane: who leads, what is desired, who is revoked
// and what is permitted it asks the interfaces it was given. It keeps nothing on disk.
package transport
