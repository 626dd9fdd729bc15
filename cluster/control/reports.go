package control

import (
	"fmt"
	"strings"

	"evenkeel/cluster/state"
)

// A new leader does not know what a host runs, and which VMs it could take, until that host's agent has reported to it. Until
// all have, or a lease has passed in which a host that lives reports, it plans nothing that needs a target, and refuses nothing
// for want of one.

// owesReport says whether a leader must not plan without a host that has not reported to it. A lost host has a proof instead,
// and one that is cordoned without a drain and without VMs is neither source nor target.
func owesReport(h *state.Host, reported bool, vms func() int) bool {
	if reported || h.Lost.Proof != "" {
		return false
	}
	return !h.Cordoned || h.Drain.State == state.DrainRunning || vms() > 0
}

// unreported returns the hosts that owe this leader a report, by name.
func (c *Control) unreported(s *state.Snapshot) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	s.EachHost(func(h *state.Host) bool {
		_, reported := c.live[h.Name]
		if owesReport(h, reported, func() int { return s.LoadOf(h.Name).VMs }) {
			names = append(names, h.Name)
		}
		return true
	})
	return names
}

// awaited returns the unreported hosts for which the leader waits: none once this server has led for a lease.
func (c *Control) awaited(s *state.Snapshot) []string {
	c.mu.Lock()
	early := c.o.Clock()-c.begun < c.o.Lease
	c.mu.Unlock()
	if !early {
		return nil
	}
	return c.unreported(s)
}

// allReported returns the error of a request that cannot be answered rightly before all hosts have reported; nil: it can.
func (c *Control) allReported(s *state.Snapshot, what string) error {
	if hosts := c.awaited(s); len(hosts) > 0 {
		return fmt.Errorf("%s: hosts that have yet to report to the new leader: %s; try again in a moment: %w", what, someNames(hosts), ErrNoLeader)
	}
	return nil
}

// someNames names some of many.
func someNames(all []string) string {
	const few = 5
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}
