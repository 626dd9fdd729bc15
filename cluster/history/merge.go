package history

import (
	"slices"
	"time"
)

// Merge makes one history of what two hosts measured of one VM, at different times: it ran on only one of them at a time. Where
// both have a bucket of the same time, Merge takes the fuller one of Raw. It makes a wider bucket again from Raw where Raw
// still reaches back to its begin, and else takes the one with more samples. Merging again what was merged before changes
// nothing. Neither argument is changed, nor used by the result.
func Merge(a, b *History) *History {
	out := &History{}
	out.rings[Raw] = union(&a.rings[Raw], &b.rings[Raw], Raw, fuller)
	raw := &out.rings[Raw]
	for res := Minute; res < resolutions; res++ {
		out.rings[res] = union(&a.rings[res], &b.rings[res], res, func(x, y slot) slot {
			if x.key() == y.key() {
				return x
			}
			if made, ok := raw.remake(x.index, res); ok && made.nCPU >= max(x.nCPU, y.nCPU) && made.nMem >= max(x.nMem, y.nMem) {
				return made
			}
			return fuller(x, y)
		})
	}
	return out
}

// fuller is the slot with more samples; of two with as many it is the same one, whichever comes first.
func fuller(x, y slot) slot {
	nx, ny := int(x.nCPU)+int(x.nMem), int(y.nCPU)+int(y.nMem)
	kx, ky := x.key(), y.key()
	if ny > nx || ny == nx && slices.Compare(ky[:], kx[:]) > 0 {
		return y
	}
	return x
}

// key has all figures of a slot in a form in which equal ones compare equal: NaN does not.
func (s *slot) key() [10]uint32 {
	return [...]uint32{bits(s.cpu), bits(s.memory), bits(s.cpuMax), bits(s.memoryMax), bits(s.cap), bits(s.throttled), bits(s.balloon),
		uint32(s.nCPU), uint32(s.nMem), uint32(s.censored)}
}

// union returns the union of two rings, without what is too old then.
func union(a, b *ring, res Resolution, both func(x, y slot) slot) ring {
	var out ring
	i, j := a.from(res), b.from(res)
	for i < a.len() || j < b.len() {
		switch {
		case j == b.len() || i < a.len() && a.at(i).index < b.at(j).index:
			out.add(*a.at(i), tiers[res].n)
			i++
		case i == a.len() || b.at(j).index < a.at(i).index:
			out.add(*b.at(j), tiers[res].n)
			j++
		default:
			out.add(both(*a.at(i), *b.at(j)), tiers[res].n)
			i, j = i+1, j+1
		}
	}
	if n := out.from(res); n > 0 {
		trimmed := make([]slot, 0, out.len()-n)
		for i := n; i < out.len(); i++ {
			trimmed = append(trimmed, *out.at(i))
		}
		out = ring{slots: trimmed}
	}
	return out
}

// remake makes a wider slot again from those of Raw; false if Raw does not reach back to its begin.
func (r *ring) remake(index uint32, res Resolution) (slot, bool) {
	per := uint32(tiers[res].step / RawStep) //nolint:gosec // a small constant
	last := r.last()
	if last == nil || last.index-min(last.index, index*per) >= uint32(tiers[Raw].n) { //nolint:gosec // a small constant
		return slot{}, false
	}
	var out slot
	found := false
	for i := range r.len() {
		s := *r.at(i)
		if s.index/per != index {
			continue
		}
		s.index = index
		if !found {
			out, found = s, true
		} else {
			out.join(s, tiers[res].step)
		}
	}
	return out, found
}

// Tail returns what Raw has of the time after at, as a history that Extend takes: what must be written between two copies of
// the whole.
func (h *History) Tail(at time.Time) *History {
	out := &History{}
	r := &h.rings[Raw]
	for i := r.from(Raw); i < r.len(); i++ {
		if s := r.at(i); timeOf(s.index, Raw).After(at) {
			out.rings[Raw].add(*s, tiers[Raw].n)
		}
	}
	return out
}

// Extend adds what a tail has in Raw and is later than all that the history has, as if it had been measured again.
func (h *History) Extend(tail *History) {
	r := &tail.rings[Raw]
	for i := range r.len() {
		s := r.at(i)
		at := timeOf(s.index, Raw)
		if last, any := h.Last(); any && !at.After(last) {
			continue
		}
		b := s.bucket(at)
		h.Add(Sample{At: at, CPU: b.CPU, Cap: b.Cap, Throttled: b.Throttled, Censored: s.censored > 0, Memory: b.Memory, Balloon: b.Balloon})
	}
}
