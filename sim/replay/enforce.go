package replay

import (
	"math"

	"evenkeel/sim/flex"
)

// tolerance is how far above what there is a sum may be by rounding.
const tolerance = 1 + 1e-9

// measure states what was used in the tick that ended, and finds what every component would use in the coming one.
func (c *Cluster) measure() {
	for r := c.running.from(0); r >= 0; r = c.running.from(r + 1) {
		c.advance(c.byRank[r])
	}
	clear(c.LoadCPU)
	clear(c.LoadMemory)
	clear(c.AllocatedCPU)
	clear(c.AllocatedMemory)
	whole := c.Now - c.Tick*(1-1e-9)
	for s := range c.each {
		h := c.On[s]
		c.accrue(s)
		given, gets := c.given[s], c.gets[s]
		c.UsedCPU[s], c.UsedMemory[s], c.Short[s] = given, gets, given*tolerance < c.wants[s]
		c.Paging[s] = c.pages[s]
		if c.Since[s] <= whole {
			c.Measured[s]++
		}
		c.LoadCPU[h] += given
		c.LoadMemory[h] += gets
		c.AllocatedCPU[h] += c.CPU[s] // again: sums and differences drift
		c.AllocatedMemory[h] += c.Memory[s]
		c.lookAt(s)
	}
	if c.how.Paged {
		for h := range c.Hosts { // the rest is elsewhere
			c.LoadMemory[h] = min(c.LoadMemory[h], c.Hosts[h].Memory)
		}
	}
}

// lookAt finds what a component would use in the coming tick.
func (c *Cluster) lookAt(s int32) {
	g := &c.Workload.Groups[c.Group[s]]
	done := c.done[c.App[s]]
	if c.Workload.ByClock {
		done = c.Now
	}
	c.wants[s] = g.CPU * c.Workload.Patterns[g.CPUUse.Pattern].At(c.beginCPU[s]+done/float64(g.CPUUse.Step))
	c.gets[s] = g.Memory * c.Workload.Patterns[g.MemoryUse.Pattern].At(c.beginMem[s]+done/float64(g.MemoryUse.Step))
}

// enforce ends components whose memory is short.
func (c *Cluster) enforce() {
	clear(c.usedOn)
	clear(c.pages)
	if c.how.Hard {
		for s := range c.each {
			if c.gets[s] > c.Memory[s]*tolerance {
				c.doomed = append(c.doomed, s)
			}
		}
	}
	for _, s := range c.doomed {
		// Its application may have gone meanwhile, for another of its components.
		if c.App[s] >= 0 && c.gets[s] > c.Memory[s]*tolerance {
			c.kill(s)
		}
	}
	c.doomed = c.doomed[:0]
	on, gets, usedOn := c.On, c.gets, c.usedOn
	for s := range c.each {
		usedOn[on[s]] += gets[s]
	}
	for h := range c.Hosts {
		if c.usedOn[h] > c.Hosts[h].Memory*tolerance {
			c.exhausted(int32(h))
		}
	}
}

// exhausted ends components of a host until the others fit its memory.
func (c *Cluster) exhausted(h int32) {
	c.tally.memoryExceeded++
	c.policy.FreeMemory(c, h)
	if c.how.Paged {
		c.page(h)
		return
	}
	for c.sumUsed(h) > c.Hosts[h].Memory*tolerance {
		victim, farthest, largest := int32(-1), 0.0, 0.0
		for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
			above := max(0, c.gets[s]-c.Memory[s]*tolerance)
			if victim < 0 || above > farthest || above == farthest && c.gets[s] > largest {
				victim, farthest, largest = s, above, c.gets[s]
			}
		}
		if victim < 0 {
			break
		}
		c.kill(victim)
	}
	c.usedOn[h] = c.sumUsed(h)
}

// page finds the components on a host that have less memory than they are owed.
func (c *Cluster) page(h int32) {
	var slots []int32
	var request, demand []float64
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		slots, request, demand = append(slots, s), append(request, c.Memory[s]), append(demand, c.gets[s])
	}
	given := flex.Share(c.Hosts[h].Memory, request, demand, make([]float64, len(slots)))
	for i, s := range slots {
		c.pages[s] = !flex.Satisfies(request[i], demand[i], given[i])
	}
}

func (c *Cluster) sumUsed(h int32) float64 {
	sum := 0.0
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		sum += c.gets[s]
	}
	return sum
}

// kill ends a component for want of memory.
func (c *Cluster) kill(s int32) {
	c.tally.kills++
	c.sums[c.App[s]].kills++
	c.tally.missed++
	c.tally.tasks++
	if !c.Core[s] {
		c.drop(s)
		return
	}
	c.Failures[c.App[s]]++
	c.restart(c.App[s])
}

// share divides the CPU of every host, and says how fast every application works.
func (c *Cluster) share() {
	c.affected, c.fresh = c.affected[:0], c.fresh[:0]
	clear(c.givenOn)
	on, given, wants, givenOn := c.On, c.given, c.wants, c.givenOn
	for s := range c.each {
		x := c.claim(s)
		given[s] = x
		givenOn[on[s]] += x
	}
	for h := range c.Hosts {
		c.crowded[h] = c.givenOn[h] > c.Hosts[h].CPU*tolerance
		if c.crowded[h] {
			c.divide(int32(h))
		}
	}
	for r := c.running.from(0); r >= 0; r = c.running.from(r + 1) {
		app := c.byRank[r]
		c.minCoreYield[app], c.lowest[app], c.elastic[app] = 1, 1, 0
	}
	for s := range c.each {
		app, y := c.App[s], 1.0
		if given[s] < wants[s] {
			y = given[s] / wants[s]
			c.lowest[app] = min(c.lowest[app], y)
			if c.Core[s] {
				c.minCoreYield[app] = min(c.minCoreYield[app], y)
			}
		}
		c.yield[s] = y
		if !c.Core[s] {
			c.elastic[app] += y
		}
		c.tally.tasks++
		if y < 1 && given[s] < min(wants[s], c.RequestCPU[s])/tolerance || c.pages[s] {
			c.tally.missed++
		}
	}
	for r := c.running.from(0); r >= 0; r = c.running.from(r + 1) {
		c.setRate(c.byRank[r])
	}
}

