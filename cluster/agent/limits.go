package agent

import (
	"time"

	"evenkeel/forecast"
)

// All delays and limits of the agent stand here, by feature. What an Options can change has its default here.

// Defaults of Options.
const (
	defaultStopGrace   = 30 * time.Second // from Shutdown to Destroy
	defaultSampleEvery = time.Second
	defaultListEvery   = 15 * time.Second
	defaultUseWindow   = 5 * time.Second
	forecastStep       = time.Minute
)

// Rounds.
const (
	// firstBackoff and lastBackoff bound the wait after a round that failed. It doubles with each that fails.
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// surveyEvery is how often networks and pools are looked at.
	surveyEvery = time.Minute
	// decidedFor is how long a decision may be carried out. After that the agent decides again: a hypervisor may have hung
	// meanwhile, and the leader may have lost this host and started a VM elsewhere, on the same disk.
	decidedFor = 10 * time.Second
	// permitWithin is how long the answer to a question for permits may take. A later answer may be about a state that is long
	// gone.
	permitWithin = 5 * time.Second
	// destroysAtOnce is how many VMs are destroyed side by side.
	destroysAtOnce = 8
	// unspokenFor is how long rounds that act may go without a report. A fast hypervisor has done everything by then.
	unspokenFor = 250 * time.Millisecond
	// resendAfter is how long a status that the leader has taken is not sent again. The leader took it into the log before it
	// answered; its next desired state, which shows that, may be on its way.
	resendAfter = 5 * time.Second
)

// Differences without meaning: a cap may be read back that differs this much from the one set, and a balloon is set in whole
// pages that some drivers round.
const (
	cpuSlack     = 1e-4    // cores
	balloonSlack = 1 << 20 // bytes

	// tiny is the difference up to which two caps count as equal, cores.
	tiny = 1e-9
	// minCap is the least share that a host can enforce, cores: 1 ms of CPU time in each second. A VM that is given less
	// (foreign VMs have the host's CPU) gets this much: a cap of 0 would be no cap at all.
	minCap = 0.001
)

// Starts.
const (
	// startsAtOnce is how many starts go on side by side.
	startsAtOnce = 4
	// startAttempts is after how many starts that failed a VM has failed.
	startAttempts = 3
	// startPatience is how long a round waits for the starts that it begins.
	startPatience = 5 * time.Second
	// hungEvery is how often it is looked whether a call that hangs has returned.
	hungEvery = time.Second
	// waitsSilently is how long a VM that is to start waits before the agent reports why: most wait for another VM that
	// shrinks.
	waitsSilently = 5 * time.Second
	// startWithin is how long a restartable VM waits here for its start before this host gives it back, to be started elsewhere.
	startWithin = time.Minute
)

// Moves, and what they leave behind.
const (
	// progressEvery is how often moves under way report their progress.
	progressEvery = time.Second
	// roomWithin is how long the source of a move waits for the target to have room.
	roomWithin = 30 * time.Second
	// resumeWithin is for how long the agent tries to resume a VM that arrived. After that the VM has ended, as one that crashes.
	resumeWithin = time.Minute
	// leftoverFor is how long a VM must be observed as left over before the agent acts on it.
	leftoverFor = 5 * time.Second
	// strandedFor is how long the target of an open move may take to report that the VM runs there, before the copy here may be
	// destroyed. That copy has the guest's memory, which is of use only if the target does not have it.
	strandedFor = time.Minute
	// askAgain is how long the agent waits, after the leader refused that a leftover is destroyed, before it asks again.
	askAgain = 30 * time.Second
	// movesEnd bounds the wait, at an agent's end, for moves that it gives up.
	movesEnd = 10 * time.Second
)

// The lease and the watchdog.
const (
	// renewWithin is how long an answer to a renewal may take, and lastRenewBackoff the longest wait after one that failed.
	renewWithin      = 5 * time.Second
	lastRenewBackoff = 2 * time.Second
	// reportArmed is how soon the agent renews again after it armed the watchdog, so that the leader knows of it.
	reportArmed = 10 * time.Millisecond
	// petEvery is how often a watchdog is petted, as a share of its time-out; minPet is the shortest time between. idleDog is
	// how often it is looked whether it is armed.
	petEvery = 5
	minPet   = 100 * time.Millisecond
	idleDog  = time.Second
	// stopEvery is how often the agent tries to stop restartable VMs while they have no right to run.
	stopEvery = time.Second
	// minLeaseCheck and maxLeaseCheck bound the time until it is looked again whether the lease is over.
	minLeaseCheck = 10 * time.Millisecond
	maxLeaseCheck = 5 * time.Second
	// knownFor is how long, once the lease is over, the hypervisor's last list counts as what runs.
	knownFor = 3 * stopEvery
	// listWithin is how long the hypervisor may take to list VMs when the lease is over.
	listWithin = 10 * time.Second
)

