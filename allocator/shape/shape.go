package shape

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Shaper keeps the scratch between looks. The zero value is ready. It belongs to one goroutine at a time.
type Shaper struct {
	r     Result
	free  []Amount  // by host
	keep  []float64 // by host: the reserve so far, for the one that lacks most
	order []int32   // elastic components of one application, oldest first
	claim []claim   // by component
	rooms []room    // by host
}

// claim of a component: what Algorithm 1 calls future + beta, and why.
type claim struct {
	Amount
	why  Why
	must float64 // of that memory: what others go for
	free Amount  // what its host had before it was served
	kept float64 // and its reserve
}

// tooMuch is what sums may be off by, relative to the host.
const tooMuch = 1e-9

// Check says what is wrong with a problem, nil if Shape can work with it.
func (p *Problem) Check() error {
	next := 0
	for i, a := range p.Apps {
		if a.First != next || a.Count < 0 || a.Count > len(p.Components)-next {
			return fmt.Errorf("application %d: components %d and %d on: they are to follow each other without gaps, and there are %d", i, a.First, a.Count, len(p.Components))
		}
		if !(a.Yield >= 0 && a.Yield <= 1) {
			return fmt.Errorf("application %d: least yield %v, not from 0 to 1", i, a.Yield)
		}
		next += a.Count
	}
	if next != len(p.Components) {
		return fmt.Errorf("%d components, of which applications have %d", len(p.Components), next)
	}
	for i, h := range p.Hosts {
		if !finite(h.CPU) || !finite(h.Memory) {
			return fmt.Errorf("host %d (%s): %v cores, %v bytes", i, h.Name, h.CPU, h.Memory)
		}
	}
	for i, c := range p.Components {
		if c.Host < 0 || c.Host >= len(p.Hosts) {
			return fmt.Errorf("component %d: host %d of %d", i, c.Host, len(p.Hosts))
		}
		for _, x := range [...]float64{c.Request.CPU, c.Request.Memory, c.Present.CPU, c.Present.Memory, c.Floor, c.Held, c.Must} {
			if !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("component %d: request %v, present %v, floor %v, held %v: they are to be finite and not below 0", i, c.Request, c.Present, c.Floor, c.Held)
			}
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Shape decides for everybody. The problem must be one that Check accepts.
func (s *Shaper) Shape(p *Problem, o Options) *Result {
	n, hosts := len(p.Components), len(p.Hosts)
	r := &s.r
	r.Outcomes, r.Hosts, r.Gone = resize(r.Outcomes, n), resize(r.Hosts, hosts), r.Gone[:0]
	r.Preempted, r.Failed, r.Shrunk, r.Grown = 0, 0, 0, 0
	s.claim, s.free, s.keep, s.rooms = resize(s.claim, n), resize(s.free, hosts), resize(s.keep, hosts), resize(s.rooms, hosts)
	for i := range r.Outcomes {
		r.Outcomes[i] = Outcome{Core: -1}
	}
	for i, a := range p.Apps {
		for c := a.First; c < a.First+a.Count; c++ {
			s.claim[c] = claimOf(&p.Components[c], &p.Apps[i], o)
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
		out.Memory, out.why, out.must = max(c.Present.Memory, min(c.Need.Memory, c.Request.Memory)), IsFixed, c.Present.Memory
		if math.IsNaN(out.Memory) {
			out.Memory = c.Present.Memory
		}
		return out
	case o.Grace > 0 && o.Now-c.Since < o.Grace:
		out.Amount, out.why = c.Request, Young
	case math.IsNaN(out.Memory):
		out.Memory, out.why = c.Request.Memory, Unknown
	case out.Memory >= c.Request.Memory:
		out.Memory, out.why = c.Request.Memory, AtMost
	case out.Memory <= c.Floor:
		out.Memory, out.why = min(c.Floor, c.Request.Memory), AtFloor
	}
	if out.Memory < c.Present.Memory && o.Rest > 0 && c.Grew != 0 && o.Now-c.Grew < o.Rest {
		out.Memory, out.why = c.Present.Memory, Rested
	}
	out.must = out.Memory
	if c.Must > 0 {
		out.must = min(out.Memory, max(c.Must, c.Floor, c.Present.Memory))
	}
	return out
}

// decide who goes: lines 1 to 38. Lines 8 and 9 copy what all hosts have free; here what was taken for an
// application that goes is given back.
func (s *Shaper) decide(p *Problem, o Options) {
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
		a := &p.Apps[i]
		if a.Fixed {
			continue
		}
		if !s.core(p, o, i) {
			continue
		}
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
			if why, lack := s.short(p, int(c)); lack > 0 {
				s.undo(p, int(c))
				s.leaves(int(c), Outcome{Fate: Preempt, Why: why, Lack: lack, Core: -1})
			}
		}
	}
}

// core components of an application are served, or the application goes: lines 11 to 21, 34 to 36.
func (s *Shaper) core(p *Problem, o Options, app int) bool {
	a := &p.Apps[app]
	for c := a.First; c < a.First+a.Count; c++ {
		if p.Components[c].Elastic {
			continue
		}
		s.take(p, o, c, a.Yield)
		why, lack := s.short(p, c)
		if lack <= 0 {
			continue
		}
		for b := c; b >= a.First; b-- {
			if !p.Components[b].Elastic {
				s.undo(p, b)
			}
		}
		for b := a.First; b < a.First+a.Count; b++ {
			s.leaves(b, Outcome{Fate: Preempt, Why: WithCore, Lack: lack, Core: int32(c)})
		}
		s.r.Outcomes[c] = Outcome{Fate: Preempt, Why: why, Lack: lack, Core: -1}
		s.r.Gone = append(s.r.Gone, app)
		return false
	}
	return true
}

func (s *Shaper) leaves(c int, out Outcome) {
	s.r.Outcomes[c] = out
	s.r.Preempted++
}

// take what a component claims off its host.
func (s *Shaper) take(p *Problem, o Options, c int, yield float64) {
	x, at := &s.claim[c], p.Components[c].Host
	x.free, x.kept = s.free[at], s.keep[at]
	s.free[at].CPU -= yield * x.CPU
	s.free[at].Memory -= x.must
	if o.Reserve {
		s.keep[at] = max(s.keep[at], p.Components[c].Request.Memory-x.must)
	}
}

// undo the last take, to the last bit.
func (s *Shaper) undo(p *Problem, c int) {
	x, at := &s.claim[c], p.Components[c].Host
	s.free[at], s.keep[at] = x.free, x.kept
}

// short is what a component's host lacks now that it was served; lack 0: nothing. Nobody goes for a reserve but an elastic component
// without which it would be whole.
func (s *Shaper) short(p *Problem, c int) (why Why, lack float64) {
	at := p.Components[c].Host
	h, free, x := &p.Hosts[at], s.free[at], &s.claim[c]
	if lack := -free.Memory; lack > tooMuch*math.Abs(h.Memory) {
		return NoMemory, lack
	}
	if lack := s.keep[at] - free.Memory; p.Components[c].Elastic && x.free.Memory >= x.kept && lack > tooMuch*math.Abs(h.Memory) {
		return NoReserve, lack
	}
	if lack := -free.CPU; lack > tooMuch*math.Abs(h.CPU) {
		return NoCPU, lack
	}
	return Needed, 0
}
