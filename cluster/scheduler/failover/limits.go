package failover

import "time"

// Delays of this package.
const (
	// DefaultLease is how long a host may run restartable VMs without a renewal by the leader.
	DefaultLease = 20 * time.Second

	evaluateEvery = time.Second      // between two evaluations of all hosts
	fenceRetry    = 30 * time.Second // after a fence device that did not confirm, until it is tried again
	fenceHangs    = 30 * time.Minute // after which a fence program that has not ended is reported: no signal ends it, say
)
