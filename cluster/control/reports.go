package control

import (
	"fmt"
	"strings"

	"evenkeel/cluster/state"
)

// allReported returns the error of a request that cannot be answered rightly before all hosts have reported; nil: it can.
func (c *Control) allReported(s *state.Snapshot, what string) error {
	if hosts := c.failover.Load().Awaited(s); len(hosts) > 0 {
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
