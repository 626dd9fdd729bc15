package reservation

import (
	"errors"
	"fmt"
	"math"

	"evenkeel/allocator"
)

// Resource is an index into an Amount.
type Resource int

// The resources of an agenda.
const (
	Cores  Resource = iota
	Memory          // bytes
	VMs
	resources
)

// String names the resource.
func (r Resource) String() string { return [...]string{"cores", "bytes of memory", "VMs"}[r] }

// Amount is what is reserved, or could be, in one step, by Resource.
type Amount [resources]float64

func (a Amount) plus(b Amount, times float64) Amount {
	for r := range a {
		a[r] += times * b[r]
	}
	return a
}

// highest is the greater of the two amounts of each resource.
func (a Amount) highest(b Amount) Amount {
	for r := range a {
		a[r] = max(a[r], b[r])
	}
	return a
}

// share is the greatest part that a takes of the capacity: the cost c(t) of sec. 6.3, over all resources.
func (a Amount) share(capacity Amount) (cost float64, binds Resource) {
	for r := range a {
		if s := a[r] / capacity[r]; s > cost {
			cost, binds = s, Resource(r)
		}
	}
	return cost, binds
}

// Stage is what all VMs of a run need in one step of its skyline.
type Stage struct {
	VMs    int
	Cores  float64
	Memory float64 // bytes
}

// Elastic makes a request one of equal VMs that may run fewer at a time, for longer: the containers of the paper. A stage then is
// Stage.VMs of them for one step each; its Cores and Memory do not count.
type Elastic struct {
	Unit        Amount // of one VM, for a step
	Gang        int    // VMs that start together; 0: 1
	MaxParallel int    // VMs of a stage that run at once, besides as many as the stage has; 0: no further bound
}

// Request is a reservation to be placed: one run in each period, or one run.
//
// Many fields: it is a recurrence, a window, a demand and the rules of its VMs.
type Request struct {
	Name   string
	Period int // steps from one run to the next; it divides the agenda's steps. 0: one run
	Phase  int // step of the agenda at which the first period starts
	// Earliest and Due bound the run, in steps after the start of its period: [Earliest, Due).
	Earliest, Due int
	Stages        []Stage
	Elastic       *Elastic // nil: its VMs all run, with less CPU for longer
	// MinYield is the least CPU that a run may have over what it needs, in (0, 1]; a run with yield y takes 1/y as long, and
	// keeps its memory so long. 0: 1. It does not count if the request is elastic.
	MinYield float64
	// Unsteady jobs, with a high CV of start after input or of read after end, pay for distance from the middle of their window
	// (sec. 7).
	Unsteady bool

	// Apart: slots with the same text, if not "", never overlap in time, though they may share a step. In such a step only the largest
	// counts.
	Apart string

	Labels   map[string]string   // of its VMs
	Affinity *allocator.Affinity // of its VMs; nil: no rule
}

// maxSize bounds what callers can ask for, so that no product overflows.
const maxSize = 1 << 24

func (r *Request) validate(steps int) error {
	period := r.period(steps)
	switch {
	case r.Name == "":
		return errors.New("a request needs a name")
	case len(r.Stages) == 0:
		return fmt.Errorf("reserve for %s: it has no stages", r.Name)
	case r.Period < 0 || steps%period != 0:
		return fmt.Errorf("reserve for %s: %d steps of the agenda are no multiple of its period of %d: reserve each run by itself (Single)", r.Name, steps, period)
	case r.Phase < 0 || r.Phase >= steps || r.Earliest < 0 || r.Earliest > maxSize || r.Due <= r.Earliest || r.Due-r.Earliest > period:
		return fmt.Errorf("reserve for %s: its window [%d, %d) is not within one period of %d steps", r.Name, r.Earliest, r.Due, period)
	case !(r.MinYield >= 0 && r.MinYield <= 1):
		return fmt.Errorf("reserve for %s: its minimum yield is %v, not in [0, 1]", r.Name, r.MinYield)
	}
	for k, s := range r.Stages {
		if err := s.validate(r.Elastic != nil); err != nil {
			return fmt.Errorf("reserve for %s: stage %d: %w", r.Name, k, err)
		}
	}
	if e := r.Elastic; e != nil && !e.sane() {
		return fmt.Errorf("reserve for %s: gangs of %d, at most %d VMs at once, of %v", r.Name, e.Gang, e.MaxParallel, e.Unit)
	}
	return nil
}

func (s *Stage) validate(elastic bool) error {
	switch {
	case s.VMs < 0 || s.VMs > maxSize || !sane(s.Cores) || !sane(s.Memory):
		return fmt.Errorf("it needs %d VMs, %v cores, %v bytes", s.VMs, s.Cores, s.Memory)
	case !elastic && s.VMs == 0 && (s.Cores > 0 || s.Memory > 0):
		return errors.New("it has no VMs, but needs")
	}
	return nil
}

func (e *Elastic) sane() bool {
	return e.Gang >= 0 && e.MaxParallel >= 0 && (e.MaxParallel == 0 || e.Gang <= e.MaxParallel) &&
		sane(e.Unit[Cores]) && sane(e.Unit[Memory]) && sane(e.Unit[VMs])
}

func sane(x float64) bool { return x >= 0 && x <= allocator.GreatestNumber && !math.IsInf(x, 0) }

func (r *Request) period(steps int) int {
	if r.Period == 0 {
		return steps
	}
	return r.Period
}

// Slot is a request with its place.
type Slot struct {
	Request Request
	Start   int      // of the run, in steps after the start of its period
	Amounts []Amount // from Start on, step by step; what Elastic units or stretched stages come to
	Cost    float64  // the highest c(t) of its steps when it was placed; at most 1: it fits the sums
	Yield   float64  // CPU over need while it runs; 1 if it is elastic
}

// End of the run, in steps after the start of its period.
func (s *Slot) End() int { return s.Start + len(s.Amounts) }

// each calls f for every step of every run of the slot in an agenda of so many steps: at is the place in Amounts.
func (s *Slot) each(steps int, f func(step, at int)) {
	period := s.Request.period(steps)
	for first := s.Request.Phase + s.Start; first < s.Request.Phase+s.Start+steps; first += period {
		for at := range s.Amounts {
			f((first+at)%steps, at)
		}
	}
}
