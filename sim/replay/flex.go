package replay

import (
	"fmt"
	"math"

	"evenkeel/sim/flex"
)

// counting says what of a host counts as taken for a Placer.
type counting interface {
	// Begin gets the hosts' capacities, before anything starts.
	Begin(capacity []flex.Vector)

	// Placed and Ended report a component and its request; measured is for how many calls of Measure it was there.
	Placed(host int, request flex.Vector)
	Ended(host int, request flex.Vector, measured int)

	// Measure gets what was measured in the tick that ended.
	Measure(m *measuredTick)

	// Counts is what a request counts as before anything was measured of the component.
	Counts(request flex.Vector) flex.Vector

	// Taken is what counts as taken now.
	Taken(host int) flex.Vector
}

// measuredTick is what was measured in a tick.
type measuredTick struct {
	Used, Asked []flex.Vector // by host: what is used, and what those that run have asked for
	Quality     float64       // share of components that got what they are owed (Flex, eq. 14); NaN: none ran

	// Mean and Square are those of the part that a component uses of its request, over all Components of which a whole tick was measured.
	Mean, Square flex.Vector
	Components   int
}

func (*measuredTick) request(c *Cluster, slot int) flex.Vector {
	return flex.Vector{c.RequestCPU[slot], c.RequestMemory[slot]}
}

// Placer starts components one by one on the host that sim/flex picks, by what its counting says is taken. The policies
// of Flex and of Ha et al. are Placers.
//
// It knows what the latest tick measured and what it has started since. Applications wait in the Placer's own queue. One that does
// not fit waits for its back-off and delays no other; Ha's wait in order. All core components of an application start together or not at
// all; elastic ones are not started.
// Many fields: half are the settings in which policies differ, half its state.
type Placer struct {
	label    string
	how      Enforcement
	order    flex.Order
	retry    flex.Backoff // seconds
	limit    float64      // times a host's capacity
	charge   float64      // for each component of the same source on the host
	offload  OffloadSettings
	inOrder  bool // the first that does not fit holds up all behind it, and the queue is not used
	counting counting

	fleet   *flex.Fleet
	queue   *flex.Queue
	rank    int32   // the latest that was queued; -1: none
	fails   []int32 // by application: Failures and Preemptions when it was queued last
	known   []placedIn
	sources map[int32]*flex.Source
	ticks   int // measured so far
	m       measuredTick
	short   []bool // by host
	hosts   []int32
	record  []PlacerTick
	started int
}

// placedIn is what the placer knows of a slot.
type placedIn struct {
	born    uint32 // 0: nothing
	source  int32
	host    int32
	ticks   int // Placer.ticks when it began
	moved   int // the same when it was moved last; 0: never
	request flex.Vector
}

// PlacerTick is a cluster at a tick.
type PlacerTick struct {
	Time          float64     // seconds
	Quality       float64     // see measuredTick
	Penalty       float64     // of a counting by load; 1 of others
	Asked, Used   flex.Vector // of all hosts' capacity
	Uneven        flex.Vector // standard deviation among hosts of what is used, over its mean
	Waiting       int         // applications
	Started       int         // applications, since the beginning
	CrowdedCPU    int         // hosts whose components want more CPU than there is
	CrowdedMemory int         // hosts on which memory is short
}

// Name implements Policy.
func (p *Placer) Name() string { return p.label }

// Ticks are what each tick of the latest run has shown.
func (p *Placer) Ticks() []PlacerTick { return p.record }

// Named is the same policy under another name.
func (p *Placer) Named(label string) *Placer {
	p.label = label
	return p
}

// Killing lets the kernel end components where a host's memory runs out, as it does, in place of sharing what there is as Flex's
// evaluation does.
func (p *Placer) Killing() *Placer {
	p.how.Paged = false
	return p
}

// check says what is wrong with settings, so that Begin need not.
func (p *Placer) check() error {
	if _, err := flex.NewFleet(nil, p.limit); err != nil {
		return fmt.Errorf("policy %s: %w", p.label, err)
	}
	if _, err := flex.NewQueue(p.order, p.retry); err != nil {
		return fmt.Errorf("policy %s: %w", p.label, err)
	}
	if !(p.charge >= 0) {
		return fmt.Errorf("policy %s: a charge of %g", p.label, p.charge)
	}
	return nil
}

