package replay

import "evenkeel/sim/workload"

// placing is scratch memory for finding hosts.
type placing struct {
	cpu, memory []float64 // free, by host, while an application is being placed
	hosts       []int32   // found
	open        []int32   // hosts that may take one more
	refused     []workload.Group
}

func newPlacing(hosts int) placing {
	return placing{cpu: make([]float64, hosts), memory: make([]float64, hosts)}
}

// Fit finds hosts on which all core components of an application fit beside what is allocated, one component on each host in turn, beginning
// at a host that differs by application. The slice is good until the next call; nil: they do not fit.
func (c *Cluster) Fit(app int32) []int32 {
	p := &c.placing
	for h := range c.Hosts {
		p.cpu[h] = c.Hosts[h].CPU*tolerance - c.AllocatedCPU[h]
		p.memory[h] = c.Hosts[h].Memory*tolerance - c.AllocatedMemory[h]
	}
	return c.fitIn(app)
}

// fitIn does so in what c.placing has as the free room of the hosts.
func (c *Cluster) fitIn(app int32) []int32 {
	p := &c.placing
	p.hosts = p.hosts[:0]
	for _, g := range c.Workload.Of(int(app)) {
		if !g.Elastic && p.fit(&g, int(g.Count), int(app)) > 0 {
			return nil
		}
	}
	return p.hosts
}

// fit places so many components of a group, and says how many have no host.
func (p *placing) fit(g *workload.Group, count, seed int) (left int) {
	room := 0
	p.open = p.open[:0]
	n := len(p.cpu)
	first := int(uint32(seed)*2654435761>>8) % n
	for i := range n {
		h := first + i
		if h >= n {
			h -= n
		}
		if p.cpu[h] < g.CPU || p.memory[h] < g.Memory {
			continue
		}
		p.open = append(p.open, int32(h))
		if room < count { // enough is known once there is room for all
			k := float64(count)
			if g.CPU > 0 {
				k = min(k, p.cpu[h]/g.CPU)
			}
			if g.Memory > 0 {
				k = min(k, p.memory[h]/g.Memory)
			}
			room += int(k)
		}
	}
	if room < count {
		return count - room
	}
	for count > 0 && len(p.open) > 0 {
		still := p.open[:0]
		for _, h := range p.open {
			if count == 0 {
				break
			}
			p.cpu[h] -= g.CPU
			p.memory[h] -= g.Memory
			p.hosts = append(p.hosts, h)
			count--
			if p.cpu[h] >= g.CPU && p.memory[h] >= g.Memory {
				still = append(still, h)
			}
		}
		p.open = still
	}
	return count
}

// neverFits is an application whose core components do not fit an empty cluster.
func (c *Cluster) neverFits() (int, workload.Group) {
	type ask struct {
		cpu, memory float64
		count       int32
	}
	known := map[ask]bool{}
	for a := range c.Workload.Apps {
		groups := c.Workload.Of(a)
		var core int
		var first workload.Group
		for _, g := range groups {
			if !g.Elastic {
				core++
				first = g
			}
		}
		key := ask{first.CPU, first.Memory, first.Count}
		if core == 1 && known[key] {
			continue
		}
		if c.Fit(int32(a)) == nil {
			return a, first
		}
		known[key] = core == 1
	}
	return -1, workload.Group{}
}

// FillElastic starts elastic components that are missing, application after application in order, wherever their requests fit beside what is
// allocated.
func (c *Cluster) FillElastic() {
	app := c.FirstWanting()
	if app < 0 {
		return
	}
	var top Host // free anywhere
	for h := range c.Hosts {
		top.CPU = max(top.CPU, c.Hosts[h].CPU*tolerance-c.AllocatedCPU[h])
		top.Memory = max(top.Memory, c.Hosts[h].Memory*tolerance-c.AllocatedMemory[h])
	}
	p := &c.placing
	p.refused = p.refused[:0]
	for ; app >= 0; app = c.NextWanting(app) {
		a := &c.Workload.Apps[app]
		for g := a.First; g < a.First+a.Groups; g++ {
			group := &c.Workload.Groups[g]
			if group.Elastic && group.CPU <= top.CPU && group.Memory <= top.Memory && c.Missing(g) > 0 {
				c.fill(app, g, group)
			}
		}
	}
}

// fill starts what fits of one elastic group.
func (c *Cluster) fill(app, g int32, group *workload.Group) {
	p := &c.placing
	for i := range p.refused {
		if group.CPU >= p.refused[i].CPU && group.Memory >= p.refused[i].Memory {
			return // less did not fit anywhere
		}
	}
	n := len(c.Hosts)
	first := int(uint32(app)*2654435761>>8) % n
	for placed := true; placed; {
		placed = false
		for i := 0; i < n && c.Missing(g) > 0; i++ {
			h := first + i
			if h >= n {
				h -= n
			}
			if c.Hosts[h].CPU*tolerance-c.AllocatedCPU[h] >= group.CPU && c.Hosts[h].Memory*tolerance-c.AllocatedMemory[h] >= group.Memory {
				c.Grow(app, g, int32(h))
				placed = true
			}
		}
		if c.Missing(g) == 0 {
			return
		}
	}
	p.refused = append(p.refused, workload.Group{CPU: group.CPU, Memory: group.Memory})
}

// firstCome starts applications in order: elastic components that are missing first, then those that wait, until one does not fit.
type firstCome struct {
	// passing: those that fit pass one that does not, as in the queue of production.
	passing bool

	freed   int   // Cluster.Freed when nothing more fitted
	stuck   int32 // the first application that did not
	waiting int   // that waited
	known   bool
}

func (f *firstCome) schedule(c *Cluster) {
	if f.known && f.freed == c.Freed && f.stuck == c.FirstWaiting() && (!f.passing || f.waiting == c.Waiting()) {
		return
	}
	c.FillElastic()
	for app, next := c.FirstWaiting(), int32(0); app >= 0; app = next {
		next = c.NextWaiting(app)
		if hosts := c.Fit(app); hosts != nil {
			c.Start(app, hosts)
			c.FillElastic()
		} else if !f.passing {
			break
		}
	}
	f.known, f.freed, f.stuck, f.waiting = true, c.Freed, c.FirstWaiting(), c.Waiting()
}
