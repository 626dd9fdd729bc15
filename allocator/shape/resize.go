package shape

import (
	"math"

	"evenkeel/allocator"
)

// room on a host while memory is given out.
type room struct {
	used  float64                    // memory
	keeps allocator.Reserve[float64] // beside that, if there is a reserve
	need  float64                    // CPU of all
	fixed float64                    // CPU of those whose least yield is above what others get
	rest  float64                    // CPU need of those others
	yield float64
}

// resize who stays: lines 39 to 41, in steps; first what shrinks, then what grows, while there is room.
func (s *Shaper) resize(p *Problem, o Options) {
	for j := range s.rooms {
		s.rooms[j] = room{}
	}
	for c := range p.Components {
		in, out, want := &p.Components[c], &s.r.Outcomes[c], &s.claim[c]
		held := in.Present.Memory
		if o.Late {
			held = max(held, in.Held)
		}
		x := &s.rooms[in.Host]
		if out.Fate == Preempt {
			if o.Late {
				x.used += held
				if o.Reserve {
					x.keeps.Add(in.Request.Memory - held)
				}
			}
			continue
		}
		out.Memory, out.Why = want.Memory, want.why
		if out.Memory < in.Present.Memory {
			if least := in.Present.Memory - o.Step*in.Request.Memory; o.Step > 0 && out.Memory < least {
				out.Memory, out.Why = least, Stepped
			}
			out.Fate = Shrink
			s.r.Shrunk++
		} else {
			out.Memory = in.Present.Memory // growth comes below
		}
		counts := out.Memory
		if o.Late {
			counts = max(counts, held)
		}
		x.used += counts
		if o.Reserve {
			x.keeps.Add(in.Request.Memory - counts)
		}
	}
	for _, wishes := range [...]bool{false, true} {
		for i := range p.Apps {
			a := &p.Apps[i]
			failed := false
			for c := a.First; c < a.First+a.Count; c++ {
				want := s.claim[c].must
				if wishes {
					want = s.claim[c].Memory
				}
				if out := &s.r.Outcomes[c]; (out.Fate == Keep || out.Fate == Grow) && want > out.Memory && (!wishes || want > s.claim[c].must) {
					s.grow(p, o, c, want, wishes)
					failed = failed || out.Fate == Fail && !p.Components[c].Elastic
				}
			}
			if failed {
				s.r.Gone = append(s.r.Gone, i)
			}
		}
	}
	for j := range s.r.Hosts {
		x := &s.rooms[j]
		s.r.Hosts[j] = Left{Amount: Amount{Memory: p.Hosts[j].Memory - x.used}, Reserve: x.keeps.Bytes(), Yield: 1}
	}
}

// grow a component to what it wants, as far as there is room; wish: it may fail in that.
func (s *Shaper) grow(p *Problem, o Options, c int, want float64, wish bool) {
	in, out := &p.Components[c], &s.r.Outcomes[c]
	x, h := &s.rooms[in.Host], &p.Hosts[in.Host]
	had := out.Memory
	held := had
	if o.Late {
		held = max(held, in.Held)
	}
	// What its host counts for it anyway it may have.
	most := held + x.keeps.Growth(in.Request.Memory-held, h.Memory-x.used)
	more := tooMuch * math.Abs(h.Memory)
	if o.Late {
		more = 0 // who enacts it counts whole bytes
	}
	if exact := o.Policy == Pessimistic && o.Step == 0 && !o.Late && !wish; exact || want <= most+more {
		out.Memory = want // all claims fit, as decide found
	} else {
		out.Memory, out.Why, out.Lack = min(most, want), NoRoom, want-most
		if o.Policy == Optimistic && !wish {
			out.Fate = Fail
			s.r.Failed++
		}
	}
	if has := max(out.Memory, held); has > held {
		x.used += has - held
		if o.Reserve {
			x.keeps.Change(in.Request.Memory-held, in.Request.Memory-has)
		}
	}
	if out.Memory > had && out.Fate == Keep {
		out.Fate = Grow
		s.r.Grown++
	}
}

// share the CPU of each host among those that stay: what they need, or where that is too much equal yields, but
// nobody less than the least yield of their application while that can be.
func (s *Shaper) share(p *Problem) {
	stays := func(c int) bool { return s.r.Outcomes[c].Fate != Preempt }
	for c := range p.Components {
		if stays(c) {
			s.rooms[p.Components[c].Host].need += s.claim[c].CPU
		}
	}
	for j := range s.rooms {
		s.rooms[j].yield = 1
		if x := &s.rooms[j]; x.need > p.Hosts[j].CPU {
			x.yield = max(0, p.Hosts[j].CPU) / x.need
		}
	}
	for range rounds {
		for j := range s.rooms {
			s.rooms[j].fixed, s.rooms[j].rest = 0, 0
		}
		for i := range p.Apps {
			a := &p.Apps[i]
			for c := a.First; c < a.First+a.Count; c++ {
				x := &s.rooms[p.Components[c].Host]
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
		for j := range s.rooms {
			x := &s.rooms[j]
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
			x, left := &s.rooms[at], &s.r.Hosts[at]
			y := x.yield
			if y < 1 && x.fixed+x.yield*x.rest <= p.Hosts[at].CPU*(1+tooMuch) {
				y = max(y, a.Yield)
			} else if y < 1 {
				y = max(0, p.Hosts[at].CPU) / x.need // least yields cannot all be had: nobody's is
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
