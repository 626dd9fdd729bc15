package moves

import "time"

// ReportWait is how long a plan, and what follows from it, waits for the last reports of its moves.
const ReportWait = 5 * time.Second

// Interval is how often running plans of moves are evaluated though nothing changes: deadlines may pass.
const Interval = time.Second

// Delays and limits of the execution of plans.
const (
	maxReplans  = 3               // times that what is left of a move plan is planned again
	prepareFor  = 2 * time.Minute // that a move waits for its hosts to put in force what makes room for it
	maxRefusals = 8               // times that the opening of a move may be refused before the move counts as failed
	maxOver     = 4               // times its predicted bytes that a move may send at most: one that needs more will not end
)

// The predicted cost of live migration. A hypervisor stops the guest once what is left can be sent within its downtime. A guest
// that writes nearly as fast as the link sends is slowed down, or the move ends at its allotment.
const (
	downtime        = 0.3     // seconds
	maxPasses       = 3.0     // times the memory, however fast the guest writes
	predictionSlack = 0.05    // of what is predicted, for what prediction does not see
	minSlack        = 4 << 20 // bytes
)

// fewBlockers is how many blockers a text names; it gives the number of the others.
const fewBlockers = 3