// claim is what a component takes of a host that is not overloaded.
func (c *Cluster) claim(s int32) float64 {
	if c.how.Capped {
		return min(c.wants[s], c.CPU[s])
	}
	return c.wants[s]
}

func yieldOf(given, wants float64) float64 {
	if wants <= given {
		return 1
	}
	return given / wants
}

// divide shares an overloaded host's CPU by allocation. No component gets more than it claims; what one leaves goes to the others.
func (c *Cluster) divide(h int32) {
	const lowest = 1e-6 // of a core: the weight of one that is allocated nothing
	left, weights := c.Hosts[h].CPU, 0.0
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		c.given[s] = -1
		weights += max(lowest, c.CPU[s])
	}
	for again := true; again; {
		again = false
		level := left / weights
		for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
			if w := max(lowest, c.CPU[s]); c.given[s] < 0 && c.claim(s) <= level*w {
				c.given[s] = c.claim(s)
				left -= c.given[s]
				weights -= w
				again = weights > 0
			}
		}
	}
	level := max(0, left) / math.Max(weights, lowest)
	sum := 0.0
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		if c.given[s] < 0 {
			c.given[s] = min(level*max(lowest, c.CPU[s]), c.claim(s))
		}
		sum += c.given[s]
	}
	if over := sum / c.Hosts[h].CPU; over > 1 { // rounding
		for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
			c.given[s] /= over
		}
		sum = c.Hosts[h].CPU
	}
	c.givenOn[h] = sum
}

// reconcile finds what changes on hosts where something began or ended between two ticks.
func (c *Cluster) reconcile() {
	for _, s := range c.fresh {
		if c.App[s] < 0 {
			continue
		}
		h := c.On[s]
		c.given[s] = c.claim(s)
		c.givenOn[h] += c.given[s]
		c.usedOn[h] += c.gets[s]
	}
	for _, s := range c.fresh {
		if c.App[s] < 0 {
			continue
		}
		h := c.On[s]
		if c.usedOn[h] > c.Hosts[h].Memory*tolerance {
			if c.usedOn[h] = c.sumUsed(h); c.usedOn[h] > c.Hosts[h].Memory*tolerance {
				c.exhausted(h)
			}
		}
		if c.givenOn[h] > c.Hosts[h].CPU*tolerance {
			c.dirty = append(c.dirty, h)
		}
	}
	c.fresh = c.fresh[:0]
	for _, h := range c.dirty {
		c.refill(h)
	}
	c.dirty = c.dirty[:0]
	for _, app := range c.affected {
		if c.running.has(c.rank[app]) {
			c.weigh(app)
		}
	}
	c.affected = c.affected[:0]
}

// refill divides a host's CPU again.
func (c *Cluster) refill(h int32) {
	sum := 0.0
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		c.accrue(s)
		c.given[s] = c.claim(s)
		sum += c.given[s]
	}
	c.givenOn[h] = sum
	if c.crowded[h] = sum > c.Hosts[h].CPU*tolerance; c.crowded[h] {
		c.divide(h)
	}
	for s := c.headOn[h]; s >= 0; s = c.nextOn[s] {
		if y := yieldOf(c.given[s], c.wants[s]); y != c.yield[s] {
			c.yield[s] = y
			c.touch(c.App[s])
		}
	}
}

// weigh finds the rate of one application again.
func (c *Cluster) weigh(app int32) {
	for s := c.head[app]; s >= 0; s = c.next[s] {
		c.accrue(s)
	}
	c.minCoreYield[app], c.elastic[app], c.lowest[app] = 1, 0, 1
	for s := c.head[app]; s >= 0; s = c.next[s] {
		y := yieldOf(c.given[s], c.wants[s])
		c.yield[s] = y
		c.lowest[app] = min(c.lowest[app], y)
		if c.Core[s] {
			c.minCoreYield[app] = min(c.minCoreYield[app], y)
		} else {
			c.elastic[app] += y
		}
	}
	c.setRate(app)
}

// accrue accounts for what a component had since this was last asked.
func (c *Cluster) accrue(s int32) {
	dt := c.Now - c.accrued[s]
	if dt <= 0 {
		return
	}
	c.accrued[s] = c.Now
	app := c.App[s]
	a := &c.sums[app]
	a.askedCPU += dt * c.RequestCPU[s]
	a.askedMemory += dt * c.RequestMemory[s]
	a.allocatedCPU += dt * c.CPU[s]
	a.allocatedMemory += dt * c.Memory[s]
	a.usedCPU += dt * c.given[s]
	a.usedMemory += dt * c.gets[s]
	a.idleCPU += dt * max(0, c.CPU[s]-c.given[s])
	a.idleMemory += dt * max(0, c.Memory[s]-c.gets[s])
	c.earned[s] += dt * c.minCoreYield[app] * c.yield[s] / float64(c.size[app])
}
