package replay

import (
	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
)

// Rightsizing gives components what they are expected to use and a buffer, by the production resource rightsizer, and admits others into what that frees.
// Applications start as under Reservation: with their requests.
//
// Many fields: each is a rule of its own that is on or off.
type Rightsizing struct {
	Label string // its name

	// Foresight is what will be used; Buffer what is added to it; CPUBuffer, if any, what is added instead for CPU.
	Foresight Foresight
	Buffer    forecast.Buffer
	CPUBuffer *forecast.Buffer

	// Options of the rightsizer: Pace's Algorithm 1 by default. Now is set here.
	Options rightsizing.Options

	// Yield is the share of its CPU that an application must have not to be preempted: 1 as in the paper, less where CPU is compressible.
	Yield float64

	How Enforcement

	// Trust is how often an application may fail before it is given its request for good, so that it ends at some time; 0: no matter how often.
	Trust int32

	// EmergencyEviction: from a host whose memory runs out, the components are evicted that the rightsizer would evict if the use of now were the need.
	EmergencyEviction bool

	// OnUse: no component is evicted because needs, forecasts with their buffers, do not fit. They may then not grow, and only use that does
	// not fit evicts: see EmergencyEviction.
	OnUse bool

	// Together, if any, keeps room for what components used at the same time, and knows what they use where Foresight says nothing.
	Together *Together

	// Once: with Together, deviations of memory and what a host keeps are kept once: rightsizing.Once.
	Once bool

	// Passing: applications that fit pass one that does not, as in the queue of production. Otherwise first come, first served.
	Passing bool

	// Floors is the memory that components never have less of, bytes, by group (of Workload.Groups); nil: 0.
	Floors []float64

	first      firstCome
	rightsizer rightsizing.Rightsizer
	claims     claims
	problem    rightsizing.Problem
	slots      []int32  // [component]
	born       []uint32 // [component]
	grew       []growth // [slot]
}

// growth is when the memory of a component last grew.
type growth struct {
	at int64
	of uint32 // the component
}

// Foresight says what components will use until the next tick.
type Foresight interface {
	Name() string

	// Begin forgets all.
	Begin(c *Cluster)

	// Watch takes the latest measurements of all components.
	Watch(c *Cluster)

	// Ahead are predictions of the CPU and memory that a component will use, cores and bytes; nil: unknown. They are good until the next call.
	Ahead(c *Cluster, slot int32) (cpu, memory []forecast.Prediction)
}

// Name implements Policy.
func (p *Rightsizing) Name() string { return p.Label }

// Begin implements Policy.
func (p *Rightsizing) Begin(c *Cluster) Enforcement {
	p.first = firstCome{passing: p.Passing}
	p.Foresight.Begin(c)
	p.problem = rightsizing.Problem{Hosts: make([]rightsizing.Host, len(c.Hosts))}
	for h, host := range c.Hosts {
		p.problem.Hosts[h] = rightsizing.Host{CPU: host.CPU, Memory: host.Memory}
	}
	p.grew = nil
	p.claims = newClaims(c)
	if p.Together != nil {
		p.Together.begin(c)
	}
	return p.How
}

// Schedule implements Policy.
func (p *Rightsizing) Schedule(c *Cluster) { p.first.schedule(c) }

// Rightsize implements Policy.
func (p *Rightsizing) Rightsize(c *Cluster) {
	if p.Together != nil {
		p.Together.watch(c)
	}
	p.Foresight.Watch(c)
	o := p.Options
	o.Now = int64(c.Now)
	p.claim(c, o)
	p.state(c)
	r := p.rightsizer.Rightsize(&p.problem, o)
	for _, app := range r.Evicted {
		if a := p.problem.Apps[app]; o.Policy == rightsizing.Pessimistic {
			c.Requeue(c.App[p.slots[a.First]])
		}
	}
	for k := range r.Outcomes {
		out, s := &r.Outcomes[k], p.slots[k]
		if c.App[s] < 0 || c.Born[s] != p.born[k] {
			continue // went with its application
		}
		switch out.Action {
		case rightsizing.Preempt:
			c.Preempt(s)
			continue
		case rightsizing.Grow:
			p.remember(c, s)
		}
		c.Allocate(s, out.CPU, out.Memory)
	}
	p.grant(c)
}

// state writes down for the rightsizer what of the cluster it has to decide on: the components on hosts on which not all claims fit.
func (p *Rightsizing) state(c *Cluster) {
	q, x := &p.problem, &p.claims
	q.Apps, q.Components, p.slots, p.born = q.Apps[:0], q.Components[:0], p.slots[:0], p.born[:0]
	for r := x.apps.from(0); r >= 0; r = x.apps.from(r + 1) {
		x.apps.remove(r)
		app := c.byRank[r]
		a := rightsizing.App{First: len(q.Components), Yield: p.Yield}
		for s := c.FirstOf(app); s >= 0; s = c.NextOf(s) {
			if !x.tight[c.On[s]] {
				continue
			}
			k := rightsizing.Component{Host: int(c.On[s]), Elastic: !c.Core[s], Since: int64(c.Since[s]),
				Request: rightsizing.Amount{CPU: c.RequestCPU[s], Memory: c.RequestMemory[s]},
				Present: rightsizing.Amount{CPU: c.CPU[s], Memory: c.Memory[s]}}
			k.Grew = p.grewAt(c, s)
			k.Need = rightsizing.Amount{CPU: x.cpu[s], Memory: x.memory[s]}
			k.Floor = p.floor(c, s)
			if p.OnUse {
				k.Required = k.Present.Memory
			}
			q.Components = append(q.Components, k)
			p.slots = append(p.slots, s)
			p.born = append(p.born, c.Born[s])
		}
		a.Count = len(q.Components) - a.First
		q.Apps = append(q.Apps, a)
	}
}

// floor is the memory that a component never has less of.
func (p *Rightsizing) floor(c *Cluster, s int32) float64 {
	if p.Floors == nil {
		return 0
	}
	return min(p.Floors[c.Group[s]], c.RequestMemory[s])
}

// Need is what the latest Rightsize found a component to need, cores and bytes.
func (p *Rightsizing) Need(slot int32) (cpu, memory float64) {
	if int(slot) >= len(p.claims.cpu) {
		return 0, 0
	}
	return p.claims.cpu[slot], p.claims.memory[slot]
}

// grewAt is when the memory of a component last grew; 0: never.
func (p *Rightsizing) grewAt(c *Cluster, s int32) int64 {
	if int(s) < len(p.grew) && p.grew[s].of == c.Born[s] {
		return p.grew[s].at
	}
	return 0
}

func (p *Rightsizing) remember(c *Cluster, s int32) {
	for int(s) >= len(p.grew) {
		p.grew = append(p.grew, growth{})
	}
	p.grew[s] = growth{max(1, int64(c.Now)), c.Born[s]}
}

// FreeMemory implements Policy.
func (p *Rightsizing) FreeMemory(c *Cluster, host int32) {
	if p.EmergencyEviction {
		evictForMemory(c, host)
	}
}
