package replay

import (
	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
)

// claims are what components are to have if there is room. Where all claims on a host fit it, its components get them, whatever happens elsewhere: the
// rightsizer's decisions on one host depend on other hosts only by applications that are evicted, which takes nothing from the components that stay. So the
// rightsizer is asked only about hosts whose claims do not fit, which are few.
type claims struct {
	cpu, memory     []float64 // [slot]
	deviation       []float64 // [slot]: memory that is kept once with the reserve, beyond memory
	cpuOn, memoryOn []float64 // [host]: sums
	tight           []bool    // [host]: the rightsizer has to decide
	apps            ranks     // with components on such hosts; empty between two calls
	everybody       bool      // for tests: the rightsizer is asked about all hosts
}

func newClaims(c *Cluster) claims {
	n := len(c.Hosts)
	return claims{cpuOn: make([]float64, n), memoryOn: make([]float64, n), tight: make([]bool, n), apps: newRanks(len(c.Workload.Apps))}
}

// claim finds what all components are to have, and the hosts where that is too much.
func (p *Rightsizing) claim(c *Cluster, o rightsizing.Options) {
	x := &p.claims
	for len(x.cpu) < len(c.App) {
		x.cpu, x.memory, x.deviation = append(x.cpu, 0), append(x.memory, 0), append(x.deviation, 0)
	}
	clear(x.cpuOn)
	clear(x.memoryOn)
	apart := !x.everybody && !o.Reserve && !o.Late && o.Step == 0 // otherwise not even a host that has room gives all that is claimed
	for s := range c.each {
		cpu, memory := c.RequestCPU[s], c.RequestMemory[s]
		x.deviation[s] = 0
		young := o.MinAge > 0 && o.Now-int64(c.Since[s]) < o.MinAge
		if !young && !(p.Trust > 0 && c.Failures[c.App[s]] >= p.Trust) {
			cpu, memory, x.deviation[s] = p.need(c, s)
		}
		if p.Together == nil && o.Rest > 0 && memory < c.Memory[s] {
			if at := p.grewAt(c, s); at != 0 && o.Now-at < o.Rest {
				memory = c.Memory[s]
			}
		}
		x.cpu[s], x.memory[s] = cpu, max(memory, p.floor(c, s))
	}
	for h := range c.Hosts {
		if p.Together != nil {
			p.once(c, int32(h), float64(o.Rest))
			p.Together.keep(c, int32(h), x.memory)
		}
		for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
			x.cpuOn[h] += x.cpu[s]
			x.memoryOn[h] += x.memory[s]
		}
	}
	const fits = 1 - 1e-9 // whatever the order of the sum
	for h := range c.Hosts {
		x.tight[h] = !apart || x.cpuOn[h] > c.Hosts[h].CPU*fits || x.memoryOn[h] > c.Hosts[h].Memory*fits
		if x.tight[h] {
			for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
				x.apps.add(c.rank[c.App[s]])
			}
		}
	}
}

// once gives the components of a host as much of their deviations as the reserve leaves of them: rightsizing.Once.
func (p *Rightsizing) once(c *Cluster, host int32, rest float64) {
	x := &p.claims
	var kept rightsizing.Once
	for s := c.FirstOn(host); s >= 0; s = c.NextOn(s) {
		rested := p.Together.rested(c, s, x.memory[s], rest)
		x.deviation[s] = max(0, x.memory[s]+x.deviation[s]-rested)
		x.memory[s] = rested
		kept.Add(c.RequestMemory[s]-rested, x.deviation[s])
	}
	share := kept.Share()
	for s := c.FirstOn(host); s >= 0; s = c.NextOn(s) {
		x.memory[s] += share * x.deviation[s]
	}
}

// need is what a component is expected to need by its forecasts, cores and bytes, and how much more it is with what is kept once.
func (p *Rightsizing) need(c *Cluster, s int32) (cpu, memory, deviation float64) {
	aheadCPU, aheadMemory := p.Foresight.Ahead(c, s)
	cpu, memory = c.RequestCPU[s], c.RequestMemory[s]
	forCPU := &p.Buffer
	if p.CPUBuffer != nil {
		forCPU = p.CPUBuffer
	}
	cpu, memory = min(forCPU.Need(cpu, aheadCPU), cpu), min(p.Buffer.Need(memory, aheadMemory), memory)
	if p.Together == nil {
		return cpu, memory, 0
	}
	used, usedMemory, known := p.Together.use(c, s)
	if known && aheadCPU == nil {
		cpu = min(cpu, forCPU.Need(cpu, []forecast.Prediction{{Mean: used}}))
	}
	if known && aheadMemory == nil {
		memory = min(memory, p.Buffer.Need(memory, []forecast.Prediction{{Mean: usedMemory}}))
	}
	lowest := min(c.RequestMemory[s], max((1+slackOfUse)*usedMemory, p.floor(c, s)))
	if p.Once && aheadMemory != nil {
		mean := p.Buffer
		mean.K2 = 0
		without := max(lowest, min(mean.Need(c.RequestMemory[s], aheadMemory), c.RequestMemory[s]))
		return cpu, without, max(0, memory-without)
	}
	return cpu, max(memory, lowest), 0
}

// grant what is claimed where all of it fits.
func (p *Rightsizing) grant(c *Cluster) {
	x := &p.claims
	for s := range c.each {
		if x.tight[c.On[s]] {
			continue
		}
		if p.Options.Rest > 0 && x.memory[s] > c.Memory[s] {
			p.remember(c, s)
		}
		c.Allocate(s, x.cpu[s], x.memory[s])
	}
}
