package allocator

import "evenkeel/allocator/search"

// start is what the vector packing heuristics find: MCB8 and, where hosts differ, METAHVP's orders of hosts and
// the mix that is nearest. It is nil where they do not apply, or find no placement with a level below the one given.
func (w *work) start(m *search.Model) func(level float64) []int32 {
	if w.s.Rules != nil || w.s.MoveBudget != nil || w.s.Stay || w.started {
		return nil
	}
	return func(level float64) []int32 {
		w.started = true
		if len(w.group) > maxOrdered && level*w.bound < 1+nearBound {
			return nil
		}
		var best []int32
		list, space := w.packings(), new(packer)
		for _, o := range list {
			if w.stopped() {
				break
			}
			o.work = space
			loads, ok := mcb(w.p, o)
			if !ok {
				continue
			}
			host := w.hostsOf(loads)
			if t := m.Level(host); t < level {
				best, level = host, t
			}
		}
		if len(list) > 1 && w.highest == 0 && level*w.bound > 1+nearBound {
			if host := aligned(w.p, w.group, 1/level, w.bound, w.stopped); host != nil {
				if t := m.Level(host); m.Check(host) && t < level {
					best = host
				}
			}
		}
		return best
	}
}

// maxOrdered is the most VMs for which all orders of hosts are tried: they take some twenty times as long as MCB8.
// Where the level is within nearBound of the bound, start skips MCB8 for more VMs, and the nearest mix for any
// number: the search that improves the start needs the work.
const (
	maxOrdered = 50_000
	nearBound  = 0.005
)

// packings are the heuristics that a search begins with.
func (w *work) packings() []MCBOptions {
	list := []MCBOptions{{}}
	if len(w.group) > maxOrdered {
		return list
	}
	for j := range w.p.Hosts {
		if h, first := &w.p.Hosts[j], &w.p.Hosts[0]; h.CPU != first.CPU || h.Memory != first.Memory {
			return append(list, MCBOptions{Hosts: HostOrders()})
		}
	}
	return list
}

// hostsOf is loads as the model has placements.
func (w *work) hostsOf(loads [][]load) []int32 {
	hosts := spread(w.p, loads, true)
	host := make([]int32, len(w.group))
	for vm := range host {
		host[vm] = int32(hosts[w.group[vm]][w.task[vm]])
	}
	return host
}
