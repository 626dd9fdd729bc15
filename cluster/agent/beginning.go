package agent

import (
	"time"

	"evenkeel/cluster/lease"
)

// Beginning is the state that the leader gives the agent of a host that lost its own state. The leader admitted that host again in the
// same run of the machine, while VMs run on it: see state.Host.RunsOn.
type Beginning struct {
	Epoch uint64 `json:"epoch"` // the agent refuses orders of an older epoch
	Index uint64 `json:"index"`
	// Lease counts from when the request to join was sent. 0 = none, because the host was proved lost: the agent stops its restartable
	// VMs.
	Lease   time.Duration `json:"lease,omitempty"`
	Enforce bool          `json:"enforce,omitempty"` // as Grant.Enforce
	// Sending are the open moves from this host. What the agent before it sent of each is not known: each counts with all that it may
	// send.
	Sending map[string]Sending `json:"sending,omitempty"`
}

// Memory returns the state with which the agent begins; sent is when the request to join was sent, boot the run of the machine.
// Restartable VMs that are not there any more count as stopped because the lease ended.
func (b Beginning) Memory(boot string, sent lease.Instant) PersistentState {
	m := PersistentState{Epoch: b.Epoch, Index: b.Index, Boot: boot, Lapsed: true, Sending: b.Sending}
	// Lease 0 is a lease that is over: the agent stops restartable VMs before it asks for another.
	m.Lease = m.Lease.Granted(sent, b.Lease, b.Enforce || b.Lease == 0)
	return m
}
