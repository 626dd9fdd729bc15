package rightsizing

import "cmp"

// Amount of the two resources: cores and bytes (any unit will do, if all use the same).
type Amount struct{ CPU, Memory float64 }

// Host has what its components may use in all.
type Host struct {
	Name        string // for texts
	CPU, Memory float64
}

// App is an application: components that live and die together, but for the elastic ones.
type App struct {
	// First and Count say which components are its own: Problem.Components[First:First+Count].
	First, Count int
	// Yield is the share of its CPU need that must be there, 0 to 1. 1: as in the paper, it goes where CPU is
	// short. 0: CPU is compressible, and only memory makes it go.
	Yield float64
	// Fixed applications never go and never give memory back; they get more only where room is left.
	Fixed bool
}

// Component runs on one host. Times are seconds in one scale.
type Component struct {
	Host    int // position in Problem.Hosts
	Elastic bool
	Since   int64 // when it began to live
	Grew    int64 // when its memory last grew or was short; 0 = never
	Request Amount
	Present Amount
	// Need is the forecast with its buffer beta. What lies outside of Floor and Request is cut off. NaN: nothing
	// is forecast, and the need is the request.
	Need  Amount
	Floor float64 // memory it never has less of
	// Required is the memory, besides what it has, that it is given before any optional memory; the rest of the need is optional. 0: all of it.
	Required float64
	// InUse is the memory for which others are evicted. 0: what is required.
	InUse   float64
	Charged float64 // memory its host still counts for it, where that is more than Present.Memory
	// Coming: its host keeps memory for it, and it takes none there yet. No other is evicted for it.
	Coming bool
}

// Problem is the cluster as it is. Applications come in the order of the scheduler: see Before.
type Problem struct {
	Hosts      []Host
	Apps       []App
	Components []Component
}

// Before is the scheduler's order, for sorting: greater priorities first, then those that came first.
func Before(priority, other int, came, otherCame int64) int {
	return cmp.Or(cmp.Compare(other, priority), cmp.Compare(came, otherCame))
}

// Policy says which components get less where not all needs can be met.
type Policy uint8

// Policies.
const (
	Pessimistic Policy = iota // Algorithm 1
	Optimistic                // the baseline
)

// String names the policy.
func (p Policy) String() string {
	if p == Optimistic {
		return "optimistic"
	}
	return "pessimistic"
}

// Options of a look. The zero value is Algorithm 1 as the paper has it.
type Options struct {
	Policy Policy
	Now    int64 // seconds, as those of components
	MinAge int64 // a component younger than that needs its request (the paper's grace period: 10 minutes)
	Rest   int64 // memory that grew, or was short, does not shrink for that long
	// Step is the most that memory falls in one look, as a share of the request; 0 = no bound.
	Step float64
	// Reserve: a host keeps free what its components may take back by themselves, being below their requests, as in allocator.Reserve.
	// No component grows into it. Only elastic components are evicted for it, and only for the largest deficit of one component:
	// where a quarter of all deficits is not free, other components just do not grow.
	Reserve bool
	// CoreFirst: the core components of all applications are served before any elastic one, so that an application is evicted whole only
	// where no elastic component is left. Otherwise application by application, as in the paper.
	CoreFirst bool
	// LargestOnly: the quarter of all deficits is not kept.
	LargestOnly bool
	// Late: memory that is taken, also from components that are evicted, is free only in a later look, once Present and Charged show it.
	Late bool
}

// Action of a component.
type Action uint8

// Actions. Keep is the least there is to do.
const (
	Keep    Action = iota
	Grow           // its memory grows; a change of CPU alone is no action
	Shrink         // its memory falls
	Preempt        // it is evicted: to be stopped
	Fail           // optimistic: nothing is left of what it needs; it is on its own
)

// String names the action.
func (f Action) String() string {
	return [...]string{"keep", "grow", "shrink", "preempt", "fail"}[min(f, Fail)]
}

// Why is the reason for a component's action.
type Why uint8

// Reasons.
const (
	Needed     Why = iota // it gets what it is expected to need
	Unknown               // nothing is forecast
	Young                 // it has not been seen for long enough
	Rested                // its memory grew, or was short, a short while ago
	Stepped               // it needs less still, and gives it back step by step
	AtFloor               // it needs less than it must have
	AtDeclared            // it needs all that was asked for, or more
	NoRoom                // it needs more, and has what is left
	IsFixed               // nothing is taken from its application
	NoMemory              // its host lacks memory
	NoReserve             // its host has the memory, and not what it keeps besides
	NoCPU                 // its host lacks CPU
	WithCore              // a core component of its application is evicted
)

// Outcome is what was decided for a component.
type Outcome struct {
	CPU, Memory float64 // what it is given; 0 for one that is evicted
	Action      Action
	Why         Why
	Core        int32   // WithCore: the component that has no room; else -1
	Deficit     float64 // cores or bytes: NoRoom, NoMemory, NoReserve, NoCPU; WithCore: what that component lacks
}

// Left is what a host has left once its components have what they are given. It is below 0 where the optimistic policy gave
// too much, or where Fixed components alone need more than there is.
type Left struct {
	Amount
	Reserve float64 // of that memory, kept for what components may take back by themselves
	Yield   float64 // least CPU given over CPU needed
}

// Result of a look. It belongs to the Rightsizer and is valid until its next look.
type Result struct {
	Outcomes  []Outcome // parallel to Problem.Components
	Hosts     []Left    // parallel to Problem.Hosts
	Evicted   []int     // applications that go whole, by position
	Preempted int       // components, those of Evicted included
	Failed    int
	Shrunk    int
	Grown     int
}
