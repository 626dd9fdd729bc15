package replay

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/forecast/periodic"
	"evenkeel/migration"
	"evenkeel/sim/workload"
)

// Morpheus reserves for periodic jobs what their past runs used (Jyothi et al. 2016). From the past of each job it learns a skyline of CPU and one of memory;
// where it cannot, the request counts. Its agenda has a slot and a host for each job of which it accepts the reservation. A run starts in its slot on that host, whatever waits. It gets what
// is reserved, and once a tick more, if it needs more and the agenda has room.
//
// All else, runs without a reservation among it, starts in order of arrival where its request fits beside all that is reserved on the host over the time
// that applications live on average, as seen so far; what does not fit waits aside. What outlives that has to share what reservations leave on its host, by its request.
//
// Allocations are weights, and memory above the allocation ends a component only where its host has none left. Elastic components are not started.
//
// Many fields: a third are settings, the rest its state.
type Morpheus struct {
	Label   string
	Miss    float64                    // chance that a run needs more than is reserved, of each resource
	Options reservation.Options        // of the agenda
	Extra   reservation.Reprovisioning // a step is a tick

	agenda  *reservation.Agenda
	steps   int                     // of the agenda, workload.PastStep seconds each
	slots   []*reservation.Accepted // by job; nil: it has none
	planned [][]reservation.Amount  // [host][step of the agenda]: of all slots
	ahead   [][]reservation.Amount  // the same, for the coming round of steps, without what ended runs leave
	now     int                     // step since the beginning that ahead begins with
	runs    []reservedRun
	on      []int32 // by application: 1 + index in runs; 0: it does not run in a slot
	others  []int32 // applications that run outside of the agenda
	lived   float64 // seconds, by others that ended
	left    int     // others that ended
	known   bool    // nothing more starts until freed, arrived or now change
	freed   int
	arrived int
	report  AgendaOutcome
}

// reservedRun is a run in its slot.
type reservedRun struct {
	app     int32
	slot    *reservation.Accepted
	start   int // step since the beginning
	host    int32
	extra   reservation.Amount
	recent  [2][]float64 // of cores and memory: what it had at the latest ticks
	expired bool         // it does not run any more
}

// AgendaOutcome is what an agenda came to.
type AgendaOutcome struct {
	Jobs     int     `json:"jobs"`       // periodic jobs
	Declared int     `json:"declared"`   // of them no model could be learned: their requests are reserved
	Refused  int     `json:"refused"`    // no slot was found
	Peak     float64 `json:"peak"`       // most that is reserved in a step, of the resource of which more is
	Cores    float64 `json:"coreHours"`  // reserved for all runs of a day
	Asked    float64 `json:"askedHours"` // core-hours that the same runs ask for
	Granted  int     `json:"granted"`    // ticks of runs that got more than was reserved
	Denied   int     `json:"denied"`     // or that needed more and did not get all of it
	Crowded  int     `json:"crowded"`    // host-ticks in which reservations left less than the others had asked for
}

// Name implements Policy.
func (p *Morpheus) Name() string { return p.Label }

// Agenda is what the latest run's came to.
func (p *Morpheus) Agenda() *AgendaOutcome { return &p.report }

// Begin implements Policy.
func (p *Morpheus) Begin(c *Cluster) Enforcement {
	*p = Morpheus{Label: p.Label, Miss: p.Miss, Options: p.Options, Extra: p.Extra, steps: 288,
		slots: make([]*reservation.Accepted, len(c.Workload.Periodic)), on: make([]int32, len(c.Workload.Apps))}
	if jobs := c.Workload.Periodic; len(jobs) > 0 {
		p.steps = int(math.Round(jobs[0].Period / workload.PastStep))
	}
	on := reservation.Cluster{Steps: p.steps}
	for h, host := range c.Hosts {
		on.Hosts = append(on.Hosts, migration.Host{Name: fmt.Sprint("h", h), CPU: host.CPU, Memory: host.Memory})
	}
	var err error
	if p.agenda, err = reservation.New(on, p.Options); err != nil {
		p.steps = 1 // a period that no agenda can have: nothing is reserved
	} else {
		p.reserve(c)
	}
	p.planned, p.ahead = make([][]reservation.Amount, len(c.Hosts)), make([][]reservation.Amount, len(c.Hosts))
	for h := range c.Hosts {
		p.planned[h], p.ahead[h] = make([]reservation.Amount, p.steps), make([]reservation.Amount, p.steps)
	}
	for _, a := range p.slots {
		if a != nil {
			first := a.Slot.Request.Phase + a.Slot.Start
			for at, need := range a.Slot.Amounts {
				add(&p.planned[a.Witness.Hosts[0]][(first+at)%p.steps], need, 1)
			}
		}
	}
	for h := range p.ahead {
		copy(p.ahead[h], p.planned[h])
	}
	return Enforcement{}
}

