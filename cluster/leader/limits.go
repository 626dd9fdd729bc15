package leader

import "time"

// Delays and limits of the control loop.
const (
	debounce   = 10 * time.Millisecond // for which the state must be unchanged before it is evaluated: a burst of reports is one evaluation
	restFor    = 24                    // times as long as an evaluation in vain took the loop rests: with many hosts, requests are served meanwhile
	maxRest    = time.Second           // of that rest
	retryAfter = time.Second           // after a plan that could not be proposed, until the loop tries again
	maxRefused = 8                     // plans that the state refuses in one evaluation, each of another VC
	waitsEvery = 10 * time.Second      // between two evaluations of what waits
)

// Limits of requests.
const (
	tries       = 8          // times that a request is planned before it gives up because the state keeps changing
	drainEffort = 20_000_000 // of the search for targets of VMs that leave a host: see migration.Problem
	maxAdvised  = 2000       // VMs beyond which a refusal does not wait for a plan of moves
)
