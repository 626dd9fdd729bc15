package replay

import (
	"evenkeel/allocator/shape"
	"evenkeel/forecast"
)

// Shaping gives components what they are expected to use and a buffer, by the production resource shaper, and admits others into what that frees.
// Applications start as under Reservation: with their requests, first come, first served.
type Shaping struct {
	Label string // its name

	// Foresight is what will be used; Buffer what is added to it.
	Foresight Foresight
	Buffer    forecast.Buffer

	// Options of the shaper: Pace's Algorithm 1 by default. Now is set here.
	Options shape.Options

	// Yield is the share of its CPU that an application must have not to be preempted: 1 as in the paper, less where CPU is compressible.
	Yield float64

	How Enforcement

	// Trust is how often an application may fail before it is given its request for good, so that it ends at some time; 0: no matter how often.
	Trust int32

	// Relief: a host whose memory runs out has the components taken off it that the shaper would let go for what is used now.
	Relief bool

	// Wish: where no memory is forecast for a component it wishes for its request, and nobody has to go for that; otherwise it needs it.
	Wish bool

	// Floors is the memory that components never have less of, bytes, by group (of Workload.Groups); nil: 0.
	Floors []float64

	first   firstCome
	shaper  shape.Shaper
	claims  claims
	problem shape.Problem
	slots   []int32  // [component]
	born    []uint32 // [component]
	grew    []int64  // [slot]: when its memory last grew
	grewOf  []uint32 // [slot]: of which component
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
func (p *Shaping) Name() string { return p.Label }

// Begin implements Policy.
func (p *Shaping) Begin(c *Cluster) Enforcement {
	p.first = firstCome{}
	p.Foresight.Begin(c)
	p.problem = shape.Problem{Hosts: make([]shape.Host, len(c.Hosts))}
	for h, host := range c.Hosts {
		p.problem.Hosts[h] = shape.Host{CPU: host.CPU, Memory: host.Memory}
	}
	p.grew, p.grewOf = nil, nil
	p.claims = newClaims(c)
	return p.How
}

// Schedule implements Policy.
func (p *Shaping) Schedule(c *Cluster) { p.first.schedule(c) }

// Shape implements Policy.
func (p *Shaping) Shape(c *Cluster) {
	p.Foresight.Watch(c)
	o := p.Options
	o.Now = int64(c.Now)
	p.claim(c, o)
	p.state(c)
	r := p.shaper.Shape(&p.problem, o)
	for _, app := range r.Gone {
		if a := p.problem.Apps[app]; o.Policy == shape.Pessimistic {
			c.Requeue(c.App[p.slots[a.First]])
		}
	}
	for k := range r.Outcomes {
		out, s := &r.Outcomes[k], p.slots[k]
		if c.App[s] < 0 || c.Born[s] != p.born[k] {
			continue // went with its application
		}
		switch out.Fate {
		case shape.Preempt:
			c.Preempt(s)
			continue
		case shape.Grow:
			p.remember(c, s)
		}
		c.Allocate(s, out.CPU, out.Memory)
	}
	p.grant(c)
}

// state writes down for the shaper what of the cluster it has to decide on: the components on hosts on which not all claims fit.
func (p *Shaping) state(c *Cluster) {
	q, x := &p.problem, &p.claims
	q.Apps, q.Components, p.slots, p.born = q.Apps[:0], q.Components[:0], p.slots[:0], p.born[:0]
	for r := x.apps.from(0); r >= 0; r = x.apps.from(r + 1) {
		x.apps.remove(r)
		app := c.byRank[r]
		a := shape.App{First: len(q.Components), Yield: p.Yield}
		for s := c.FirstOf(app); s >= 0; s = c.NextOf(s) {
			if !x.tight[c.On[s]] {
				continue
			}
			k := shape.Component{Host: int(c.On[s]), Elastic: !c.Core[s], Since: int64(c.Since[s]),
				Request: shape.Amount{CPU: c.RequestCPU[s], Memory: c.RequestMemory[s]},
				Present: shape.Amount{CPU: c.CPU[s], Memory: c.Memory[s]}}
			k.Grew = p.grewAt(c, s)
			k.Need = shape.Amount{CPU: x.cpu[s], Memory: x.memory[s]}
			k.Floor = p.floor(c, s)
			if p.Wish && x.unknown[s] {
				k.Must = k.Present.Memory
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
func (p *Shaping) floor(c *Cluster, s int32) float64 {
	if p.Floors == nil {
		return 0
	}
	return min(p.Floors[c.Group[s]], c.RequestMemory[s])
}

// Need is what the latest Shape found a component to need, cores and bytes.
func (p *Shaping) Need(slot int32) (cpu, memory float64) {
	if int(slot) >= len(p.claims.cpu) {
		return 0, 0
	}
	return p.claims.cpu[slot], p.claims.memory[slot]
}

// grewAt is when the memory of a component last grew; 0: never.
func (p *Shaping) grewAt(c *Cluster, s int32) int64 {
	if int(s) < len(p.grew) && p.grewOf[s] == c.Born[s] {
		return p.grew[s]
	}
	return 0
}

func (p *Shaping) remember(c *Cluster, s int32) {
	for int(s) >= len(p.grew) {
		p.grew, p.grewOf = append(p.grew, 0), append(p.grewOf, 0)
	}
	p.grew[s], p.grewOf[s] = max(1, int64(c.Now)), c.Born[s]
}

// Relieve implements Policy.
func (p *Shaping) Relieve(c *Cluster, host int32) {
	if p.Relief {
		relieve(c, host)
	}
}
