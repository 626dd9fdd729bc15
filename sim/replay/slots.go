package replay

// Start begins an application that waits: one host for each of its core components, group by group. Each is allocated its request.
func (c *Cluster) Start(app int32, hosts []int32) {
	a := &c.Workload.Apps[app]
	c.waiting.remove(c.rank[app])
	c.running.add(c.rank[app])
	if c.start[app] < 0 {
		c.start[app] = c.Now
	}
	c.at[app], c.rate[app], c.done[app] = c.Now, 0, 0
	c.deficit[app] = 0
	k := 0
	for g := a.First; g < a.First+a.Groups; g++ {
		group := &c.Workload.Groups[g]
		c.groupNext[g] = 0
		if group.Elastic {
			c.deficit[app] += group.Count
			continue
		}
		for range group.Count {
			c.begin(app, g, hosts[k])
			k++
		}
	}
	if c.deficit[app] > 0 {
		c.wanting.add(c.rank[app])
	}
	c.touch(app)
}

// Grow begins one more elastic component of an application that runs.
func (c *Cluster) Grow(app, group, host int32) {
	if c.Missing(group) < 1 {
		return
	}
	c.begin(app, group, host)
	if c.deficit[app]--; c.deficit[app] == 0 {
		c.wanting.remove(c.rank[app])
	}
	c.touch(app)
}

// Allocate gives a component so many cores and bytes from now on.
func (c *Cluster) Allocate(slot int32, cpu, memory float64) {
	if cpu == c.CPU[slot] && memory == c.Memory[slot] {
		return
	}
	c.accrue(slot)
	h := c.On[slot]
	if cpu < c.CPU[slot] || memory < c.Memory[slot] {
		c.Freed++
	}
	c.AllocatedCPU[h] += cpu - c.CPU[slot]
	c.AllocatedMemory[h] += memory - c.Memory[slot]
	c.CPU[slot], c.Memory[slot] = cpu, memory
}

// Preempt ends an elastic component; what it contributed is lost, but for Options.Kept of it. A core component takes its application
// along: see Requeue.
func (c *Cluster) Preempt(slot int32) {
	app := c.App[slot]
	if c.Core[slot] {
		c.Requeue(app)
		return
	}
	c.tally.preempted++
	c.drop(slot)
}

// Requeue ends all components of an application, whose work is lost, and which waits again in its old place.
func (c *Cluster) Requeue(app int32) {
	c.Preemptions[app]++
	c.tally.preempted += int64(c.Components[app])
	c.tally.requeued++
	c.restart(app)
}

// Move takes a component to another host while it runs; what it uses of memory is sent.
func (c *Cluster) Move(slot, host int32) {
	from := c.On[slot]
	if from == host {
		return
	}
	c.tally.moves++
	c.tally.bytes += c.gets[slot]
	c.accrue(slot)
	c.leaveHost(slot)
	c.dirty = append(c.dirty, from, host)
	c.AllocatedCPU[from] -= c.CPU[slot]
	c.AllocatedMemory[from] -= c.Memory[slot]
	c.joinHost(slot, host)
	c.Freed++
}

// drop ends an elastic component and what it contributed.
func (c *Cluster) drop(slot int32) {
	app := c.App[slot]
	c.advance(app)
	c.accrue(slot)
	lost := min(c.earned[slot]*(1-c.o.Kept), c.done[app])
	c.done[app] -= lost
	c.tally.lost += lost * float64(c.size[app])
	c.remove(slot)
	if c.deficit[app]++; c.deficit[app] == 1 {
		c.wanting.add(c.rank[app])
	}
	c.touch(app)
}

// restart ends an application, which loses its work and waits again.
func (c *Cluster) restart(app int32) {
	c.advance(app)
	c.tally.lost += c.done[app] * float64(c.size[app])
	c.done[app], c.rate[app] = 0, 0
	c.version[app]++
	for c.head[app] >= 0 {
		c.remove(c.head[app])
	}
	c.running.remove(c.rank[app])
	c.wanting.remove(c.rank[app])
	c.waiting.add(c.rank[app])
}

// touch notes that the rate of an application is to be found again.
func (c *Cluster) touch(app int32) { c.affected = append(c.affected, app) }