// Begin implements Policy.
func (p *Placer) Begin(c *Cluster) Enforcement {
	capacity := make([]flex.Vector, len(c.Hosts))
	for h, host := range c.Hosts {
		capacity[h] = flex.Vector{host.CPU, host.Memory}
	}
	// check has seen the limit and the order, Run the hosts: neither fails.
	p.fleet, _ = flex.NewFleet(capacity, p.limit)
	p.queue, _ = flex.NewQueue(p.order, p.retry)
	p.counting.Begin(capacity)
	p.rank, p.fails = -1, make([]int32, len(c.Workload.Apps))
	p.known, p.sources, p.ticks, p.record, p.started = nil, map[int32]*flex.Source{}, 0, nil, 0
	p.m = measuredTick{Used: make([]flex.Vector, len(capacity)), Asked: make([]flex.Vector, len(capacity))}
	p.short = make([]bool, len(capacity))
	return p.how
}

// Rightsize implements Policy.
func (p *Placer) Rightsize(c *Cluster) {
	p.notice(c)
	p.ticks++
	p.measure(c)
	p.counting.Measure(&p.m)
	p.fleet.SetAll(p.counting.Taken)
	if p.offload.Above > 0 {
		p.offloadHosts(c)
	}
}

// FreeMemory implements Policy.
func (*Placer) FreeMemory(*Cluster, int32) {}

// Schedule implements Policy.
func (p *Placer) Schedule(c *Cluster) {
	if p.inOrder {
		for app := c.FirstWaiting(); app >= 0 && p.start(c, app); {
			app = c.FirstWaiting()
		}
		return
	}
	for app := c.waitingFrom(p.rank + 1); app >= 0; app = c.NextWaiting(app) {
		p.rank = c.Rank(app)
		p.enqueue(c, app)
	}
	for {
		w, ok := p.queue.Next(c.Now)
		if !ok {
			return
		}
		if !p.start(c, int32(w.Task)) {
			p.queue.Retry(w, c.Now)
		}
	}
}

// enqueue puts an application among those that wait; its largest component stands for it.
func (p *Placer) enqueue(c *Cluster, app int32) {
	var largest flex.Vector
	for _, g := range c.Workload.Of(int(app)) {
		if !g.Elastic {
			largest = flex.Vector{max(largest[flex.CPU], g.CPU), max(largest[flex.Memory], g.Memory)}
		}
	}
	p.fails[app] = c.Failures[app] + c.Preemptions[app]
	p.queue.Push(int(app), largest)
}

// start finds a host for each core component and starts the application, or changes nothing.
func (p *Placer) start(c *Cluster, app int32) bool {
	source := p.sources[c.Workload.Apps[app].Source]
	if source == nil {
		source = &flex.Source{}
		p.sources[c.Workload.Apps[app].Source] = source
	}
	p.hosts = p.hosts[:0]
	undo := func() bool {
		k := 0
		for _, g := range c.Workload.Of(int(app)) {
			for i := int32(0); !g.Elastic && i < g.Count && k < len(p.hosts); i++ {
				p.fleet.Add(int(p.hosts[k]), flex.Vector{}.Minus(p.counting.Counts(flex.Vector{g.CPU, g.Memory})))
				source.Remove(int(p.hosts[k]))
				k++
			}
		}
		return false
	}
	for _, g := range c.Workload.Of(int(app)) {
		request := p.counting.Counts(flex.Vector{g.CPU, g.Memory})
		for i := int32(0); !g.Elastic && i < g.Count; i++ {
			h, ok := p.fleet.Pick(request, p.charge, source)
			if !ok {
				return undo()
			}
			p.fleet.Add(h, request)
			source.Add(h)
			p.hosts = append(p.hosts, int32(h))
		}
	}
	c.Start(app, p.hosts)
	p.started++
	for s := c.FirstOf(app); s >= 0; s = c.NextOf(s) {
		p.forget(s) // the component that had the slot before
		for int(s) >= len(p.known) {
			p.known = append(p.known, placedIn{})
		}
		k := placedIn{c.Born[s], c.Workload.Apps[app].Source, c.On[s], p.ticks, 0, flex.Vector{c.RequestCPU[s], c.RequestMemory[s]}}
		p.known[s] = k
		p.counting.Placed(int(k.host), k.request)
		// What the counting makes of it is what counts from now on: exact sums and not sums of differences.
		p.fleet.Set(int(k.host), p.counting.Taken(int(k.host)))
	}
	return true
}

