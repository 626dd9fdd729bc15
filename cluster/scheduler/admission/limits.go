package admission

import "time"

// Delays and limits of admission.
const (
	maxTries         = 64               // VMs of one VC that are tried one by one, where they do not all fit
	maxLost          = 8                // VCs with lost VMs for which, one by one, an admission makes sure to leave room
	preemptedFor     = 10 * time.Minute // that a preempted VM waits at least before it is started again
	placeEffort      = 300_000          // of the search for a better placement than admission's own, in the allocator's steps: some milliseconds
	minFastPathHosts = 64               // hosts from which on requests are planned from the index; with fewer a full plan takes no longer
)
