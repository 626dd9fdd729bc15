package placement

import (
	"time"

	"evenkeel/cluster/state"
)

// Env is what a decision may use besides the snapshot.
type Env struct {
	Now   time.Time
	NewID func() string // a new, never used id at each call
	// Unavailable are hosts that take no new VM now, and why: "does not answer since 12:01".
	Unavailable map[string]string
	// Lists are the hosts whose hypervisor lists the VM, running or not: it can start on none of them. nil: none does.
	Lists func(vm state.VM) []string
	// Awaited are hosts that have yet to report to this leader, and are waited for: no plan is judged by what the others could take.
	Awaited []string
	// Margin by which estimated needs of VMs that run count more where new ones are placed.
	Margin Margin
	// Availability of hosts on what they have available, by name.
	Availability map[string]HostAvailability
	// Pools that hosts have.
	Pools Pools
	// Period is the time between evaluations of needs, by default a minute: reports of hosts count only for a few periods.
	Period time.Duration
	// Head is the room that is kept for the first VC of the queue; nil: none is.
	Head *Head
	// StartStopped: VMs that were stopped alone start with their VC.
	StartStopped bool
	// Advise says what moves would make room for a VC that does not fit; "" = none are known to. nil: no advice is given.
	Advise func(s *state.Snapshot, vc state.VC) string
}
