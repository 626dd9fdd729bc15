package replay

import (
	"math"
	"slices"
)

// appSums are an application's integrals over time: core-seconds and byte-seconds.
type appSums struct {
	askedCPU, askedMemory         float64
	allocatedCPU, allocatedMemory float64
	usedCPU, usedMemory           float64
	idleCPU, idleMemory           float64 // allocated and not used
	kills                         int64   // components that ended for want of memory
}

// tally counts what belongs to no single application. Many fields: each is one sum from which Result is made.
type tally struct {
	tasks, missed       int64 // components times ticks, and those in which one got less than it should have
	kills               int64
	memoryExceeded      int64
	preempted, requeued int64
	moves               int64
	bytes, lost         float64

	now    Point // sums since the last entry of the series
	ticks  int
	series []Point

	yieldTicks             int
	minYield, meanYield    float64
	seconds                float64
	loadCPU, loadMemory    float64 // integrals of shares
	allocCPU, allocMemory  float64
	capacityCPU, capMemory float64
}

// Point is one entry of the series over time: means over its ticks, apart from the counts.
type Point struct {
	Time            float64 `json:"time"`            // seconds, of its first tick
	AllocatedCPU    float64 `json:"allocatedCPU"`    // share of all hosts'
	AllocatedMemory float64 `json:"allocatedMemory"` // share
	UsedCPU         float64 `json:"usedCPU"`         // share
	UsedMemory      float64 `json:"usedMemory"`      // share
	Running         float64 `json:"running"`         // applications
	Waiting         float64 `json:"waiting"`         // applications
	Components      float64 `json:"components"`      // that run
	MinYield        float64 `json:"minYield"`        // mean over ticks of the least of all applications
	MeanYield       float64 `json:"meanYield"`       // mean over ticks of the mean over applications
	Kills           int64   `json:"kills"`           // components that ended for want of memory
	Preempted       int64   `json:"preempted"`       // components
}

func (t *tally) count(c *Cluster) {
	p := &t.now
	if t.ticks == 0 {
		*p = Point{Time: c.Now, Kills: p.Kills, Preempted: p.Preempted}
	}
	if t.capacityCPU == 0 {
		for _, h := range c.Hosts {
			t.capacityCPU += h.CPU
			t.capMemory += h.Memory
		}
	}
	var allocCPU, allocMemory, usedCPU, usedMemory float64
	for h := range c.Hosts {
		allocCPU += c.AllocatedCPU[h]
		allocMemory += c.AllocatedMemory[h]
		usedCPU += c.givenOn[h]
		usedMemory += min(c.usedOn[h], c.Hosts[h].Memory)
	}
	lowest, sum, n := 1.0, 0.0, 0
	for r := c.running.from(0); r >= 0; r = c.running.from(r + 1) {
		y := c.lowest[c.byRank[r]]
		lowest = min(lowest, y)
		sum += y
		n++
	}
	if n > 0 {
		t.yieldTicks++
		t.minYield += lowest
		t.meanYield += sum / float64(n)
		sum /= float64(n)
	} else {
		sum = 1
	}
	p.AllocatedCPU += allocCPU / t.capacityCPU
	p.AllocatedMemory += allocMemory / t.capMemory
	p.UsedCPU += usedCPU / t.capacityCPU
	p.UsedMemory += usedMemory / t.capMemory
	p.Running += float64(c.running.n)
	p.Waiting += float64(c.waiting.n)
	p.Components += float64(len(c.App) - len(c.free))
	p.MinYield += lowest
	p.MeanYield += sum
	t.seconds += c.Tick
	t.allocCPU += c.Tick * allocCPU / t.capacityCPU
	t.allocMemory += c.Tick * allocMemory / t.capMemory
	t.loadCPU += c.Tick * usedCPU / t.capacityCPU
	t.loadMemory += c.Tick * usedMemory / t.capMemory
	if t.ticks++; t.ticks == c.o.Series {
		t.flush()
	}
}

