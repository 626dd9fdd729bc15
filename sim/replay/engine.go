package replay

import (
	"container/heap"
	"errors"
	"fmt"
	"math"

	"evenkeel/sim/workload"
)

// Options of a run. The zero value is usable.
type Options struct {
	Tick float64 // seconds between measurements; 0: 60

	// Until ends the run, seconds; 0: once all is done. What has not ended by then counts as unfinished.
	Until float64

	// Kept is how much of the work that an elastic component contributed outlasts its preemption, 0 to 1. A core component's is
	// lost in any case, with all of its application.
	Kept float64

	// Series is how many ticks one entry of the series over time stands for; 0: 60.
	Series int

	// Progress is called now and then with the applications that ended; nil: not.
	Progress func(done int)

	// Stop ends the run with ErrStopped once it says so; nil: it does not.
	Stop func() bool
}

// ErrStopped is returned when Options.Stop ended a run.
var ErrStopped = errors.New("the replay was stopped")

// Run plays w on hosts under p. The workload is not changed, and may be shared by runs that go on at the same time.
func Run(w *workload.Workload, hosts []Host, p Policy, o Options) (*Result, error) {
	if err := w.Validate(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if len(hosts) == 0 {
		return nil, errors.New("replay: no hosts")
	}
	for i, h := range hosts {
		if !(h.CPU > 0 && h.CPU < 1e9 && h.Memory > 0 && h.Memory < 1e18) {
			return nil, fmt.Errorf("replay: host %d of %v cores and %v bytes", i, h.CPU, h.Memory)
		}
	}
	if o.Tick == 0 {
		o.Tick = 60
	}
	if o.Series == 0 {
		o.Series = 60
	}
	if !(o.Tick > 0 && o.Tick < 1e9) || o.Series < 1 || !(o.Kept >= 0 && o.Kept <= 1) || !(o.Until >= 0) {
		return nil, fmt.Errorf("replay: options %+v make no sense", o)
	}
	c := newCluster(w, hosts, o)
	if a, group := c.neverFits(); a >= 0 {
		return nil, fmt.Errorf("replay: application %d can never run: its group of %d components of %.3g cores and %.3g bytes fits on no empty cluster",
			a, group.Count, group.CPU, group.Memory)
	}
	c.policy = p
	c.how = p.Begin(c)
	if err := c.play(); err != nil {
		return nil, err
	}
	return c.result(), nil
}

// engine is what only the simulation knows of a cluster.
// Many fields: they are columns, arrays by application, host or slot, which a replay of millions of events walks through.
type engine struct {
	o      Options
	policy Policy
	how    Enforcement

	rank, byRank              []int32
	waiting, running, wanting ranks

	// By application.
	head         []int32   // its slots
	at           []float64 // when done was true
	done         []float64
	rate         []float64 // work done in a second
	version      []uint32  // of the rate
	minCoreYield []float64 // least yield of its core components
	elastic      []float64 // sum of the yields of its elastic ones
	lowest       []float64 // least yield of all of them
	size         []int32   // components it has when complete
	core         []int32   // core components
	deficit      []int32   // elastic components
	end          []float64 // < 0: not yet
	start        []float64 // first; < 0: not yet
	sums         []appSums

	groupRuns, groupNext []int32 // by group: components that run, the next to start

	headOn  []int32   // by host: its slots
	crowded []bool    // CPU is short
	givenOn []float64 // CPU that its components get
	usedOn  []float64 // memory that they use

	// By slot: what it would use now, where it is in its patterns, what it gets.
	wants, gets          []float64
	pages                []bool // less memory than it is owed
	beginCPU, beginMem   []float64
	given, yield, earned []float64
	accrued              []float64 // until when it is accounted for
	free                 []int32   // slots

	arrived  int
	ended    int
	soon     soon // ends before the next tick
	nextTick float64
	doomed   []int32 // slots
	fresh    []int32 // slots that began since reconcile
	dirty    []int32 // hosts whose CPU is to be divided again
	affected []int32 // applications whose rate is to be found again
	placing  placing
	tally    tally
}

// soon are applications that end before the next tick, at the rate of their version.
type soon []ending

type ending struct {
	at      float64
	app     int32
	version uint32
}

func (s soon) Len() int { return len(s) }
func (s soon) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].app < s[j].app
}
func (s soon) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *soon) Push(x any)   { *s = append(*s, x.(ending)) }
func (s *soon) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func newCluster(w *workload.Workload, hosts []Host, o Options) *Cluster {
	n, h := len(w.Apps), len(hosts)
	c := &Cluster{Workload: w, Hosts: hosts, Tick: o.Tick,
		AllocatedCPU: make([]float64, h), AllocatedMemory: make([]float64, h), LoadCPU: make([]float64, h), LoadMemory: make([]float64, h),
		Failures: make([]int32, n), Preemptions: make([]int32, n), Components: make([]int32, n)}
	c.o = o
	c.rank, c.byRank = order(w)
	c.waiting, c.running, c.wanting = newRanks(n), newRanks(n), newRanks(n)
	c.head, c.size, c.deficit = make([]int32, n), make([]int32, n), make([]int32, n)
	c.done, c.rate, c.minCoreYield, c.elastic = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	c.version, c.end, c.start, c.sums = make([]uint32, n), make([]float64, n), make([]float64, n), make([]appSums, n)
	c.at, c.lowest, c.core = make([]float64, n), make([]float64, n), make([]int32, n)
	for a := range n {
		c.head[a], c.end[a], c.start[a] = -1, -1, -1
		for _, g := range w.Of(a) {
			c.size[a] += g.Count
			if !g.Elastic {
				c.core[a] += g.Count
			}
		}
	}
	c.groupRuns, c.groupNext = make([]int32, len(w.Groups)), make([]int32, len(w.Groups))
	c.headOn, c.crowded, c.givenOn, c.usedOn = make([]int32, h), make([]bool, h), make([]float64, h), make([]float64, h)
	for j := range c.headOn {
		c.headOn[j] = -1
	}
	c.placing = newPlacing(h)
	return c
}

