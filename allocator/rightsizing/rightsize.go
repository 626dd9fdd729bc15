package rightsizing

import (
	"cmp"
	"math"
	"slices"
)

// Rightsizer keeps the scratch between looks. The zero value is ready. It belongs to one goroutine at a time.
type Rightsizer struct {
	r     Result
	free  []Amount    // by host
	keep  []float64   // by host: the reserve so far, the largest deficit of one component, bytes
	order []int32     // elastic components of one application, oldest first
	claim []claim     // by component
	hosts []hostShare // by host
	exact bool        // decide subtracts exactly what is claimed, so that all claims fit
}

// claim of a component: what Algorithm 1 calls future + beta, and why.
type claim struct {
	Amount
	why      Why
	required float64 // bytes of Memory that are not optional
	inUse    float64 // bytes that others are evicted for
	free     Amount  // what its host had before it was served
	kept     float64 // the reserve of its host then
}

// tooMuch is what sums may be off by, relative to the host.
const tooMuch = 1e-9

// Rightsize decides for all components. Applications have all components in order, without gaps; all amounts are finite and not below 0.
func (s *Rightsizer) Rightsize(p *Problem, o Options) *Result {
	n, hosts := len(p.Components), len(p.Hosts)
	r := &s.r
	r.Outcomes, r.Hosts, r.Evicted = resize(r.Outcomes, n), resize(r.Hosts, hosts), r.Evicted[:0]
	r.Preempted, r.Failed, r.Shrunk, r.Grown = 0, 0, 0, 0
	s.claim, s.free, s.keep, s.hosts = resize(s.claim, n), resize(s.free, hosts), resize(s.keep, hosts), resize(s.hosts, hosts)
	for i := range r.Outcomes {
		r.Outcomes[i] = Outcome{Core: -1}
	}
	s.exact = o.Policy == Pessimistic && o.Step == 0 && !o.Late
	for i, a := range p.Apps {
		for c := a.First; c < a.First+a.Count; c++ {
			x := &s.claim[c]
			*x = claimOf(&p.Components[c], &p.Apps[i], o)
			x.inUse = x.required
			if in := p.Components[c].InUse; in > 0 {
				x.inUse, s.exact = min(in, p.Components[c].Request.Memory), false
			}
			s.exact = s.exact && !p.Components[c].Coming
		}
	}
	if o.Policy == Pessimistic {
		s.decide(p, o)
	}
	s.resize(p, o)
	s.share(p)
	return r
}

func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// claimOf a component.
func claimOf(c *Component, a *App, o Options) claim {
	out := claim{Amount: c.Need}
	if math.IsNaN(out.CPU) {
		out.CPU = c.Request.CPU
	}
	out.CPU = min(max(out.CPU, 0), c.Request.CPU)
	switch {
	case a.Fixed:
		out.Memory, out.why, out.required = max(c.Present.Memory, min(c.Need.Memory, c.Request.Memory)), IsFixed, c.Present.Memory
		if math.IsNaN(out.Memory) {
			out.Memory = c.Present.Memory
		}
		return out
	case o.MinAge > 0 && o.Now-c.Since < o.MinAge:
		out.Amount, out.why = c.Request, Young
	case math.IsNaN(out.Memory):
		out.Memory, out.why = c.Request.Memory, Unknown
	case out.Memory >= c.Request.Memory:
		out.Memory, out.why = c.Request.Memory, AtDeclared
	case out.Memory <= c.Floor:
		out.Memory, out.why = min(c.Floor, c.Request.Memory), AtFloor
	}
	if out.Memory < c.Present.Memory && o.Rest > 0 && c.Grew != 0 && o.Now-c.Grew < o.Rest {
		out.Memory, out.why = c.Present.Memory, Rested
	}
	out.required = out.Memory
	if c.Required > 0 {
		out.required = min(out.Memory, max(c.Required, c.Floor, c.Present.Memory))
	}
	return out
}

