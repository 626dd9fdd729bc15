package rightsizing

import (
	"math"

	"evenkeel/allocator"
)

// hostShare is the state of a host while memory and CPU are given out.
type hostShare struct {
	used    float64                    // memory
	reserve allocator.Reserve[float64] // beside that, if there is a reserve
	need    float64                    // CPU of all
	fixed   float64                    // CPU of those whose least yield is above what others get
	rest    float64                    // CPU need of those others
	yield   float64
}

// resize changes the memory of components that stay: lines 39 to 41, in steps. First some shrink, then others grow, while there is room.
func (s *Rightsizer) resize(p *Problem, o Options) {
	for j := range s.hosts {
		s.hosts[j] = hostShare{reserve: allocator.Reserve[float64]{LargestOnly: o.LargestOnly}}
	}
	for c := range p.Components {
		in, out, want := &p.Components[c], &s.r.Outcomes[c], &s.claim[c]
		charged := in.Present.Memory
		if o.Late {
			charged = max(charged, in.Charged)
		}
		x := &s.hosts[in.Host]
		if out.Action == Preempt {
			if o.Late {
				x.used += charged
				if o.Reserve {
					x.reserve.Add(in.Request.Memory - charged)
				}
			}
			continue
		}
		out.Memory, out.Why = want.Memory, want.why
		if out.Memory < in.Present.Memory {
			if lowest := in.Present.Memory - o.Step*in.Request.Memory; o.Step > 0 && out.Memory < lowest {
				out.Memory, out.Why = lowest, Stepped
			}
			out.Action = Shrink
			s.r.Shrunk++
		} else {
			out.Memory = in.Present.Memory // growth comes below
		}
		counts := out.Memory
		if o.Late {
			counts = max(counts, charged)
		}
		x.used += counts
		if o.Reserve {
			x.reserve.Add(in.Request.Memory - counts)
		}
	}
	for _, optional := range [...]bool{false, true} {
		for i := range p.Apps {
			a := &p.Apps[i]
			failed := false
			for c := a.First; c < a.First+a.Count; c++ {
				want := s.claim[c].required
				if optional {
					want = s.claim[c].Memory
				}
				if out := &s.r.Outcomes[c]; (out.Action == Keep || out.Action == Grow) && want > out.Memory && (!optional || want > s.claim[c].required) {
					s.grow(p, o, c, want, optional)
					failed = failed || out.Action == Fail && !p.Components[c].Elastic
				}
			}
			if failed {
				s.r.Evicted = append(s.r.Evicted, i)
			}
		}
	}
	for j := range s.r.Hosts {
		x := &s.hosts[j]
		s.r.Hosts[j] = Left{Amount: Amount{Memory: p.Hosts[j].Memory - x.used}, Reserve: x.reserve.Bytes(), Yield: 1}
	}
}

// grow gives a component the memory that it wants, as far as there is room; optional: it does not fail if there is none.
func (s *Rightsizer) grow(p *Problem, o Options, c int, want float64, optional bool) {
	in, out := &p.Components[c], &s.r.Outcomes[c]
	x, h := &s.hosts[in.Host], &p.Hosts[in.Host]
	had := out.Memory
	charged := had
	if o.Late {
		charged = max(charged, in.Charged)
	}
	// What its host counts for it anyway it may have.
	highest := charged + x.reserve.MaxGrant(in.Request.Memory-charged, h.Memory-x.used)
	more := tooMuch * math.Abs(h.Memory)
	if o.Late {
		more = 0 // the caller that enacts it counts whole bytes
	}
	if s.exact && !optional || want <= highest+more {
		out.Memory = want // where exact: all claims fit, as decide found
	} else {
		out.Memory, out.Why, out.Deficit = min(highest, want), NoRoom, want-highest
		if o.Policy == Optimistic && !optional {
			out.Action = Fail
			s.r.Failed++
		}
	}
	if has := max(out.Memory, charged); has > charged {
		x.used += has - charged
		if o.Reserve {
			x.reserve.Change(in.Request.Memory-charged, in.Request.Memory-has)
		}
	}
	if out.Memory > had && out.Action == Keep {
		out.Action = Grow
		s.r.Grown++
	}
}

// share divides the CPU of each host among the components that stay. They get what they need, or, where that is too much, equal
// yields; none gets less than the least yield of its application as long as the host has enough for that.
func (s *Rightsizer) share(p *Problem) {
	stays := func(c int) bool { return s.r.Outcomes[c].Action != Preempt }
	for c := range p.Components {
		if stays(c) {
			s.hosts[p.Components[c].Host].need += s.claim[c].CPU
		}
	}
	for j := range s.hosts {
		s.hosts[j].yield = 1
		if x := &s.hosts[j]; x.need > p.Hosts[j].CPU {
			x.yield = max(0, p.Hosts[j].CPU) / x.need
		}
	}
	for range rounds {
		for j := range s.hosts {
			s.hosts[j].fixed, s.hosts[j].rest = 0, 0
		}
		for i := range p.Apps {
			a := &p.Apps[i]
			for c := a.First; c < a.First+a.Count; c++ {
				x := &s.hosts[p.Components[c].Host]
				switch {
				case !stays(c) || x.yield >= 1:
				case a.Yield > x.yield:
					x.fixed += a.Yield * s.claim[c].CPU
				default:
					x.rest += s.claim[c].CPU
				}
			}
		}
		again := false
		for j := range s.hosts {
			x := &s.hosts[j]
			if x.yield >= 1 || x.fixed == 0 || x.rest == 0 {
				continue
			}
			if y := max(0, (p.Hosts[j].CPU-x.fixed)/x.rest); y < x.yield {
				x.yield, again = y, true
			}
		}
		if !again {
			break
		}
	}
	for i := range p.Apps {
		a := &p.Apps[i]
		for c := a.First; c < a.First+a.Count; c++ {
			if !stays(c) {
				continue
			}
			at := p.Components[c].Host
			x, left := &s.hosts[at], &s.r.Hosts[at]
			y := x.yield
			if y < 1 && x.fixed+x.yield*x.rest <= p.Hosts[at].CPU*(1+tooMuch) {
				y = max(y, a.Yield)
			} else if y < 1 {
				y = max(0, p.Hosts[at].CPU) / x.need // not all least yields fit: all get an equal yield
			}
			s.r.Outcomes[c].CPU = y * s.claim[c].CPU
			left.Yield = min(left.Yield, y)
			left.CPU += s.r.Outcomes[c].CPU
		}
	}
	for j := range s.r.Hosts {
		s.r.Hosts[j].CPU = p.Hosts[j].CPU - s.r.Hosts[j].CPU
	}
}

// rounds to find the yield of a host whose applications accept different least ones: each but the last
// takes at least one of these out.
const rounds = 16
