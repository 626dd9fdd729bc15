package reprovision

import (
	"time"

	"evenkeel/cluster/state"
)

// Progress is how far a run has come. CPU is in cores, work in core-seconds.
type Progress struct {
	Contract *state.SignOff
	Declared float64       // of all its VMs
	Sure     float64       // at its minYield
	Since    time.Duration // it began
	Left     time.Duration // until its deadline; below 0: it has passed
	Done     float64       // work so far
	Used     float64       // now
	Pending  float64       // what VMs at their caps could use more, up to what they declared
}

// Verdict is what follows from a run's progress.
type Verdict struct {
	Reserved float64 // in this minute and the next, as admission counts it: at least Sure
	Demand   float64 // used and pending
	Behind   float64 // work: what its skyline had by now, less what it did
	Late     bool    // it needs more than is reserved, and what it is sure of does not end it by its deadline
}

// Judge applies the trigger of sec. 7, used + pending > skyline now, and asks more than the paper does: others lose CPU for a run only
// if it would miss its deadline with what it is sure of.
func (p *Progress) Judge(period time.Duration) Verdict {
	v := Verdict{Reserved: max(p.reservedAt(p.Since), p.reservedAt(p.Since+period)), Demand: min(p.Declared, p.Used+p.Pending)}
	v.Behind = max(0, p.skyline(0, p.Since, 0)-p.Done)
	if v.Demand <= v.Reserved {
		return v
	}
	todo := p.skyline(0, p.Contract.Length(), 0) - p.Done
	due := p.Since + max(0, p.Left)
	reserved := p.skyline(p.Since, due, 0)
	sure := reserved + margin*(p.skyline(p.Since, due, p.Sure)-reserved)
	v.Late = todo <= 0 || todo > sure*(1+rounding) // without anything to do by its skyline it needs more than that: as in the paper
	return v
}

// reservedAt is what is reserved at a time from the start of the run on.
func (p *Progress) reservedAt(t time.Duration) float64 {
	x := p.Sure
	if k := int(t / (time.Duration(p.Contract.Step) * time.Second)); t >= 0 && k < len(p.Contract.Cores) {
		x = max(x, p.Contract.Cores[k])
	}
	return min(x, p.Declared)
}

// skyline is the work that the skyline has from a time to another, each from the start of the run on, or so many cores where it has less.
func (p *Progress) skyline(from, to time.Duration, floor float64) (work float64) {
	step := time.Duration(p.Contract.Step) * time.Second
	for k, cores := range p.Contract.Cores {
		begin, end := max(from, time.Duration(k)*step), min(to, time.Duration(k+1)*step)
		if begin < end {
			work += max(cores, floor) * (end - begin).Seconds()
		}
	}
	if over := p.Contract.Length(); over < to {
		work += floor * (to - max(from, over)).Seconds()
	}
	return work
}
