package agent

import (
	"time"

	"evenkeel/cluster/lease"
)

// Beginning is the state that the leader gives the agent of a host that lost its own state and was admitted again in the same
// run of the machine, while VMs run on it: see state.Host.RunsOn.
type Beginning struct {
	Epoch uint64 `json:"epoch"` // what is older is refused, as by the agent before
	Index uint64 `json:"index"`
	// Lease, from the sending of the request to join; 0 = none, because the host was proved lost: its restartable VMs are stopped.
	Lease   time.Duration `json:"lease,omitempty"`
	Enforce bool          `json:"enforce,omitempty"` // as Grant.Enforce
	// Sending are the open moves from this host. What the agent before it sent of each is not known: all that it might.
	Sending map[string]Sending `json:"sending,omitempty"`
}

// Memory returns the state with which the agent begins; sent is when the request to join was sent, boot the run of the machine.
// Restartable VMs that are not there any more are taken to have been stopped for want of a lease.
func (b Beginning) Memory(boot string, sent lease.Instant) PersistentState {
	m := PersistentState{Epoch: b.Epoch, Index: b.Index, Boot: boot, Lapsed: true, Sending: b.Sending}
	// Without one it is over: restartable VMs are stopped before the agent asks for another.
	m.Lease = m.Lease.Granted(sent, b.Lease, b.Enforce || b.Lease == 0)
	return m
}
