package drain

import "time"

// Delays and limits of drains.
const (
	maxFruitless   = 3                     // times that moves off a host are planned again although the last ones failed
	maxUnavailable = 5 * time.Minute       // that a host may be out of reach before its drain ends
	retryDrain     = 2 * time.Second       // after moves that failed, before the drain is planned again
	interval       = time.Second           // between two evaluations though nothing changes: deadlines pass, hosts fall silent
	vainFactor     = 5                     // times as long as moves were planned in vain they are not planned again, besides the interval
	maxVain        = 10 * time.Second      // of that wait
	debounce       = 10 * time.Millisecond // for which the state must be unchanged before it is evaluated
)