// The memory of guests. A guest that has all the memory it can have is not short of it: there is nothing to give.
const (
	// pressureBelow: a guest is short of memory if what it could take into use without swapping is less than that share of its
	// balloon.
	pressureBelow = 0.10
	// A guest with less than swapsBelow of its balloon left is short of memory if it swaps in, or has major faults, at these rates.
	// With more left, it reads back what was swapped out before, or reads files for the first time.
	swapsBelow = 0.25
	swapRate   = 512 << 10 // bytes per second
	faultRate  = 100.0     // major faults per second

	// squeezeTo is the largest share of a balloon that the guest may have in use after the balloon was shrunk. The distance to
	// pressureBelow keeps the balloon from being shrunk and enlarged in turn.
	squeezeTo = 0.85
	// minCut is the least that is taken from a balloon, bytes: less is not worth the guest's work.
	minCut = 2 * balloonSlack

	// outrunWithin is how long it takes until a guest that needs more memory has it: the time to its next report, to the next look at
	// it, and until its balloon has moved.
	outrunWithin = 3 * time.Second
	// rateWindow is the longest time between two reports from which the rate is computed at which a guest takes memory.
	rateWindow = 5 * time.Second

	// glanceEvery is how often guests that have less than their memory are measured. glanceShare is the largest share of the time that
	// these measurements may take.
	glanceEvery = time.Second
	glanceShare = 0.05

	// grantStep is the divisor for one step of a grant: a guest under memory pressure gets a quarter of all its memory more than it has
	// or uses.
	grantStep = 4 // its fourth
	// grantStays is how many steps of forecasts a grant stays after the guest was last under memory pressure.
	grantStays = 10

	// reportDelay is how long before it was noticed a guest may have made a report: libvirt dates it to the second, and guests are measured
	// once a second.
	reportDelay = 2 * time.Second

	// balloonPatient is how long a balloon may stand still before its guest counts as one that does not follow.
	balloonPatient = 10 * time.Second
	// defies is for how many steps of forecasts a guest that did not follow its balloon gets no new target.
	defies = 10
)

// Routes to other hosts: see reach.
const (
	// PeersAtOnce are the hosts that one look goes to at most, and as many that were not reached before.
	PeersAtOnce = 32

	reachEvery  = 3 * time.Minute
	mendEvery   = 30 * time.Second // how soon a host that was not reached is probed again
	reachStale  = 15 * time.Minute // what was found is not believed any longer
	reachLimit  = 10 * time.Second // for one connection
	reachLanes  = 3                // connections at once
	reachSecond = 5 * time.Second  // a failure counts if it is there this long after as well
)

// Forecasts.
const (
	forecastEvery = 10 * time.Second // how often, at least, it is looked whether a minute is over
	// forecastRound is the most time that one look takes: a host with very many VMs, or that is very busy, forecasts them one
	// after the other, those first that waited longest.
	forecastRound = 2 * time.Second
	minSamples    = 3 // that a minute takes to count as measured
	maxCensored   = 0.5
	maxStale      = 5 // steps: nothing rests on a forecast of what was measured longer ago

	// MaxSteps is how far ahead a forecast goes, in steps.
	MaxSteps = 60
	// AheadSteps is how many steps of a forecast a host reports.
	AheadSteps = forecast.Horizon
	// maxFine is how many steps of less than a minute are kept for a VM.
	maxFine = 720
)

// Histories: how long they are kept of VMs that do not run here, and when and how often a host is asked for the history of a VM
// that came from it.
const (
	keptAfterMove = time.Hour          // the host that a VM went to asks for it within that
	keptStopped   = 7 * 24 * time.Hour // it may be started again
	maxHistories  = 4096

	// HistoryKept is how long after a move the host that the VM left can be asked for its history.
	HistoryKept = keptAfterMove

	firstAsk = 2 * time.Second // the move may not be closed yet
	lastAsk  = 5 * time.Minute
	askTime  = 20 * time.Second // for one try

	// longestStep is the longest time between two measurements from which a sample is made. How much a counter grew over a
	// longer time says nothing of ten seconds.
	longestStep = time.Minute
	// writeEvery is how often measurements are written: at most that much is lost when the agent is killed.
	writeEvery = time.Minute
	// wholeEvery is how often a VM's file with its whole history is written.
	wholeEvery = 10 * time.Minute
	// maxTails is how large the file with what was measured since may be, bytes.
	maxTails = 64 << 20
)