// notice finds the components that have gone since the last tick, and applications that failed and wait again.
func (p *Placer) notice(c *Cluster) {
	for s := range p.known {
		if k := &p.known[s]; k.born != 0 && (c.App[s] < 0 || c.Born[s] != k.born) {
			p.forget(int32(s))
		}
	}
	if p.how.Paged || p.inOrder {
		return // no application ends early, or the queue is gone through whole in any case
	}
	for app := c.FirstWaiting(); app >= 0 && c.Rank(app) <= p.rank; app = c.NextWaiting(app) {
		if c.Failures[app]+c.Preemptions[app] != p.fails[app] {
			p.enqueue(c, app)
		}
	}
}

// forget removes the component that was in a slot.
func (p *Placer) forget(s int32) {
	if int(s) >= len(p.known) || p.known[s].born == 0 {
		return
	}
	k := &p.known[s]
	if source := p.sources[k.source]; source != nil {
		if source.Remove(int(k.host)); source.Hosts() == 0 {
			delete(p.sources, k.source)
		}
	}
	p.counting.Ended(int(k.host), k.request, p.ticks-k.ticks)
	k.born = 0
}

// measure sums up what a host can see of its components: what they use, and whether they are short of it.
func (p *Placer) measure(c *Cluster) {
	m := &p.m
	for h := range m.Used {
		m.Used[h], m.Asked[h] = flex.Vector{c.LoadCPU[h], c.LoadMemory[h]}, flex.Vector{}
	}
	clear(p.short)
	m.Mean, m.Square, m.Components = flex.Vector{}, flex.Vector{}, 0
	tasks, missed, crowdedMemory := 0, 0, 0
	for s, app := range c.App {
		if app < 0 {
			continue
		}
		h := c.On[s]
		m.Asked[h] = m.Asked[h].Plus(flex.Vector{c.RequestCPU[s], c.RequestMemory[s]})
		tasks++
		if request := m.request(c, s); c.Measured[s] > 0 && request[flex.CPU] > 0 && request[flex.Memory] > 0 {
			m.Components++
			for k, used := range [...]float64{c.UsedCPU[s], c.UsedMemory[s]} {
				part := used / request[k]
				m.Mean[k] += part
				m.Square[k] += part * part
			}
		}
		p.short[h] = p.short[h] || c.Short[s]
		if c.Short[s] && !flex.Satisfies(c.RequestCPU[s], math.Inf(1), c.UsedCPU[s]) || c.Paging[s] {
			missed++
		}
	}
	if m.Components > 0 {
		m.Mean, m.Square = m.Mean.Times(1/float64(m.Components)), m.Square.Times(1/float64(m.Components))
	}
	m.Quality = 1 - part(float64(missed), float64(tasks))
	if tasks == 0 {
		m.Quality = math.NaN()
	}
	t := PlacerTick{Time: c.Now, Quality: m.Quality, Penalty: 1, Waiting: c.Waiting(), Started: p.started}
	var capacity, squares flex.Vector
	for h, host := range c.Hosts {
		capacity = capacity.Plus(flex.Vector{host.CPU, host.Memory})
		t.Asked, t.Used = t.Asked.Plus(m.Asked[h]), t.Used.Plus(m.Used[h])
		if p.short[h] {
			t.CrowdedCPU++
		}
		if c.LoadMemory[h] >= host.Memory {
			crowdedMemory++
		}
	}
	t.CrowdedMemory = crowdedMemory
	for k := range capacity {
		mean := t.Used[k] / float64(len(c.Hosts))
		for h := range c.Hosts {
			squares[k] += (m.Used[h][k] - mean) * (m.Used[h][k] - mean)
		}
		t.Uneven[k] = part(math.Sqrt(squares[k]/float64(len(c.Hosts))), mean)
		t.Asked[k] /= capacity[k]
		t.Used[k] /= capacity[k]
	}
	if counting, ok := p.counting.(*byLoad); ok {
		t.Penalty = counting.penalty.Value()
	}
	p.record = append(p.record, t)
}
