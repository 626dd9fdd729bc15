package allocator

import (
	"math"

	"evenkeel/allocator/search"
)

// model builds the whole-number model of the problem. Needs are rounded down
// and capacities up: whatever is proved of the model holds for the problem.
func (w *work) model(vms int) {
	p := w.p
	var need, cpu, memory float64
	for j := range p.Hosts {
		cpu += p.Hosts[j].CPU
		memory += p.Hosts[j].Memory
	}
	for g := range p.Groups {
		need += float64(p.Groups[g].Count) * p.Groups[g].CPU
	}
	w.scale = powerUnder(0x1p52, max(cpu, need))
	w.unit = powerUnder(0x1p59, memory)
	m := &search.Model{
		CPU: make([]int64, len(p.Hosts)), Memory: make([]int64, len(p.Hosts)),
		Weight: make([]int64, vms), Size: make([]int64, vms),
	}
	for j := range p.Hosts {
		m.CPU[j] = max(1, int64(math.Ceil(p.Hosts[j].CPU*w.scale)))
		m.Memory[j] = int64(math.Floor(p.Hosts[j].Memory * (1 + roundingSlack) * w.unit))
	}
	w.group, w.task, w.home = make([]int32, vms), make([]int32, vms), make([]int32, vms)
	vm, anyHome := 0, false
	for g := range p.Groups {
		group := &p.Groups[g]
		weight, size := int64(group.CPU*w.scale), int64(group.Memory*w.unit)
		for k := range group.Count {
			m.Weight[vm], m.Size[vm] = weight, size
			w.group[vm], w.task[vm], w.home[vm] = int32(g), int32(k), -1
			if group.Hosts != nil && group.Hosts[k] >= 0 {
				w.home[vm] = int32(group.Hosts[k])
				anyHome = true
			}
			vm++
		}
	}
	w.m = m
	// Without a budget, too: it is the largest of all.
	w.moves = anyHome && !w.s.Stay && (w.s.MoveBudget != nil || w.s.Stop == nil)
	w.rules(anyHome)
}

// powerUnder is the greatest power of two that takes total to less than limit.
func powerUnder(limit, total float64) float64 {
	if total <= 0 {
		return 1
	}
	_, e := math.Frexp(limit / total)
	return math.Ldexp(1, e-1)
}

// weigh sets the weights to what each VM must have at minimum yield y, which is
// more than y of its need where its virtual cluster must have more. y is reached
// by a placement if no level is above 1.
func (w *work) weigh(y float64) {
	for vm, g := range w.group {
		w.m.Weight[vm] = int64(max(y, w.t.floor[w.t.of[g]]) * w.p.Groups[g].CPU * w.scale)
	}
}
