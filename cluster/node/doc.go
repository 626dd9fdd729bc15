// Package node runs Raft: a durable log and snapshots under one directory, and
// the state of package state, to which the log is applied. It knows which
// servers there are, which one leads, and how a server is added, removed, saved, restored and recovered.
//
// It is a shell. It knows nothing of what the entries mean and decides nothing about
// hosts or VMs; it is the only package that imports raft and memberlist. One voter or many, the
// path is the same: Apply goes through the log, Linearize asks whether this server still leads.
//
// What it guarantees beyond the library:
//
//   - Verify counts only answers of voters to messages that were sent after it began. The
//     library's own check also counts answers to older messages and those of servers without a
//     vote, so that a leader that was paused could still take itself for one.
//   - A server whose log cannot be written is down, as if it had crashed: it gives up
//     leadership, acknowledges and answers nothing, and comes back by itself once a write
//     succeeds. The process goes on.
//   - Leadership is reported once all that was committed before it is applied here, and its loss
//     at once.
//
// Gossip says which members seem to be there. It is a hint, never proof.
package node