// begin puts a component into a slot.
func (c *Cluster) begin(app, group, host int32) {
	g := &c.Workload.Groups[group]
	i := int(c.groupNext[group])
	if c.groupNext[group]++; c.groupNext[group] >= g.Count {
		c.groupNext[group] = 0
	}
	c.groupRuns[group]++
	s := c.slot()
	c.App[s], c.Group[s], c.Core[s] = app, group, !g.Elastic
	c.Since[s], c.accrued[s] = c.Now, c.Now
	c.Born[s]++
	c.RequestCPU[s], c.RequestMemory[s] = g.CPU, g.Memory
	c.CPU[s], c.Memory[s] = g.CPU, g.Memory
	c.Measured[s], c.UsedCPU[s], c.UsedMemory[s], c.Short[s] = 0, 0, 0, false
	c.Paging[s], c.pages[s] = false, false
	c.beginCPU[s], c.beginMem[s] = g.CPUUse.Begin(i), g.MemoryUse.Begin(i)
	c.given[s], c.yield[s], c.earned[s] = 0, 1, 0
	c.prev[s], c.next[s] = -1, c.head[app]
	if c.head[app] >= 0 {
		c.prev[c.head[app]] = s
	}
	c.head[app] = s
	c.Components[app]++
	c.lookAt(s)
	c.joinHost(s, host)
	c.fresh = append(c.fresh, s)
}

func (c *Cluster) joinHost(s, host int32) {
	c.On[s] = host
	c.prevOn[s], c.nextOn[s] = -1, c.headOn[host]
	if c.headOn[host] >= 0 {
		c.prevOn[c.headOn[host]] = s
	}
	c.headOn[host] = s
	c.AllocatedCPU[host] += c.CPU[s]
	c.AllocatedMemory[host] += c.Memory[s]
}

func (c *Cluster) leaveHost(s int32) {
	if p := c.prevOn[s]; p >= 0 {
		c.nextOn[p] = c.nextOn[s]
	} else {
		c.headOn[c.On[s]] = c.nextOn[s]
	}
	if n := c.nextOn[s]; n >= 0 {
		c.prevOn[n] = c.prevOn[s]
	}
}

// remove frees a slot.
func (c *Cluster) remove(s int32) {
	c.accrue(s)
	app, host := c.App[s], c.On[s]
	if p := c.prev[s]; p >= 0 {
		c.next[p] = c.next[s]
	} else {
		c.head[app] = c.next[s]
	}
	if n := c.next[s]; n >= 0 {
		c.prev[n] = c.prev[s]
	}
	c.leaveHost(s)
	c.AllocatedCPU[host] -= c.CPU[s]
	c.AllocatedMemory[host] -= c.Memory[s]
	c.givenOn[host] -= c.given[s]
	c.usedOn[host] -= c.gets[s]
	if c.crowded[host] {
		c.dirty = append(c.dirty, host)
	}
	if c.headOn[host] < 0 {
		c.AllocatedCPU[host], c.AllocatedMemory[host] = 0, 0 // no dust of sums stays on an empty host
	}
	c.Freed++
	c.Components[app]--
	c.groupRuns[c.Group[s]]--
	c.App[s] = -1
	c.used[s>>6] &^= 1 << (s & 63)
	c.free = append(c.free, s)
}

// slot is a free one, with room for it in every array.
func (c *Cluster) slot() int32 {
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		c.used[s>>6] |= 1 << (s & 63)
		return s
	}
	s := int32(len(c.App))
	if s&63 == 0 {
		c.used = append(c.used, 0)
	}
	c.used[s>>6] |= 1 << (s & 63)
	c.App, c.Group, c.On = append(c.App, -1), append(c.Group, 0), append(c.On, 0)
	c.Core, c.Since, c.Born = append(c.Core, false), append(c.Since, 0), append(c.Born, 0)
	c.RequestCPU, c.RequestMemory = append(c.RequestCPU, 0), append(c.RequestMemory, 0)
	c.CPU, c.Memory = append(c.CPU, 0), append(c.Memory, 0)
	c.Measured, c.Short = append(c.Measured, 0), append(c.Short, false)
	c.UsedCPU, c.UsedMemory = append(c.UsedCPU, 0), append(c.UsedMemory, 0)
	c.Paging, c.pages = append(c.Paging, false), append(c.pages, false)
	c.next, c.prev, c.nextOn, c.prevOn = append(c.next, -1), append(c.prev, -1), append(c.nextOn, -1), append(c.prevOn, -1)
	c.wants, c.gets = append(c.wants, 0), append(c.gets, 0)
	c.beginCPU, c.beginMem = append(c.beginCPU, 0), append(c.beginMem, 0)
	c.given, c.yield = append(c.given, 0), append(c.yield, 0)
	c.earned, c.accrued = append(c.earned, 0), append(c.accrued, 0)
	return s
}