func add(to *reservation.Amount, need reservation.Amount, times float64) {
	for r := range need {
		to[r] += times * need[r]
	}
}

// reserve learns what jobs need, and asks the agenda for all of them, in the order of the workload.
func (p *Morpheus) reserve(c *Cluster) {
	asks := make([]*workload.Group, len(p.slots))
	for a := range c.Workload.Apps {
		if job := c.Workload.Apps[a].Job; job > 0 && asks[job-1] == nil && c.Workload.Apps[a].Groups == 1 {
			asks[job-1] = &c.Workload.Of(a)[0]
		}
	}
	type learned struct{ cpu, memory []float64 }
	models := map[int32]learned{}
	peers := peersOf(c.Workload.Periodic)
	for i := range c.Workload.Periodic {
		j := &c.Workload.Periodic[i]
		p.report.Jobs++
		m, ok := models[j.Of]
		if !ok {
			m.cpu, m.memory = p.learn(j.Past, peers(j.Of))
			models[j.Of] = m
		}
		g := asks[i]
		if g == nil || g.Count != 1 || len(j.Past) == 0 {
			p.report.Refused++
			continue
		}
		if m.cpu == nil { // what was declared, as long as the longest run took
			p.report.Declared++
			for _, r := range j.Past {
				m.cpu = slices.Repeat([]float64{1}, max(len(m.cpu), len(r.CPU)))
			}
			m.memory = m.cpu
		}
		r := reservation.Request{Name: fmt.Sprint("job", i), Period: int(math.Round(j.Period / workload.PastStep)),
			Phase: int(j.Begin/workload.PastStep) % p.steps, Due: int(j.Window / workload.PastStep)}
		for k := range m.cpu {
			r.Stages = append(r.Stages, reservation.Stage{VMs: 1, Cores: g.CPU * min(1, m.cpu[k]), Memory: g.Memory * min(1, m.memory[k])})
		}
		accepted, _, err := p.agenda.Accept(r)
		if err != nil || accepted == nil {
			p.report.Refused++
			continue
		}
		p.slots[i] = accepted
		for _, need := range accepted.Slot.Amounts {
			p.report.Cores += need[reservation.Cores] * workload.PastStep / 3600
			p.report.Asked += g.CPU * workload.PastStep / 3600
		}
	}
	p.report.Peak = p.agenda.Load().Peak()
}

// peersOf returns the other jobs by what a job repeats: all are of one owner.
func peersOf(jobs []workload.Periodic) func(of int32) []periodic.Peer {
	known := map[int32]periodic.Peer{}
	for i := range jobs {
		j := &jobs[i]
		if _, ok := known[j.Of]; ok {
			continue
		}
		var use [][]float64
		for _, r := range j.Past {
			use = append(use, r.CPU)
		}
		if l, ok := periodic.NewPeer(use); ok {
			known[j.Of] = l
		}
	}
	order := slices.Sorted(maps.Keys(known))
	return func(of int32) (out []periodic.Peer) {
		for _, k := range order {
			if k != of {
				out = append(out, known[k])
			}
		}
		return out
	}
}

// learn is what to reserve, as shares of the request; nil where no model can be learned.
func (p *Morpheus) learn(past []workload.PastRun, peers []periodic.Peer) (cpu, memory []float64) {
	var cpus, memories [][]float64
	for _, r := range past {
		cpus, memories = append(cpus, r.CPU), append(memories, r.Memory)
	}
	of, err := periodic.Learn(cpus, periodic.Options{Miss: p.Miss, Debts: true, Peers: peers})
	if err != nil {
		return nil, nil
	}
	room, err := periodic.Learn(memories, periodic.Options{Miss: p.Miss})
	if err != nil || len(room.Skyline) != len(of.Skyline) {
		return nil, nil
	}
	return of.Skyline, room.Skyline
}

