package migration

import "fmt"

// Kind of a step.
type Kind int

const (
	Adjust Kind = iota // sets caps: those that shrink, one after another, then those that grow
	Move               // moves a VM that runs
	Start              // starts a VM that has no host
)

func (k Kind) String() string {
	switch k {
	case Adjust:
		return "adjust"
	case Move:
		return "move"
	case Start:
		return "start"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Cap is the CPU of every VM of a group, cores.
type Cap struct {
	Group int
	CPU   float64
}

// Step of a plan. It may begin as soon as all steps in After have ended, however
// long they took; no rule is broken at any instant if every step keeps to that.
type Step struct {
	Kind  Kind
	After []int // earlier steps, ascending

	// Of Adjust. A group's cap never changes while one of its VMs moves. Both may
	// be empty: the step then only says that others wait for it.
	Shrink, Grow []Cap

	// Of Move and Start.
	Group, VM int
	From, To  int     // hosts; From is -1 for Start
	Bytes     float64 // predicted; 0 for Start
	CPU       float64 // cap that the VM comes with
	Staging   bool    // the VM goes on to another host later

	Begins, Seconds float64 // predicted, from the beginning of the plan on
	Reason          string
}

// lanes let so many steps run at once: each waits for the one before it in its lane.
type lanes struct {
	last []int // step, -1: none yet
	end  []float64
}

func newLanes(n int) *lanes {
	if n <= 0 {
		return nil
	}
	l := &lanes{last: make([]int, n), end: make([]float64, n)}
	for i := range l.last {
		l.last[i] = -1
	}
	return l
}

func (l *lanes) first() int {
	best := 0
	for i := range l.end {
		if l.end[i] < l.end[best] {
			best = i
		}
	}
	return best
}
