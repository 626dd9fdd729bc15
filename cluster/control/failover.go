package control

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
)

// DefaultLease is how long a host may run restartable VMs without a renewal by the leader.
const DefaultLease = failover.DefaultLease

// newFailover makes the runner of a term.
func (c *Control) newFailover() *failover.Runner {
	o := failover.Options{Lease: c.o.Lease, Clock: c.o.Clock, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: c.propose,
		Unknown: func(err error) bool { return errors.Is(err, ErrTimeout) }, Report: c.hypervisorOf, Changed: c.wakeLoop}
	if c.o.Fence != nil {
		o.Fence = countedFence{c.o.Fence, &c.counters}
	}
	return failover.New(o)
}

// hypervisorOf returns what a host's agent last reported of its hypervisor.
func (c *Control) hypervisorOf(host string) (failover.HostReport, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live, reported := c.live[host]
	return failover.HostReport{Reach: live.Reach, Error: live.Error}, reported
}

// Guard watches for hosts that fell silent, until ctx ends: see failover.Runner.
func (c *Control) Guard(ctx context.Context) { c.failover.Load().Run(ctx) }

// recordLoss records a loss that an operator's request proves, in the term in which the proof began.
func recordLoss(ctx context.Context, f *failover.Runner, b state.HostLost) error {
	err := f.RecordLoss(ctx, b)
	if errors.Is(err, failover.ErrEnded) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}
