package rightsizing

import "time"

// Delays and limits of the runner.
const (
	wakesPerPeriod = 6  // evaluations that there may be between two regular ones, where a VM is short of memory or CPU
	reportEvery    = 10 // periods after which the leader records the hours, so that the next leader goes on from there
)

// stopsWithin is how long the memory of a VM that stops counts as about to be free: an agent pulls the plug after half of that.
const stopsWithin = time.Minute

// Delays and limits of decisions.
const (
	rightsizeRest     = 10   // periods for which what grew, or was short, gives nothing back
	rightsizeStale    = 10   // periods after which a measurement does not count any more
	pressureThreshold = 0.9  // of its target that a guest uses which reports that it is short of memory, for shadow mode
	pressurePeriods   = 1440 // periods, a day of minutes, for which what was short is given what it used then
	preemptAfter      = 1    // period for which no other remedy was found
	rightsizeStep     = 0.1  // of a VM's memory that its target falls at most in a period
	rightsizeSlack    = 0.2  // of what it uses now that it has beside that at least: more than its host insists on
	pressureGrowth    = 0.1  // of its memory that a VM which is short of it gets at least, each look
	minShift          = 0.02 // of the memory: a target falls by no less
	minFall           = 0.05 // of the declared CPU: a need falls by no less
	atCap             = 0.95 // of a cap: use that is cut off by it
	beyondCap         = 1.5  // times the need that was cut off
	megabyte          = 1 << 20
)
