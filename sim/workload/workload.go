package workload

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Workload is all that arrives.
type Workload struct {
	Apps     []App // ascending by Arrival
	Groups   []Group
	Patterns []Pattern

	Periodic []Periodic // jobs that some of the applications are runs of

	// ByClock: components are in their patterns where the time is, so that those of one record do what they did together. Otherwise they are
	// where their work is. Use.Offset is then the place of a component at the beginning of the workload.
	ByClock bool
}

// App is one application: it runs once all components of its core groups do, and ends when its work is done.
type App struct {
	Arrival  float64 // seconds from the beginning
	Work     float64 // seconds it takes with all components at full speed; > 0
	Priority int32   // the greater goes first; of equal ones the one that arrived first
	Source   int32   // where it comes from: a user, a job's template
	First    int32   // its groups are Workload.Groups[First : First+Groups]
	Groups   int32

	Due float64 // seconds from the beginning: the deadline; 0: it has none
	Job int32   // 1 + the index in Workload.Periodic of the job that it is a run of; 0: of none
}

// Periodic is a job that comes again, and what is known of its past.
type Periodic struct {
	Period float64 // seconds from one run to the next
	Begin  float64 // seconds from the beginning of a period to the submission of its run
	Window float64 // seconds from there to its deadline; at most a period
	Of     int32   // jobs of equal Of have the same past
	Past   []PastRun
}

// PastRun is what a run before the beginning used, as shares of the request, in steps of PastStep seconds from its start.
type PastRun struct {
	CPU    []float64 // mean over the step
	Memory []float64 // most in the step
}

// PastStep is the step of PastRun, seconds.
const PastStep = 300.0

// Group is equal components of one application.
type Group struct {
	Count   int32
	Elastic bool    // not needed for the application to work; without them it is slower
	CPU     float64 // request of one component, cores
	Memory  float64 // request of one component, bytes

	CPUUse, MemoryUse Use
}

// Use is what a component really uses, as a share of its request, over the work done by its application.
type Use struct {
	Pattern int32   // in Workload.Patterns
	Offset  float32 // place in the pattern where the application begins
	Step    float32 // seconds of work from one value of the pattern to the next; > 0
	Spread  float32 // component i begins up to so many places further on
}

// Pattern is shares of a request (1: all of it) at equal distances. Between two values use is on the line between them; after the last comes the first.
type Pattern []float32

// golden spreads numbers 0, 1, 2, ... evenly over 0 to 1.
const golden = 0.6180339887498949

// Begin is the place in its pattern where component i of a group begins.
func (u Use) Begin(i int) float64 {
	f := float64(i) * golden
	return float64(u.Offset) + float64(u.Spread)*(f-math.Floor(f))
}

// At is the value at a place >= 0.
func (p Pattern) At(place float64) float64 {
	i := int(place)
	f := place - float64(i)
	if i >= len(p) {
		i %= len(p)
	}
	a := float64(p[i])
	if i++; i == len(p) {
		i = 0
	}
	return a + f*(float64(p[i])-a)
}

// Mean is that of a pattern over all of its length.
func (p Pattern) Mean() float64 {
	s := 0.0
	for _, v := range p {
		s += float64(v)
	}
	return s / float64(len(p))
}

// Of are the groups of application a.
func (w *Workload) Of(a int) []Group {
	app := &w.Apps[a]
	return w.Groups[app.First : app.First+app.Groups]
}

// Sort puts the applications in order of arrival; those that arrive together keep theirs.
func (w *Workload) Sort() {
	slices.SortStableFunc(w.Apps, func(a, b App) int { return cmp.Compare(a.Arrival, b.Arrival) })
}

// Validate reports the first thing wrong with a workload.
func (w *Workload) Validate() error {
	if len(w.Apps) == 0 {
		return errors.New("a workload without applications")
	}
	for i, p := range w.Patterns {
		if len(p) == 0 {
			return fmt.Errorf("pattern %d is empty", i)
		}
		for _, v := range p {
			if !(v >= 0 && v <= math.MaxFloat32) {
				return fmt.Errorf("pattern %d: %v is no share of a request", i, v)
			}
		}
	}
	last := 0.0
	for i := range w.Apps {
		a := &w.Apps[i]
		if !(a.Arrival >= last && a.Arrival < 1e12) {
			return fmt.Errorf("application %d: arrival %v s, after one at %v", i, a.Arrival, last)
		}
		last = a.Arrival
		if !(a.Work > 0 && a.Work < 1e12) {
			return fmt.Errorf("application %d: %v s of work", i, a.Work)
		}
		if a.Job < 0 || int(a.Job) > len(w.Periodic) || !(a.Due == 0 || a.Due > a.Arrival && a.Due < 1e12) {
			return fmt.Errorf("application %d: a run of job %d of %d, due at %v s", i, a.Job, len(w.Periodic), a.Due)
		}
		if a.First < 0 || a.Groups < 1 || int(a.First)+int(a.Groups) > len(w.Groups) {
			return fmt.Errorf("application %d: groups %d to %d of %d", i, a.First, a.First+a.Groups, len(w.Groups))
		}
		core := false
		for _, g := range w.Of(i) {
			if err := w.check(&g); err != nil {
				return fmt.Errorf("application %d: %w", i, err)
			}
			core = core || !g.Elastic
		}
		if !core {
			return fmt.Errorf("application %d has no core group", i)
		}
	}
	return nil
}

func (w *Workload) check(g *Group) error {
	if g.Count < 1 {
		return fmt.Errorf("a group of %d components", g.Count)
	}
	if !(g.CPU >= 0 && g.CPU < 1e9) || !(g.Memory >= 0 && g.Memory < 1e18) {
		return fmt.Errorf("a request of %v cores and %v bytes", g.CPU, g.Memory)
	}
	for _, u := range []Use{g.CPUUse, g.MemoryUse} {
		if u.Pattern < 0 || int(u.Pattern) >= len(w.Patterns) {
			return fmt.Errorf("there is no pattern %d", u.Pattern)
		}
		if !(u.Step > 0) || !(u.Offset >= 0 && u.Offset < 1e9) || !(u.Spread >= 0 && u.Spread < 1e9) {
			return fmt.Errorf("use %+v: the step must be above 0, offset and spread not below", u)
		}
	}
	return nil
}
