package replay

import (
	"cmp"
	"math"
	"slices"
)

// WholeHosts is batch scheduling: an application gets hosts of its own, all that its components need at their requests, from its start to its end.
// First come, first served by priority; with Backfill a later one may start if that does not put off the first that waits, whose start is
// reserved (EASY). Like the batch schedulers of the literature it knows how long applications run.
//
// Elastic components start with their application, where an empty cluster has room for all of them, and otherwise not at all.
type WholeHosts struct {
	Backfill bool

	free      []bool // by host
	backfill  []bool // by host: free, and not wanted by the first that waits
	all       []bool // by application: with its elastic components
	left      []Host // of the host that is being filled
	hosts     []int32
	candidate []int32 // hosts, in the order in which they are tried
	freed     int     // Cluster.Freed when nothing more fitted
	stuck     int32
	arrived   int
	known     bool
}

// Name implements Policy.
func (p *WholeHosts) Name() string {
	if p.Backfill {
		return "easy"
	}
	return "fcfs"
}

// Begin implements Policy.
func (p *WholeHosts) Begin(c *Cluster) Enforcement {
	*p = WholeHosts{Backfill: p.Backfill, free: make([]bool, len(c.Hosts)), backfill: make([]bool, len(c.Hosts)), all: make([]bool, len(c.Workload.Apps))}
	p.candidate = p.candidate[:0]
	for h := range c.Hosts {
		p.candidate = append(p.candidate, int32(h))
	}
	for a := range p.all {
		p.all[a] = true
		p.all[a] = p.find(c, int32(a))
	}
	return Enforcement{}
}

// Rightsize implements Policy.
func (*WholeHosts) Rightsize(*Cluster) {}

// FreeMemory implements Policy.
func (*WholeHosts) FreeMemory(*Cluster, int32) {}

// find puts the components of an application on the candidates, each host its own; what it finds is p.hosts, a host per component, group by group, those
// of core groups before those of elastic ones.
func (p *WholeHosts) find(c *Cluster, app int32) bool {
	p.hosts, p.left = p.hosts[:0], p.left[:0]
	next := 0 // candidates before it are filled
	for _, elastic := range []bool{false, true} {
		if elastic && !p.all[app] {
			break
		}
		for _, g := range c.Workload.Of(int(app)) {
			if g.Elastic != elastic {
				continue
			}
			at := 0 // in candidates: a new group begins with what others left
			for range g.Count {
				for ; at < next && !fitsIn(p.left[at], g.CPU, g.Memory); at++ {
				}
				if at == next {
					for ; next < len(p.candidate) && !fitsIn(c.Hosts[p.candidate[next]], g.CPU, g.Memory); next++ {
						p.left = append(p.left, Host{}) // no later component takes it either: hosts are seldom so unequal
					}
					if next == len(p.candidate) {
						return false
					}
					p.left = append(p.left, c.Hosts[p.candidate[next]])
					at = next
					next++
				}
				p.left[at].CPU -= g.CPU
				p.left[at].Memory -= g.Memory
				p.hosts = append(p.hosts, p.candidate[at])
			}
		}
	}
	return true
}

// fitsIn allows for sums of parts that differ from a whole by rounding.
func fitsIn(h Host, cpu, memory float64) bool {
	return cpu <= h.CPU+1e-9*max(1, cpu) && memory <= h.Memory*tolerance+1e-6
}

// Schedule implements Policy.
func (p *WholeHosts) Schedule(c *Cluster) {
	if p.known && p.freed == c.Freed && p.arrived == c.arrived && p.stuck == c.FirstWaiting() {
		return
	}
	count := 0
	for h := range p.free {
		if p.free[h] = c.FirstOn(int32(h)) < 0; p.free[h] {
			count++
		}
	}
	head := c.FirstWaiting()
	for ; head >= 0; head = c.FirstWaiting() {
		p.candidates(func(h int) bool { return p.free[h] }, nil)
		if !p.find(c, head) {
			break
		}
		p.start(c, head)
	}
	p.known, p.freed, p.arrived, p.stuck = true, c.Freed, c.arrived, head
	if head < 0 || !p.Backfill {
		return
	}
	shadow := p.reserve(c, head)
	for app := c.NextWaiting(head); app >= 0; {
		next := c.NextWaiting(app)
		if !slices.Contains(p.free, true) {
			return
		}
		if c.Now+c.Workload.Apps[app].Work <= shadow+1e-6 {
			p.candidates(func(h int) bool { return p.free[h] && !p.backfill[h] }, func(h int) bool { return p.free[h] && p.backfill[h] })
		} else {
			p.candidates(func(h int) bool { return p.free[h] && p.backfill[h] }, nil)
		}
		if p.find(c, app) {
			p.start(c, app)
		}
		app = next
	}
	p.freed = c.Freed
}

// candidates are the hosts that first takes, then those that second takes.
func (p *WholeHosts) candidates(first, second func(h int) bool) {
	p.candidate = p.candidate[:0]
	for _, take := range []func(int) bool{first, second} {
		if take == nil {
			continue
		}
		for h := range p.free {
			if take(h) {
				p.candidate = append(p.candidate, int32(h))
			}
		}
	}
}

// start begins an application on p.hosts.
func (p *WholeHosts) start(c *Cluster, app int32) {
	a := &c.Workload.Apps[app]
	core := 0
	for _, g := range c.Workload.Of(int(app)) {
		if !g.Elastic {
			core += int(g.Count)
		}
	}
	for _, h := range p.hosts {
		p.free[h], p.backfill[h] = false, false
	}
	c.Start(app, p.hosts[:core])
	rest := p.hosts[core:]
	for g := a.First; g < a.First+a.Groups; g++ {
		if group := &c.Workload.Groups[g]; group.Elastic && p.all[app] {
			for _, h := range rest[:group.Count] {
				c.Grow(app, g, h)
			}
			rest = rest[group.Count:]
		}
	}
}

// reserve is when the first that waits can start, and marks the hosts that are free now and that it leaves then.
func (p *WholeHosts) reserve(c *Cluster, head int32) (shadow float64) {
	type ending struct {
		at  float64
		app int32
	}
	var ends []ending
	for app := c.FirstRunning(); app >= 0; app = c.NextRunning(app) {
		left, at := c.Workload.Apps[app].Work-c.done[app]-(c.Now-c.at[app])*c.rate[app], math.Inf(1)
		if c.rate[app] > 0 {
			at = c.Now + max(0, left)/c.rate[app]
		} else if c.at[app] == c.Now { // it has begun now, and will run at full speed
			at = c.Now + left
		}
		ends = append(ends, ending{at, app})
	}
	slices.SortStableFunc(ends, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	then := make([]bool, len(p.free)) // free at that time, and not now
	shadow = math.Inf(1)
	for i, e := range ends {
		for s := c.FirstOf(e.app); s >= 0; s = c.NextOf(s) {
			then[c.On[s]] = true
		}
		if i+1 < len(ends) && ends[i+1].at <= e.at+1e-9 {
			continue // all that end at that instant leave
		}
		p.candidates(func(h int) bool { return then[h] }, func(h int) bool { return p.free[h] })
		if p.find(c, head) {
			shadow = e.at
			break
		}
	}
	copy(p.backfill, p.free)
	if !math.IsInf(shadow, 1) {
		for _, h := range p.hosts {
			p.backfill[h] = false
		}
	}
	return shadow
}
