package agenda

import (
	"time"

	"evenkeel/cluster/scheduler/placement"
)

// longerSteps are those of an agenda of many hosts, ascending. They divide step: it is what admission rounds ends of VCs to, so none ends
// within a step of the agenda.
var longerSteps = [...]time.Duration{time.Minute, step / 2, step}

const (
	step          = placement.Step   // of contracts and of the agenda
	fineStep      = 30 * time.Second // of both, for jobs that come again within minApart
	maxCells      = 400_000          // hosts times steps of an agenda; one that would have more has longer steps
	horizon       = placement.Horizon
	overdue       = 30 * time.Minute // for which a VC counts as running on that runs longer than it was to; a run at most overdueSteps of its contract
	overdueSteps  = 6
	maxRetries    = 20               // degraded occurrences for which hosts are looked for in one evaluation
	maxHeads      = 8                // VCs of the queue of which one may be the first that has no hosts
	maxHeadsAsked = 64               // VCs of the queue that are asked whether they may be one of them
	maxHeadTimes  = 32               // at which hosts are looked for, for it
	headAgain     = time.Second      // after which the head is looked for again in a term that does not know the hosts yet
	maxPlaced     = 60               // new occurrences for which hosts are looked for in one evaluation, which others wait for
	maxPut        = 500              // occurrences in one command
	maxFits       = 400              // occurrences of a contract that are looked at before it is in force
	maxOfJob      = 150              // occurrences of a job that are to come: all of a day if they are minApart apart
	minApart      = 2 * step         // of the slots of a job, from start to start, with which it has no fine steps
	maxUnknown    = 0.2              // share of a run's steps that may be unknown where one learns from it
	sampleStep    = time.Minute      // of what is recorded of a run
	maxAge        = 2 * time.Minute  // of a sample that still counts
	throttledAt   = 0.95             // of its cap a VM is held back
	maxLearnRuns  = 30               // the last runs that one learns from
	maxLearnSteps = 96               // of a skyline that is learned: the fit takes time
	defaultMiss   = 0.05             // chance that a run needs more than is reserved
	spread        = 0.05             // of the runs may arrive before the window, and after it (Morpheus sec. 4: percentiles)
	roundUp       = time.Minute      // of what a contract says
	roomAhead     = 15 * time.Minute // before a slot, from when on VMs may move for it: later than that they may be gone by themselves
	maxRoomSlots  = 4                // slots for which room is looked for at a time
)
