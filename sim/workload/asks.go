package workload

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Room is what components may have of one host.
type Room struct {
	CPU    float64 // cores
	Memory float64 // bytes
}

// Cut says which part of what others recorded is played, and for which hosts.
type Cut struct {
	Hosts []Room
	From  float64 // seconds of the record that are left out
	Span  float64 // seconds of it that are played; 0: what there is, a week at most
	Load  float64 // what is asked for over what there is of the resource of which more is, over the span; 0: as recorded
	Apps  int     // so many, instead of a load; 0: not limited by number
	Seed  uint64

	// Poisson: VMs of which only use is known come one by one, at random times and for a random time of Life seconds on average (exponential).
	// Otherwise they are there from their first measurement to their last.
	Poisson bool
	Life    float64

	// ByClock: measured VMs, copies too, use at each time what was used at that time of the record.
	ByClock bool
}

// week is how much of a record is played by default, seconds.
const week = 7 * 86400.0

func (c *Cut) check() error {
	if len(c.Hosts) == 0 {
		return errors.New("workload: no hosts to play it on")
	}
	if !(c.From >= 0 && c.From < 1e12) || !(c.Span >= 0 && c.Span < 1e12) || !(c.Load >= 0 && c.Load < 1e6) || c.Apps < 0 || c.Apps > 1e8 || !(c.Life >= 0 && c.Life < 1e12) {
		return fmt.Errorf("workload: from %g s for %g s, a load of %g, %d applications, lives of %g s: that makes no sense", c.From, c.Span, c.Load, c.Apps, c.Life)
	}
	return nil
}

// all is what there is of all hosts.
func (c *Cut) all() (r Room) {
	for _, h := range c.Hosts {
		r.CPU, r.Memory = r.CPU+h.CPU, r.Memory+h.Memory
	}
	return r
}

// ask is an application of one group of components that are all needed.
type ask struct {
	arrival     float64 // seconds
	life        float64 // seconds that it takes at full speed
	stays       bool    // it outlasts whatever is played
	count       int
	cpu, memory float64 // of a component: cores, bytes
	source      int32
	of          int // whatever its use is found by

	cpuUse, memoryUse Use
}

// shares are what an ask takes of all hosts over a span, of each resource, as parts.
func (a *ask) shares(all Room, span float64) (cpu, memory float64) {
	there := span - a.arrival
	if !a.stays {
		there = min(a.life, there)
	}
	part := float64(a.count) * max(0, there) / span
	return part * a.cpu / all.CPU, part * a.memory / all.Memory
}

// fits says whether it would fit on hosts that are empty.
func (a *ask) fits(hosts []Room) bool {
	left := a.count
	for _, h := range hosts {
		if left <= 0 {
			break
		}
		if a.cpu > h.CPU || a.memory > h.Memory {
			continue
		}
		n := float64(left)
		if a.cpu > 0 {
			n = min(n, math.Floor(h.CPU/a.cpu))
		}
		if a.memory > 0 {
			n = min(n, math.Floor(h.Memory/a.memory))
		}
		left -= int(n)
	}
	return left <= 0
}

// fitting leaves out what would never run, and says so.
func fitting(asks []ask, hosts []Room, what string) ([]ask, []string) {
	n := len(asks)
	asks = slices.DeleteFunc(asks, func(a ask) bool { return !a.fits(hosts) })
	if out := n - len(asks); out > 0 {
		return asks, []string{fmt.Sprintf("%d of %d %s would not fit if all hosts were empty, and are left out", out, n, what)}
	}
	return asks, nil
}

// load of asks: of the resource of which more is asked for, over what there is.
func load(asks []ask, all Room, span float64) float64 {
	var cpu, memory float64
	for i := range asks {
		c, m := asks[i].shares(all, span)
		cpu, memory = cpu+c, memory+m
	}
	return max(cpu, memory)
}

// some draws asks until there are so many, or the load is that; again gives one more like ask i when all were taken (nil: then there
// are no more). They come back in order of arrival. Neither number nor load: all of them.
func some(rng *rand.Rand, asks []ask, c *Cut, span float64, again func(a ask) ask) []ask {
	if c.Apps == 0 && c.Load == 0 {
		return asks
	}
	all := c.all()
	var out []ask
	var cpu, memory float64
	enough := func() bool {
		if c.Apps > 0 {
			return len(out) >= c.Apps
		}
		return max(cpu, memory) >= c.Load
	}
	for round := 0; len(asks) > 0 && !enough() && (round == 0 || again != nil); round++ {
		was := len(out)
		for _, i := range rng.Perm(len(asks)) {
			if enough() {
				break
			}
			a := asks[i]
			if round > 0 {
				a = again(a)
			}
			x, m := a.shares(all, span)
			cpu, memory = cpu+x, memory+m
			out = append(out, a)
		}
		if c.Apps == 0 && round > 0 && (max(cpu, memory) == 0 || len(out) > 1e7) || len(out) == was {
			break // nothing that is asked for adds up
		}
	}
	slices.SortStableFunc(out, func(a, b ask) int { return cmp.Compare(a.arrival, b.arrival) })
	return out
}

// workloadOf makes applications of asks.
func workloadOf(asks []ask, patterns []Pattern, span float64) (*Workload, error) {
	w := &Workload{Patterns: patterns}
	for i := range asks {
		a := &asks[i]
		work := max(1, a.life)
		if a.stays {
			work = 10 * max(span, a.life) // it outlasts what is played
		}
		w.Apps = append(w.Apps, App{Arrival: a.arrival, Work: work, Source: a.source, First: int32(len(w.Groups)), Groups: 1})
		w.Groups = append(w.Groups, Group{Count: int32(a.count), CPU: a.cpu, Memory: a.memory, CPUUse: a.cpuUse, MemoryUse: a.memoryUse})
	}
	w.Sort()
	return w, w.Validate()
}
