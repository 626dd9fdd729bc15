package rebalance

import "time"

// Delays and limits of re-balances that no setting changes: see Pace for the others.
const (
	full         = 1 - 1e-6         // minimum yield that leaves nothing to gain
	remembered   = 4 * time.Hour    // that a re-balance counts towards the cool-down of the next
	nearly       = 0.95             // of the possible gain that is enough, if it takes fewer bytes
	interval     = time.Second      // between two evaluations of whether moves would help
	slotsEvery   = 10 * time.Second // between two looks at slots without room
	maxRoomTries = 4                // VCs of the queue for which room is looked for at a time
	maxRoomPlans = 2                // plans that one VC is given within a cool-down

	maxMemoryPeriods = 3  // of rightsizing for which moves that free memory may go on, beside the time that they are predicted to take
	memoryRest       = 10 // periods after moves for memory failed in which no others are planned for the host
)