// Rightsize implements Policy.
func (p *Morpheus) Rightsize(c *Cluster) {
	p.passTime(c)
	kept := p.others[:0]
	for _, app := range p.others {
		if c.running.has(c.rank[app]) {
			kept = append(kept, app)
		} else if c.end[app] >= 0 {
			p.lived += c.end[app] - c.start[app]
			p.left++
		}
	}
	p.others = kept
	for i := range p.runs {
		if r := &p.runs[i]; !r.expired && !c.running.has(c.rank[r.app]) {
			p.expire(r)
		}
	}
	for h := range c.Hosts {
		p.grant(c, int32(h))
		p.share(c, int32(h))
	}
}

// passTime begins the step of the agenda that is now.
func (p *Morpheus) passTime(c *Cluster) {
	now := int(c.Now/workload.PastStep + 1e-9)
	if now-p.now >= p.steps {
		p.now = now - p.steps
	}
	for ; p.now < now; p.now++ {
		for h := range p.ahead {
			p.ahead[h][p.now%p.steps] = p.planned[h][p.now%p.steps]
		}
		p.known = false
	}
}

// expire frees what a run that has ended leaves of its slot.
func (p *Morpheus) expire(r *reservedRun) {
	r.expired = true
	p.on[r.app] = 0
	for at := max(0, p.now-r.start); at < len(r.slot.Slot.Amounts); at++ {
		add(&p.ahead[r.host][(r.start+at)%p.steps], r.slot.Slot.Amounts[at], -1)
	}
	p.known = false
}

// reserved is what the slot has for a run now.
func (p *Morpheus) reserved(r *reservedRun) reservation.Amount {
	if at := p.now - r.start; at >= 0 && at < len(r.slot.Slot.Amounts) {
		return r.slot.Slot.Amounts[at]
	}
	return reservation.Amount{}
}

// run is the run in a slot that an application is; nil: it is none.
func (p *Morpheus) run(app int32) *reservedRun {
	if i := p.on[app]; i > 0 {
		return &p.runs[i-1]
	}
	return nil
}

// grant decides what runs on a host get beyond their slots until the next tick (sec. 7).
func (p *Morpheus) grant(c *Cluster, h int32) {
	granted := reservation.Amount{}
	capacity := reservation.Amount{reservation.Cores: c.Hosts[h].CPU, reservation.Memory: c.Hosts[h].Memory}
	for s := c.FirstOn(h); s >= 0; s = c.NextOn(s) {
		r := p.run(c.App[s])
		if r == nil {
			continue
		}
		has, demand := p.reserved(r), reservation.Amount{reservation.Cores: c.UsedCPU[s], reservation.Memory: c.UsedMemory[s]}
		if c.Short[s] { // what it would use is not measured
			demand[reservation.Cores] = c.RequestCPU[s]
		}
		more, all := false, true
		for k, resource := range []reservation.Resource{reservation.Cores, reservation.Memory} {
			r.recent[k] = append(r.recent[k], has[resource]+r.extra[resource])
			r.recent[k] = r.recent[k][max(0, len(r.recent[k])-p.Extra.Recent):]
			g := p.Extra.Decide(reservation.Instance{Demand: demand[resource], Reserved: has[resource], Recent: r.recent[k]},
				reservation.Room{Capacity: capacity[resource], Planned: max(0, p.ahead[h][p.now%p.steps][resource]), Granted: granted[resource]})
			r.extra[resource] = g.Extra
			granted[resource] += g.Extra
			more, all = more || g.Extra > 0, all && g.Bound == reservation.ByDemand
		}
		if more {
			p.report.Granted++
		}
		if !all {
			p.report.Denied++
		}
	}
}

// share allocates a host: to runs in slots what they have, to others their requests, or their parts of what is left.
func (p *Morpheus) share(c *Cluster, h int32) {
	left := Host{CPU: c.Hosts[h].CPU, Memory: c.Hosts[h].Memory}
	asked := Host{}
	for s := c.FirstOn(h); s >= 0; s = c.NextOn(s) {
		if r := p.run(c.App[s]); r != nil {
			has := p.reserved(r)
			cpu, memory := has[reservation.Cores]+r.extra[reservation.Cores], has[reservation.Memory]+r.extra[reservation.Memory]
			left.CPU, left.Memory = left.CPU-cpu, left.Memory-memory
			c.Allocate(s, cpu, memory)
		} else {
			asked.CPU, asked.Memory = asked.CPU+c.RequestCPU[s], asked.Memory+c.RequestMemory[s]
		}
	}
	part := func(left, asked float64) float64 {
		if asked <= left*tolerance {
			return 1
		}
		return max(0, left/asked)
	}
	cpu, memory := part(left.CPU, asked.CPU), part(left.Memory, asked.Memory)
	if cpu < 1 || memory < 1 {
		p.report.Crowded++
	}
	for s := c.FirstOn(h); s >= 0; s = c.NextOn(s) {
		if p.run(c.App[s]) == nil {
			c.Allocate(s, cpu*c.RequestCPU[s], memory*c.RequestMemory[s])
		}
	}
}