// play runs until all is done.
func (c *Cluster) play() error {
	apps := c.Workload.Apps
	shown := -1
	for c.ended < len(apps) {
		if c.running.n == 0 && c.waiting.n == 0 {
			// Nothing happens until something arrives.
			c.Ticks = max(c.Ticks, int(math.Floor(apps[c.arrived].Arrival/c.Tick)))
		}
		now := float64(c.Ticks) * c.Tick
		if c.o.Until > 0 && now >= c.o.Until {
			return nil
		}
		c.Now, c.nextTick = now, now+c.Tick
		c.tick()
		if err := c.between(); err != nil {
			return err
		}
		c.Ticks++
		if c.Ticks%64 == 0 {
			if c.o.Stop != nil && c.o.Stop() {
				return ErrStopped
			}
			if c.o.Progress != nil && c.ended != shown {
				shown = c.ended
				c.o.Progress(c.ended)
			}
		}
	}
	return nil
}

// between plays what happens before the next tick.
func (c *Cluster) between() error {
	apps := c.Workload.Apps
	for {
		at, ends := c.nextTick, false
		if len(c.soon) > 0 && c.soon[0].at <= at {
			at, ends = c.soon[0].at, true
		}
		if c.arrived < len(apps) && apps[c.arrived].Arrival < at {
			at, ends = apps[c.arrived].Arrival, false
		} else if !ends {
			return nil
		}
		c.Now = max(c.Now, at)
		if ends && !c.finishDue() {
			continue
		}
		if !ends {
			c.arrive()
		}
		c.schedule()
	}
}

// sameInstant is how far apart, in seconds, two ends may be by rounding.
const sameInstant = 1e-9

// finishDue finishes all that ends now, so that the policy sees all of the room that comes free in one instant. It is false if
// nothing ended.
func (c *Cluster) finishDue() bool {
	any := false
	for len(c.soon) > 0 && c.soon[0].at <= c.Now+sameInstant {
		e := heap.Pop(&c.soon).(ending)
		if e.version == c.version[e.app] && c.running.has(c.rank[e.app]) {
			c.finish(e.app)
			any = true
		}
	}
	return any
}

// arrive puts the applications that have arrived by now into the queue.
func (c *Cluster) arrive() {
	for apps := c.Workload.Apps; c.arrived < len(apps) && apps[c.arrived].Arrival <= c.Now; c.arrived++ {
		c.waiting.add(c.rank[c.arrived])
	}
}

// schedule lets the policy start components, and then enforces what hosts can give.
func (c *Cluster) schedule() {
	c.policy.Schedule(c)
	c.reconcile()
}

// advance brings the work of an application up to now.
func (c *Cluster) advance(app int32) {
	if dt := c.Now - c.at[app]; dt > 0 {
		c.done[app] += dt * c.rate[app]
	}
	c.at[app] = c.Now
}

// setRate says how fast an application works from now on, and when it ends if that is soon.
func (c *Cluster) setRate(app int32) {
	c.advance(app)
	c.rate[app] = c.minCoreYield[app] * (float64(c.core[app]) + c.elastic[app]) / float64(c.size[app])
	c.version[app]++
	if c.rate[app] <= 0 {
		return
	}
	end := c.Now + max(0, c.Workload.Apps[app].Work-c.done[app])/c.rate[app]
	if end <= c.nextTick {
		heap.Push(&c.soon, ending{end, app, c.version[app]})
	}
}

// finish ends an application that has done its work.
func (c *Cluster) finish(app int32) {
	c.advance(app)
	c.done[app] = c.Workload.Apps[app].Work
	for c.head[app] >= 0 {
		c.remove(c.head[app])
	}
	c.running.remove(c.rank[app])
	c.wanting.remove(c.rank[app])
	c.end[app] = c.Now
	c.ended++
}

// tick measures, lets the policy rightsize, finds what components really use, and starts what fits.
func (c *Cluster) tick() {
	c.measure()
	c.policy.Rightsize(c)
	c.enforce()
	c.soon = c.soon[:0]
	c.share()
	c.arrive()
	c.schedule()
	c.tally.count(c)
}