// decide chooses the components that are evicted: lines 1 to 38. Lines 8 and 9 copy what all hosts have free; here what was taken for
// an application that is evicted is given back instead.
func (s *Rightsizer) decide(p *Problem, o Options) {
	for j, h := range p.Hosts {
		s.free[j], s.keep[j] = Amount{h.CPU, h.Memory}, 0
	}
	for i := range p.Apps {
		if a := &p.Apps[i]; a.Fixed {
			for c := a.First; c < a.First+a.Count; c++ {
				s.take(p, o, c, a.Yield)
			}
		}
	}
	for i := range p.Apps {
		if p.Apps[i].Fixed {
			continue
		}
		if s.core(p, o, i) && !o.CoreFirst {
			s.elastic(p, o, i)
		}
	}
	if !o.CoreFirst {
		return
	}
	for i := range p.Apps {
		if _, evicted := slices.BinarySearch(s.r.Evicted, i); !evicted && !p.Apps[i].Fixed {
			s.elastic(p, o, i)
		}
	}
}

// elastic components of an application are served, oldest first, or evicted: lines 22 to 33.
func (s *Rightsizer) elastic(p *Problem, o Options, app int) {
	a := &p.Apps[app]
	s.order = s.order[:0]
	for c := a.First; c < a.First+a.Count; c++ {
		if p.Components[c].Elastic {
			s.order = append(s.order, int32(c))
		}
	}
	slices.SortFunc(s.order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(p.Components[x].Since, p.Components[y].Since), cmp.Compare(x, y))
	})
	for _, c := range s.order {
		s.take(p, o, int(c), a.Yield)
		// Line 29 lets one go also if it fits exactly; nothing is gained by that.
		if why, deficit := s.deficit(p, int(c)); deficit > 0 {
			s.undo(p, int(c))
			s.leaves(int(c), Outcome{Action: Preempt, Why: why, Deficit: deficit, Core: -1})
		}
	}
}

// core components of an application are served, or the application goes: lines 11 to 21, 34 to 36.
func (s *Rightsizer) core(p *Problem, o Options, app int) bool {
	a := &p.Apps[app]
	for c := a.First; c < a.First+a.Count; c++ {
		if p.Components[c].Elastic {
			continue
		}
		s.take(p, o, c, a.Yield)
		why, deficit := s.deficit(p, c)
		if deficit <= 0 {
			continue
		}
		for b := c; b >= a.First; b-- {
			if !p.Components[b].Elastic {
				s.undo(p, b)
			}
		}
		for b := a.First; b < a.First+a.Count; b++ {
			s.leaves(b, Outcome{Action: Preempt, Why: WithCore, Deficit: deficit, Core: int32(c)})
		}
		s.r.Outcomes[c] = Outcome{Action: Preempt, Why: why, Deficit: deficit, Core: -1}
		s.r.Evicted = append(s.r.Evicted, app)
		return false
	}
	return true
}

func (s *Rightsizer) leaves(c int, out Outcome) {
	s.r.Outcomes[c] = out
	s.r.Preempted++
}

// take subtracts what a component counts for from its host: its CPU times yield, and the memory for
// which others are evicted.
func (s *Rightsizer) take(p *Problem, o Options, c int, yield float64) {
	x, at := &s.claim[c], p.Components[c].Host
	x.free, x.kept = s.free[at], s.keep[at]
	if p.Components[c].Coming {
		return
	}
	s.free[at].CPU -= yield * x.CPU
	s.free[at].Memory -= x.inUse
	if o.Reserve {
		s.keep[at] = max(s.keep[at], p.Components[c].Request.Memory-x.inUse)
	}
}

// undo takes back the last take, to the last bit.
func (s *Rightsizer) undo(p *Problem, c int) {
	x, at := &s.claim[c], p.Components[c].Host
	s.free[at], s.keep[at] = x.free, x.kept
}

// deficit returns what a component's host lacks once the component is served, and why; 0: nothing. A missing reserve evicts only an
// elastic component, and only if the reserve was free before that component was served.
func (s *Rightsizer) deficit(p *Problem, c int) (why Why, deficit float64) {
	at := p.Components[c].Host
	h, free, x := &p.Hosts[at], s.free[at], &s.claim[c]
	if deficit := -free.Memory; deficit > tooMuch*math.Abs(h.Memory) {
		return NoMemory, deficit
	}
	if deficit := s.keep[at] - free.Memory; p.Components[c].Elastic && x.free.Memory >= x.kept && deficit > tooMuch*math.Abs(h.Memory) {
		return NoReserve, deficit
	}
	if deficit := -free.CPU; deficit > tooMuch*math.Abs(h.CPU) {
		return NoCPU, deficit
	}
	return Needed, 0
}