// flush ends an entry of the series.
func (t *tally) flush() {
	if t.ticks == 0 {
		return
	}
	p, n := t.now, float64(t.ticks)
	for _, v := range []*float64{&p.AllocatedCPU, &p.AllocatedMemory, &p.UsedCPU, &p.UsedMemory, &p.Running, &p.Waiting, &p.Components, &p.MinYield, &p.MeanYield} {
		*v /= n
	}
	kills, preempted := int64(0), int64(0)
	for i := range t.series {
		kills += t.series[i].Kills
		preempted += t.series[i].Preempted
	}
	p.Kills, p.Preempted = t.kills-kills, t.preempted-preempted
	t.series = append(t.series, p)
	t.now, t.ticks = Point{}, 0
}

// Result is what came of a run. Many fields: it is one JSON object, the output of vcsim run.
type Result struct {
	Policy     string  `json:"policy"`
	Hosts      int     `json:"hosts"`
	Apps       int     `json:"applications"`
	Unfinished int     `json:"unfinished"` // at the end of the run
	Seconds    float64 `json:"seconds"`    // that hosts were looked at: times at which nothing ran or waited are not in it

	Turnaround Spread `json:"turnaround"` // seconds from arrival to end, of those that ended
	Wait       Spread `json:"wait"`       // seconds from arrival to first start
	Stretch    Spread `json:"stretch"`    // turnaround over work, both at least StretchFloor; see App.Stretch

	// Slack is what was allocated and not used, of what was asked for: the mean over applications of each one's over its time.
	// SlackCPUOfAllocation and SlackMemoryOfAllocation are the same, of what was allocated.
	SlackCPU                float64 `json:"slackCPU"`
	SlackMemory             float64 `json:"slackMemory"`
	SlackCPUOfAllocation    float64 `json:"slackCPUOfAllocation"`
	SlackMemoryOfAllocation float64 `json:"slackMemoryOfAllocation"`

	Failed         float64 `json:"failed"`    // share of applications that ended for want of memory at least once
	Hurt           float64 `json:"hurt"`      // share of applications that lost a component so at least once, an elastic one or all
	Requeued       float64 `json:"requeued"`  // share of applications of which all was preempted at least once
	Failures       int64   `json:"failures"`  // times an application failed
	Requeues       int64   `json:"requeues"`  // times one was preempted whole
	Kills          int64   `json:"kills"`     // components that ended for want of memory, elastic ones too
	Preempted      int64   `json:"preempted"` // components
	MemoryExceeded int64   `json:"pressed"`   // times that a host's components used more memory than it has

	// QoS is the share of component-ticks in which a component got the CPU it wanted, or its request where that is less, and was not ended.
	QoS float64 `json:"qos"`

	UsedCPU         float64 `json:"usedCPU"` // of all hosts', mean over time
	UsedMemory      float64 `json:"usedMemory"`
	AllocatedCPU    float64 `json:"allocatedCPU"`
	AllocatedMemory float64 `json:"allocatedMemory"`
	MinYield        float64 `json:"minYield"`  // mean over time of the least yield of all applications
	MeanYield       float64 `json:"meanYield"` // mean over time of the applications' mean

	Moves      int64   `json:"moves"`
	BytesMoved float64 `json:"bytesMoved"`

	// Thrash is work that was thrown away over all work that was done.
	Thrash float64 `json:"thrash"`

	Deadlines *Deadlines     `json:"deadlines,omitempty"` // nil: no application has one
	Agenda    *AgendaOutcome `json:"agenda,omitempty"`    // of the policies that have one

	Series []Point      `json:"series,omitempty"`
	PerApp []AppOutcome `json:"perApplication,omitempty"`
}

// AppOutcome is what came of one application.
type AppOutcome struct {
	Arrival     float64 `json:"arrival"`    // seconds
	Start       float64 `json:"start"`      // first; -1: never
	End         float64 `json:"end"`        // -1: not by the end of the run
	Turnaround  float64 `json:"turnaround"` // seconds; -1 without an end
	Stretch     float64 `json:"stretch"`
	Failures    int32   `json:"failures"`
	Preemptions int32   `json:"preemptions"`
	SlackCPU    float64 `json:"slackCPU"`
	SlackMemory float64 `json:"slackMemory"`
}

// StretchFloor bounds the stretch of short applications: 10 s, as in Stillwell, Vivien and Casanova (TPDS 2012).
const StretchFloor = 10.0

