package placement

import "math"

// distributeSurplus gives the CPU that hosts have left to VMs whose needs are estimated, up to what was declared: an estimate
// may be wrong, and a cap by which no other VM gains would only restrict them. The next plan that needs the surplus takes it
// back. VMs of a group have equal shares. hosts are where the VMs are, or are to be.
func (p *Problem) distributeSurplus(cpu []float64, hosts [][]int) {
	var left []float64
	var takers []int
	for i, ref := range p.Refs {
		if g := ref.Group; g.Estimated <= 0 || ref.Frozen || cpu[i] < g.Need()*(1-LittleMore) || g.CPU <= cpu[i] {
			continue
		}
		if left == nil {
			left, takers = make([]float64, len(p.Hosts)), make([]int, len(p.Hosts))
		}
		for _, at := range hosts[i] {
			if at >= 0 {
				takers[at]++
			}
		}
	}
	if left == nil {
		return
	}
	for j := range left {
		left[j] = p.Hosts[j].CPU
	}
	for i := range p.Refs {
		if p.Refs[i].Frozen { // taken off already
			continue
		}
		for _, at := range hosts[i] {
			if at >= 0 {
				left[at] -= cpu[i]
			}
		}
	}
	for i, ref := range p.Refs {
		g := ref.Group
		if g.Estimated <= 0 || ref.Frozen || cpu[i] < g.Need()*(1-LittleMore) || g.CPU <= cpu[i] {
			continue
		}
		more := g.CPU - cpu[i]
		for _, at := range hosts[i] {
			if at < 0 {
				more = 0
				break
			}
			more = min(more, max(0, left[at])/float64(takers[at]))
		}
		if cpu[i]+more < g.CPU {
			more = math.Floor((cpu[i]+more)/g.CPU*surplusSteps+TooMuch)/surplusSteps*g.CPU - cpu[i]
		}
		if more > 0 {
			cpu[i] = min(g.CPU, cpu[i]+more)
		}
	}
}