// Schedule implements Policy.
func (p *Morpheus) Schedule(c *Cluster) {
	p.passTime(c)
	if p.known && p.freed == c.Freed && p.arrived == c.arrived {
		return
	}
	free := p.free(c)
	for app := c.FirstWaiting(); app >= 0; {
		next := c.NextWaiting(app)
		if !p.startInSlot(c, app) && !p.waitsForSlot(c, app) {
			p.startBeside(c, app, free)
		}
		app = next
	}
	p.known, p.freed, p.arrived = true, c.Freed, c.arrived
}

// slotOf is the slot of an application that has one, and the step since the beginning at which it begins. A run that lost its work has none any more.
func (p *Morpheus) slotOf(c *Cluster, app int32) (*reservation.Accepted, int) {
	a := &c.Workload.Apps[app]
	if a.Job == 0 || p.slots[a.Job-1] == nil || c.Failures[app]+c.Preemptions[app] > 0 {
		return nil, 0
	}
	slot := p.slots[a.Job-1]
	return slot, int(math.Round(a.Arrival/workload.PastStep)) + slot.Slot.Start
}

func (p *Morpheus) waitsForSlot(c *Cluster, app int32) bool {
	slot, start := p.slotOf(c, app)
	return slot != nil && p.now < start
}

// startInSlot starts a run whose slot has begun.
func (p *Morpheus) startInSlot(c *Cluster, app int32) bool {
	slot, start := p.slotOf(c, app)
	if slot == nil || p.now < start || p.now >= start+len(slot.Slot.Amounts) {
		return false
	}
	h := int32(slot.Witness.Hosts[0])
	p.runs = append(p.runs, reservedRun{app: app, slot: slot, start: start, host: h})
	p.on[app] = int32(len(p.runs))
	c.Start(app, []int32{h})
	p.share(c, h)
	return true
}

// free is what hosts have for what starts outside of the agenda, over the time that it is expected to stay.
func (p *Morpheus) free(c *Cluster) []Host {
	lived := p.lived + 3600 // as if one had lived for an hour
	for _, app := range p.others {
		lived += c.Now - c.start[app]
	}
	stays := min(p.steps, int(math.Ceil(lived/float64(p.left+1)/workload.PastStep)))
	out := make([]Host, len(c.Hosts))
	for h := range c.Hosts {
		peak := Host{}
		for k := range stays {
			a := &p.ahead[h][(p.now+k)%p.steps]
			peak.CPU, peak.Memory = max(peak.CPU, a[reservation.Cores]), max(peak.Memory, a[reservation.Memory])
		}
		out[h] = Host{CPU: c.Hosts[h].CPU*tolerance - peak.CPU, Memory: c.Hosts[h].Memory*tolerance - peak.Memory}
		for s := c.FirstOn(int32(h)); s >= 0; s = c.NextOn(s) {
			if r := p.run(c.App[s]); r == nil {
				out[h].CPU, out[h].Memory = out[h].CPU-c.RequestCPU[s], out[h].Memory-c.RequestMemory[s]
			} else if p.now >= r.start+len(r.slot.Slot.Amounts) { // it runs on after its slot
				out[h].CPU, out[h].Memory = out[h].CPU-c.CPU[s], out[h].Memory-c.Memory[s]
			}
		}
	}
	return out
}

// startBeside starts an application beside the agenda, if it fits.
func (p *Morpheus) startBeside(c *Cluster, app int32, free []Host) {
	for h := range free {
		c.placing.cpu[h], c.placing.memory[h] = free[h].CPU, free[h].Memory
	}
	hosts := c.fitIn(app)
	if hosts == nil {
		return
	}
	c.Start(app, hosts)
	if !slices.Contains(p.others, app) { // it may have failed since the last tick
		p.others = append(p.others, app)
	}
	for s := c.FirstOf(app); s >= 0; s = c.NextOf(s) {
		h := c.On[s]
		free[h].CPU, free[h].Memory = free[h].CPU-c.RequestCPU[s], free[h].Memory-c.RequestMemory[s]
		p.share(c, h)
	}
}

// FreeMemory implements Policy.
func (*Morpheus) FreeMemory(*Cluster, int32) {}
