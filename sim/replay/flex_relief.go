package replay

import (
	"fmt"
	"math"

	"evenkeel/forecast"
	"evenkeel/sim/flex"
)

// OffloadSettings says when running components leave a host that is about to be short. The zero value: never.
type OffloadSettings struct {
	Above        float64 // components leave a host of whose CPU or memory more than this share is used
	Below        float64 // such moves fill no host beyond this share
	MinResidency int     // ticks that a component stays where it was moved to
	MaxPerTick   int     // components that leave a host in one tick
}

// check says what is wrong with it.
func (r OffloadSettings) check() error {
	if r.Above != 0 && !(r.Below > 0 && r.Below <= r.Above && r.Above <= 1 && r.MinResidency >= 0 && r.MaxPerTick >= 1) {
		return fmt.Errorf("relief %+v makes no sense", r)
	}
	return nil
}

// offloadHosts moves components away from hosts that are about to be short, each to the host that is then the emptiest by what is used: the one that
// sends the fewest bytes of those that bring the host below the mark alone; if there is none, the one that brings it nearest per byte.
func (p *Placer) offloadHosts(c *Cluster) {
	mover, ok := p.counting.(*byLoad)
	if !ok {
		return
	}
	for h := range c.Hosts {
		for range p.offload.MaxPerTick {
			over, k := p.over(mover, h)
			if over <= 0 || !p.move(c, mover, int32(h), k, over) {
				break
			}
		}
	}
}

// over is by how much a host is above the mark, in the unit of the resource k of which it is farthest above.
func (p *Placer) over(b *byLoad, h int) (over float64, k int) {
	share := 0.0
	for i, used := range b.load[h] {
		capacity := p.fleet.Capacity(h)[i]
		if s := used / capacity; s > p.offload.Above && s > share {
			share, over, k = s, used-p.offload.Above*capacity, i
		}
	}
	return over, k
}

func (p *Placer) move(c *Cluster, b *byLoad, h int32, k int, over float64) bool {
	best, score := int32(-1), math.Inf(-1)
	for s := c.FirstOn(h); s >= 0; s = c.NextOn(s) {
		known := &p.known[s]
		if c.Measured[s] == 0 || known.moved > 0 && p.ticks-known.moved < p.offload.MinResidency {
			continue
		}
		used, bytes := flex.Vector{c.UsedCPU[s], c.UsedMemory[s]}, max(1, c.UsedMemory[s])
		by := min(used[k], over) / bytes
		if used[k] >= over {
			by += 1 // any of these before those that are not enough; 1 is more than any share of cores or bytes per byte
		}
		if by > score && used[k] > 0 {
			best, score = s, by
		}
	}
	if best < 0 {
		return false
	}
	used := flex.Vector{c.UsedCPU[best], c.UsedMemory[best]}
	known := &p.known[best]
	source := p.sources[known.source]
	to, ok := p.fleet.Pick(used, p.charge, source)
	if !ok || to == int(h) {
		return false
	}
	for i, u := range b.load[to].Plus(used) {
		if u > p.offload.Below*p.fleet.Capacity(to)[i] {
			return false
		}
	}
	c.Move(best, int32(to))
	if source != nil {
		source.Remove(int(h))
		source.Add(to)
	}
	known.host, known.moved = int32(to), p.ticks
	b.load[h], b.load[to] = b.load[h].Minus(used), b.load[to].Plus(used)
	p.fleet.Set(int(h), b.Taken(int(h)))
	p.fleet.Set(to, b.Taken(to))
	return true
}

// Steady is how Evenkeel would run the same cluster: FlexF with a penalty that can rise again, and live migration away from hosts that are
// about to be short.
func Steady(penalty forecast.MarginSettings, charge, margin float64, r OffloadSettings) (*Placer, error) {
	if err := penalty.Check(); err != nil {
		return nil, fmt.Errorf("policy Evenkeel: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("policy Evenkeel: %w", err)
	}
	p := &Placer{label: "Evenkeel", how: paged, retry: flexRetry, limit: 1, charge: charge, offload: r, counting: &byLoad{settings: penalty, every: 1, margin: margin}}
	return p, p.check()
}

// EvenkeelPlacer is Steady with the settings that docs/reproduction/flex.md reports: a penalty that begins low and rises when quality falls, requests
// counted as one and a half times what components use of theirs, and moves away from hosts above 95%.
func EvenkeelPlacer() *Placer {
	penalty := forecast.QualityPenalty
	penalty.Start = penalty.Min
	p, _ := Steady(penalty, 0.05, 1.5, OffloadSettings{Above: 0.95, Below: 0.9, MinResidency: 10, MaxPerTick: 20}) // constants that make sense: a test looks
	return p
}
