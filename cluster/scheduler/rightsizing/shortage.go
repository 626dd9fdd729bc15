package rightsizing

import "math"

// Shortage is a host from which VMs would be evicted for memory, unless others move away.
type Shortage struct {
	Host  string
	Bytes int64 // that memory in use, with the largest amount that one VM may take back, is above what the host has
}

// MovesAway says whether moves are to bring what a host is short of.
type MovesAway struct {
	Moves bool   // they are under way
	Why   string // there are none, and this is why
}

// pressed are the VMs of a host that are short of memory, by id, and why they stay there.
func (r *Result) pressed(host string) map[string]string {
	out := map[string]string{}
	for i := range r.VMs {
		if v := &r.VMs[i]; v.Host == host && v.UnderPressure {
			out[v.VM] = "is short of memory"
		}
	}
	return out
}

// shortage is what a host lacks.
func (x *Rightsizer) shortage(host int) Shortage {
	inUse, _, takesBack := x.usedOn(host)
	h := &x.p.Hosts[host]
	return Shortage{Host: h.Name, Bytes: int64(math.Ceil(max(0, inUse+takesBack-h.Memory)))}
}

// Evictions returns the evictions that are left where moves are made instead. moveAway is asked once for each short host, with the VMs, by id,
// that are to stay there.
func (r *Result) Evictions(moveAway func(Shortage, map[string]string) MovesAway) []Preemption {
	asked := map[string]MovesAway{}
	for _, short := range r.Short {
		asked[short.Host] = moveAway(short, r.pressed(short.Host))
	}
	var out []Preemption
	for _, p := range r.Preempt {
		answer := asked[p.Host]
		if answer.Moves {
			continue
		}
		p.Reason += "; no VM moves for it: " + answer.Why
		out = append(out, p)
	}
	return out
}
