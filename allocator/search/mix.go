package search

import (
	"cmp"
	"math"
	"slices"
)

// mix says which class of hosts a VM goes to where hosts differ in memory per CPU: VMs with much memory per weight go to hosts
// with much memory per CPU, as far as that is needed for the memory of each class to suffice. Each class gets the same weight
// per CPU.
type mix struct {
	base  float64     // mean memory per weight
	hosts [][]int32   // [class]: its hosts, in their order; classes have ever more memory per CPU
	share [][]float64 // [step of memory per weight][class]: of the weight in the step, what the class is due
	dealt []float64   // [step]: weight of the VMs so far
	given [][]float64 // [step][class]: of it, what the class has
}

// mixClasses is how many classes of hosts there are at most.
const mixClasses = 12

// mixSteps are of an eighth of an octave of memory per weight each. The first also has all below, the last all above.
const mixSteps = 128

// step is that of a VM; the mean memory per weight is in the middle.
func (x *mix) step(w, s int64) int {
	if w <= 0 {
		return mixSteps - 1
	}
	k := math.Log2(float64(s)/float64(w)/x.base)*8 + mixSteps/2
	return int(min(max(k, 0), mixSteps-1))
}

// mixOf is nil where all hosts have the same memory per CPU.
func mixOf(m *Model) *mix {
	x := &mix{}
	var cpu, weight, size float64
	ratio := func(j int32) float64 { return float64(m.Memory[j]) / float64(m.CPU[j]) }
	order := all(len(m.CPU))
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(ratio(a), ratio(b)) })
	for _, c := range m.CPU {
		cpu += float64(c)
	}
	// A class ends where it has its part of the CPU, and the next host has more memory per CPU.
	part := 0.0
	for i, j := range order {
		if i == 0 || part >= cpu/mixClasses && ratio(j) > ratio(order[i-1])*(1+1e-6) {
			x.hosts, part = append(x.hosts, nil), 0
		}
		last := len(x.hosts) - 1
		x.hosts[last] = append(x.hosts[last], j)
		part += float64(m.CPU[j])
	}
	if len(x.hosts) < 2 {
		return nil
	}
	for i, w := range m.Weight {
		weight += float64(w)
		size += float64(m.Size[i])
	}
	if !(weight > 0 && size > 0) {
		return nil
	}
	x.base = size / weight
	x.divide(m, weight/cpu)
	return x
}

// divide sets the shares of the classes. level is weight per CPU. Two divisions are extremes: all classes share each step alike, or
// they get the steps in turn, least memory per CPU first. Either may give some class more memory than it has. divide takes the
// mixture of both in which the fullest class uses the smallest part of its memory.
func (x *mix) divide(m *Model, level float64) {
	n := len(x.hosts)
	weights, sizes := make([]float64, mixSteps), make([]float64, mixSteps)
	total, size := 0.0, 0.0
	for i, w := range m.Weight {
		k := x.step(w, m.Size[i])
		weights[k] += float64(w)
		sizes[k] += float64(m.Size[i])
		total += float64(w)
		size += float64(m.Size[i])
	}
	due, memory := make([]float64, n), make([]float64, n) // [class]
	for c, class := range x.hosts {
		for _, j := range class {
			due[c] += float64(m.CPU[j]) * level
			memory[c] += float64(m.Memory[j])
		}
	}
	sorted := make([][]float64, mixSteps) // [step][class]: share where the classes get the steps in turn
	used := make([]float64, n)            // [class]: memory then
	c, left := 0, due[0]
	for k := range sorted {
		sorted[k] = make([]float64, n)
		for rest := weights[k]; rest > 0; {
			part := rest
			if c < n-1 {
				part = min(rest, left)
			}
			sorted[k][c] += part / weights[k]
			used[c] += part / weights[k] * sizes[k]
			rest, left = rest-part, left-part
			if c < n-1 && left <= 0 {
				c++
				left = due[c]
			}
		}
	}
	best, minUse := 0.0, math.Inf(1)
	for k := range mixSteps + 1 {
		a, highest := float64(k)/mixSteps, 0.0
		for c := range due {
			highest = max(highest, (a*used[c]+(1-a)*due[c]/total*size)/max(1, memory[c]))
		}
		if highest < minUse*(1-1e-9) {
			best, minUse = a, highest
		}
	}
	x.share, x.given, x.dealt = sorted, make([][]float64, mixSteps), make([]float64, mixSteps)
	for k := range x.share {
		x.given[k] = make([]float64, n)
		for c := range due {
			x.share[k][c] = best*x.share[k][c] + (1-best)*due[c]/total
		}
	}
}

// class is that of the hosts to which the next VM goes: the class that lacks most of what it is due of such VMs.
func (x *mix) class(m *Model, vm int32) int {
	w := m.Weight[vm]
	k := x.step(w, m.Size[vm])
	x.dealt[k] += float64(w)
	at, highest := 0, math.Inf(-1)
	for c, share := range x.share[k] {
		if l := share*x.dealt[k] - x.given[k][c]; l > highest {
			at, highest = c, l
		}
	}
	x.given[k][at] += float64(w)
	return at
}
