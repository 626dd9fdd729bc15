package replay

import (
	"cmp"
	"math/bits"
	"slices"

	"evenkeel/sim/workload"
)

// Host is one machine: what components may use of it.
type Host struct {
	CPU    float64 // cores
	Memory float64 // bytes
}

// Cluster is what a policy sees and changes. Its exported fields are to be read only; none of its slices may be kept. Slots that are free
// have App -1. Lists of slots end with -1.
type Cluster struct {
	Workload *workload.Workload
	Hosts    []Host
	Now      float64 // seconds
	Tick     float64 // seconds between two calls of Policy.Rightsize
	Ticks    int     // that were

	// By host: what is allocated now, and what its components used in the tick that ended (cores that they got; bytes).
	AllocatedCPU, AllocatedMemory []float64
	LoadCPU, LoadMemory           []float64

	// By application.
	Failures    []int32 // times that it ended for want of memory
	Preemptions []int32 // times that all of it was preempted
	Components  []int32 // that run

	Slots

	// Freed grows whenever something is freed: while it stands still, what did not fit does not fit.
	Freed int

	engine
}

// Slots are the components that run, by slot.
type Slots struct {
	App   []int32 // -1: the slot is free
	Group []int32 // in Workload.Groups
	On    []int32 // host
	Core  []bool
	Since []float64 // when it started
	Born  []uint32  // differs for each component that had the slot

	RequestCPU, RequestMemory []float64
	CPU, Memory               []float64 // allocated

	// Measured is how many whole ticks it was measured for; of the latest of them are UsedCPU (cores that it got), UsedMemory (bytes), and whether it
	// would have used more CPU than it got, as a host sees from the time that a VM was throttled.
	Measured            []int32
	UsedCPU, UsedMemory []float64
	Short               []bool
	Paging              []bool // it was given less memory than it uses and than it asked for: only with Enforcement.Paged

	next, prev     []int32  // of the same application
	nextOn, prevOn []int32  // on the same host
	used           []uint64 // bits of the slots that are not free
}

// each goes through the slots that are not free, ascending. Those that are freed on the way may still come.
func (s *Slots) each(yield func(int32) bool) {
	for w, chunk := range s.used {
		for ; chunk != 0; chunk &= chunk - 1 {
			if !yield(int32(w<<6 + bits.TrailingZeros64(chunk))) {
				return
			}
		}
	}
}

// FirstWaiting is the application that waits and is first in order; -1: none. The order is by priority, then by arrival, however often
// an application was preempted.
func (c *Cluster) FirstWaiting() int32 { return c.appAt(c.waiting.from(0)) }

// waitingFrom is the first application that waits and whose rank is not below a given one; -1: none.
func (c *Cluster) waitingFrom(rank int32) int32 { return c.appAt(c.waiting.from(rank)) }

// NextWaiting is the next that waits after app.
func (c *Cluster) NextWaiting(app int32) int32 { return c.appAt(c.waiting.from(c.rank[app] + 1)) }

// FirstRunning is the application that runs and is first in order.
func (c *Cluster) FirstRunning() int32 { return c.appAt(c.running.from(0)) }

// NextRunning is the next that runs after app.
func (c *Cluster) NextRunning(app int32) int32 { return c.appAt(c.running.from(c.rank[app] + 1)) }

// FirstWanting is the first application that runs and lacks elastic components.
func (c *Cluster) FirstWanting() int32 { return c.appAt(c.wanting.from(0)) }

// NextWanting is the next that lacks some after app.
func (c *Cluster) NextWanting(app int32) int32 { return c.appAt(c.wanting.from(c.rank[app] + 1)) }

// Waiting is how many applications wait, Running how many run.
func (c *Cluster) Waiting() int { return c.waiting.n }

// Running is how many applications run.
func (c *Cluster) Running() int { return c.running.n }

// Rank is the place of an application in the order; the least goes first.
func (c *Cluster) Rank(app int32) int32 { return c.rank[app] }

// FirstOf is the component of an application that started last; NextOf the one before it.
func (c *Cluster) FirstOf(app int32) int32 { return c.head[app] }

// NextOf is the component of the same application that started before.
func (c *Cluster) NextOf(slot int32) int32 { return c.next[slot] }

// FirstOn is the component on a host that started last; NextOn the one before it.
func (c *Cluster) FirstOn(host int32) int32 { return c.headOn[host] }

// NextOn is the component on the same host that started before.
func (c *Cluster) NextOn(slot int32) int32 { return c.nextOn[slot] }

// Missing is how many components of a group (of Workload.Groups) do not run, of an application that does.
func (c *Cluster) Missing(group int32) int32 {
	return c.Workload.Groups[group].Count - c.groupRuns[group]
}

// FreeCPU is what of a host is not allocated, cores; below 0 where a policy allocates more than there is.
func (c *Cluster) FreeCPU(host int32) float64 { return c.Hosts[host].CPU - c.AllocatedCPU[host] }

// FreeMemory is what of a host is not allocated, bytes.
func (c *Cluster) FreeMemory(host int32) float64 {
	return c.Hosts[host].Memory - c.AllocatedMemory[host]
}

// Truth is what a component would use in the coming tick, cores and bytes. Only an oracle may ask.
func (c *Cluster) Truth(slot int32) (cpu, memory float64) { return c.wants[slot], c.gets[slot] }

// order ranks the applications.
func order(w *workload.Workload) (rank, byRank []int32) {
	byRank = make([]int32, len(w.Apps))
	for i := range byRank {
		byRank[i] = int32(i)
	}
	slices.SortStableFunc(byRank, func(a, b int32) int { return cmp.Compare(w.Apps[b].Priority, w.Apps[a].Priority) })
	rank = make([]int32, len(w.Apps))
	for r, a := range byRank {
		rank[a] = int32(r)
	}
	return rank, byRank
}

func (c *Cluster) appAt(rank int32) int32 {
	if rank < 0 {
		return -1
	}
	return c.byRank[rank]
}
