package placement

// Limits and tolerances of placement.
const (
	// LittleMore is a rise of a share that is not worth a call to every host, relative.
	LittleMore = 1e-6
	// TooMuch is what sums of float64 cores may be off by, relative.
	TooMuch = 1e-9
	// rounding is how far a share may be from the full need, relative, and still count as it. It is far below the rounding of
	// sums over a host.
	rounding = 1e-12
	// surplusSteps is into how many parts of the declared need surplus CPU is divided: a change is a call to each host.
	surplusSteps = 8
	// availabilityStale is how many periods old a host's report of what it has available may be.
	availabilityStale = 5
)
