package reprovision

import "time"

const (
	maxAge        = 2 * time.Minute // of a sample that still counts
	throttledAt   = 0.95            // of its cap a VM is held back
	headroom      = 1.25            // times what a run uses that is not held back it may keep
	borrowedBelow = 0.5             // of what a run is sure of: it uses less, and others have it
	margin        = 0.9             // of what its minYield gives a run beyond its skyline: with more to do it is late
	rounding      = 1e-6            // relative, of work
	minChange     = 0.02            // of what its VMs declared: grants do not follow smaller changes
	ahead         = 2               // periods before a slot begins in which its room is free of grants
	maxNamed      = 8               // VCs that a grant names
	maxPut        = 1000            // runs in one command
	reportEvery   = 5               // periods after which what a run used is in the log
)