// Spread is how values are distributed.
type Spread struct {
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	P25    float64 `json:"p25"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// SpreadOf sorts the values it is given. All is 0 without values.
func SpreadOf(v []float64) (s Spread) {
	if len(v) == 0 {
		return s
	}
	slices.Sort(v)
	for _, x := range v {
		s.Mean += x / float64(len(v))
	}
	at := func(q float64) float64 { return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))] }
	s.Min, s.P25, s.Median, s.P75, s.P95, s.P99, s.Max = v[0], at(0.25), at(0.5), at(0.75), at(0.95), at(0.99), v[len(v)-1]
	return s
}

// StretchOf is the bounded stretch: how many times longer an application took than it would have at full speed from its arrival on.
func StretchOf(turnaround, work float64) float64 {
	return max(1, max(turnaround, StretchFloor)/max(work, StretchFloor))
}

func (c *Cluster) result() *Result {
	t := &c.tally
	t.flush()
	n := len(c.Workload.Apps)
	r := &Result{Policy: c.policy.Name(), Hosts: len(c.Hosts), Apps: n, Unfinished: n - c.ended, Seconds: t.seconds, Failures: 0,
		Kills: t.kills, Preempted: t.preempted, Requeues: t.requeued, MemoryExceeded: t.memoryExceeded, Moves: t.moves, BytesMoved: t.bytes, Series: t.series}
	var turnaround, wait, stretch []float64
	useful, ran := 0.0, 0
	r.PerApp = make([]AppOutcome, n)
	for a := range n {
		app, sums := &c.Workload.Apps[a], &c.sums[a]
		f := AppOutcome{Arrival: app.Arrival, Start: c.start[a], End: c.end[a], Turnaround: -1, Failures: c.Failures[a], Preemptions: c.Preemptions[a]}
		if f.End >= 0 {
			f.Turnaround = f.End - f.Arrival
			f.Stretch = StretchOf(f.Turnaround, app.Work)
			turnaround = append(turnaround, f.Turnaround)
			stretch = append(stretch, f.Stretch)
		}
		if f.Start >= 0 {
			wait = append(wait, f.Start-f.Arrival)
		}
		useful += c.done[a] * float64(c.size[a])
		if sums.askedMemory > 0 || sums.askedCPU > 0 {
			ran++
			f.SlackCPU, f.SlackMemory = part(sums.idleCPU, sums.askedCPU), part(sums.idleMemory, sums.askedMemory)
			r.SlackCPU += f.SlackCPU
			r.SlackMemory += f.SlackMemory
			r.SlackCPUOfAllocation += part(sums.idleCPU, sums.allocatedCPU)
			r.SlackMemoryOfAllocation += part(sums.idleMemory, sums.allocatedMemory)
		}
		if f.Failures > 0 {
			r.Failed++
			r.Failures += int64(f.Failures)
		}
		if sums.kills > 0 {
			r.Hurt += 1 / float64(n)
		}
		if f.Preemptions > 0 {
			r.Requeued++
		}
		r.PerApp[a] = f
	}
	r.Failed /= float64(n)
	r.Requeued /= float64(n)
	for _, v := range []*float64{&r.SlackCPU, &r.SlackMemory, &r.SlackCPUOfAllocation, &r.SlackMemoryOfAllocation} {
		*v = part(*v, float64(ran))
	}
	r.Turnaround, r.Wait, r.Stretch = SpreadOf(turnaround), SpreadOf(wait), SpreadOf(stretch)
	r.QoS = 1 - part(float64(t.missed), float64(t.tasks))
	r.UsedCPU, r.UsedMemory = part(t.loadCPU, t.seconds), part(t.loadMemory, t.seconds)
	r.AllocatedCPU, r.AllocatedMemory = part(t.allocCPU, t.seconds), part(t.allocMemory, t.seconds)
	r.MinYield, r.MeanYield = part(t.minYield, float64(t.yieldTicks)), part(t.meanYield, float64(t.yieldTicks))
	r.Thrash = part(t.lost, t.lost+useful)
	r.Deadlines = c.deadlines()
	if p, ok := c.policy.(interface{ Agenda() *AgendaOutcome }); ok {
		r.Agenda = p.Agenda()
	}
	return r
}

// part is a of b, 0 of nothing.
func part(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
