package placement

import (
	"fmt"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// minNamed is the least headroom that is worth a word, of a host.
const minNamed = 0.005

// PolicyOf settings, in the allocator's terms.
func PolicyOf(set state.Settings) allocator.Policy {
	if set.Placement == state.Pack {
		return allocator.Pack
	}
	return allocator.Spread
}

// PolicyText says what the policy makes of a placement; "": nothing, on one host or with a full one.
func (p *Problem) PolicyText(hosts [][]int) string {
	n := len(p.Hosts)
	cpu, memory, vms := make([]float64, n), make([]float64, n), make([]int, n)
	for i, g := range p.Groups {
		for _, at := range hosts[i] {
			if at >= 0 {
				cpu[at] += g.CPU
				memory[at] += g.Memory
				vms[at]++
			}
		}
	}
	open, free := 0, 0
	for j := range p.Hosts {
		if !p.Hosts[j].Cordoned {
			if open++; vms[j] == 0 {
				free++
			}
		}
	}
	if p.Policy == allocator.Pack {
		if open < 2 {
			return ""
		}
		return fmt.Sprintf("placement pack: %d of %d hosts have no VM", free, open)
	}
	lowest, at := 1.0, -1
	for j := range p.Hosts {
		h := &p.Hosts[j]
		if h.Cordoned || h.CPU <= 0 || h.Memory <= 0 {
			continue
		}
		if room := min(1-cpu[j]/h.CPU, 1-memory[j]/h.Memory); at < 0 || room < lowest {
			lowest, at = room, j
		}
	}
	if at < 0 || open < 2 || lowest < minNamed {
		return ""
	}
	return fmt.Sprintf("placement spread: least headroom %.0f%%, on host %s", 100*lowest, p.Hosts[at].Name)
}
