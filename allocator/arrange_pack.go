package allocator

import (
	"cmp"
	"slices"
)

// pack leaves as much capacity as it can on hosts without VMs, from where the movers are and from nothing, keeps the better,
// and evens the headrooms of the hosts in use.
func (x *arrangement) pack() {
	weight := x.weights()
	best, value := x.hosts(), x.worth(weight)
	better := func() {
		x.shed(weight)
		if w := x.worth(weight); w.better(&value) {
			best, value = x.hosts(), w
		}
	}
	better()
	if len(x.movers)*len(x.targets) <= maxDealt && x.fill(weight) {
		better()
	}
	x.restore(best)
}

// shed empties hosts and evens the headrooms of the others.
func (x *arrangement) shed(weight []float64) {
	for x.vacate(weight) || x.shrink(weight) {
		if x.work <= 0 {
			break
		}
	}
	closed := x.closed
	x.closed = x.unused(-1)
	x.even()
	x.closed = closed
}

// weights are the parts of hosts in the capacity of all that are open: of CPU and of memory, by half each.
func (x *arrangement) weights() []float64 {
	var cpu, memory float64
	for j := range x.p.Hosts {
		if !x.closed[j] {
			cpu, memory = cpu+x.p.Hosts[j].CPU, memory+x.p.Hosts[j].Memory
		}
	}
	weight := make([]float64, len(x.p.Hosts))
	for j := range weight {
		weight[j] = fraction(x.p.Hosts[j].CPU, cpu)/2 + fraction(x.p.Hosts[j].Memory, memory)/2
	}
	return weight
}

func (x *arrangement) empty(j int) bool { return len(x.on[j])+len(x.stay[j]) == 0 }

// unused marks the hosts that are closed or have no VM, and host but.
func (x *arrangement) unused(but int) []bool {
	shut := slices.Clone(x.closed)
	for j := range shut {
		shut[j] = shut[j] || j == but || x.empty(j)
	}
	return shut
}

// vacant lists the open hosts in use that could be without VMs, or those that are, the greatest weight first.
func (x *arrangement) vacant(weight []float64, empty bool) []int {
	var list []int
	for j := range x.on {
		if !x.closed[j] && len(x.stay[j]) == 0 && x.empty(j) == empty {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(len(x.on[a]), len(x.on[b])))
	})
	return list
}

// vacate empties one host onto others in use. false: none can be emptied.
func (x *arrangement) vacate(weight []float64) bool {
	for _, j := range x.vacant(weight, false) {
		if x.work <= 0 {
			return false
		}
		if x.leave(j, x.unused(j)) {
			return true
		}
	}
	return false
}

// shrink puts all VMs of one host on an empty one of less weight. false: there is no such pair.
func (x *arrangement) shrink(weight []float64) bool {
	targets := x.vacant(weight, true)
	slices.Reverse(targets)
	for _, j := range x.vacant(weight, false) {
		shut := make([]bool, len(x.on))
		for k := range shut {
			shut[k] = true
		}
		before := -1
		for _, k := range targets {
			if x.work <= 0 || weight[k] >= weight[j]-sameHeadroom {
				break
			}
			if h := &x.p.Hosts[k]; before >= 0 && x.alone() && h.CPU == x.p.Hosts[before].CPU && h.Memory == x.p.Hosts[before].Memory {
				continue // as one that was too small
			}
			before = k
			shut[k] = false
			if x.leave(j, shut) {
				return true
			}
			shut[k] = true
		}
	}
	return false
}

// leave puts all movers of a host on others, each where the least headroom is left. false: one fits nowhere, and nothing has changed.
func (x *arrangement) leave(j int, shut []bool) bool {
	vms := x.largestFirst(x.on[j])
	for _, v := range vms {
		x.take(v)
	}
	for _, v := range vms {
		if x.putBest(v, shut, -1) {
			continue
		}
		for _, v := range vms {
			if x.movers[v].host >= 0 {
				x.take(v)
			}
			x.put(v, int32(j))
		}
		return false
	}
	return true
}

// fill places all movers again, largest first, on hosts in use where the least headroom is left. Where none takes a VM it
// opens the host of least weight that takes all that are left, or the one of greatest weight. false: a VM fits nowhere.
func (x *arrangement) fill(weight []float64) bool {
	all := make([]int32, len(x.movers))
	for v := range all {
		all[v] = int32(v)
		x.take(int32(v))
	}
	order := x.largestFirst(all)
	var cpu, memory float64
	for _, v := range order {
		g := int(x.movers[v].group)
		cpu, memory = cpu+x.need[g], memory+x.p.Groups[g].Memory
	}
	shut := x.unused(-1)
	for _, v := range order {
		g := int(x.movers[v].group)
		if !x.putBest(v, shut, -1) {
			at := x.opened(v, cpu, memory, weight)
			if at < 0 {
				return false
			}
			x.put(v, int32(at))
			shut[at] = false
		}
		cpu, memory = cpu-x.need[g], memory-x.p.Groups[g].Memory
	}
	return true
}

// opened is the empty host that mover v begins, where so much CPU and memory is still to be placed; -1: none takes it.
func (x *arrangement) opened(v int32, cpu, memory float64, weight []float64) int {
	g := int(x.movers[v].group)
	at := -1
	for _, j := range x.vacant(weight, true) { // the greatest weight first
		if !x.takes(int32(j), g, -1) || !x.welcome(v, j) {
			continue
		}
		all := x.slackCPU[j] >= cpu*(1-roundingSlack) && x.memory[j] >= memory*(1-roundingSlack)
		if at < 0 || all {
			at = j
		}
	}
	return at
}
