// Package node runs Raft: a durable log and snapshots under one directory, and
// the state of package state as what the log is applied to.
//
// It is a shell. It knows nothing of what the entries mean and decides nothing; it
// is the only package that imports raft. One voter or many, the path is the same:
// Apply goes through the log, Linearize asks whether this server still leads.
package node
