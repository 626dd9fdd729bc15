package migration

import "math"

// finding is what is known of a question whether some VMs can leave.
type finding struct {
	proof string // why they cannot, whatever is moved; "": it is not proved
	steps int64  // of the searches that found no order
}

// searchOrders looks for any order of moves by which these VMs leave, whichever hosts they end on, with half of the steps
// that are left for such searches. Where there is none e.last says why.
func (e *emptying) searchOrders(vms []int) *candidate {
	s := newOrderSearch(e, vms)
	steps := e.orderSteps / 2
	begin := steps
	defer func() { e.orderSteps -= begin - steps }()
	pass := func(weight, limit float64, states int, part int64) (*candidate, searched) {
		c, is, left := s.run(weight, limit, states, part)
		steps = max(0, steps-part+left)
		return c, is
	}
	e.last = finding{}
	exhausting := ""
	if !e.f.rules.Required() { // otherwise a VM may be able to leave only with one that is not asked about
		exhausting = "all states that moves lead to were searched"
	}
	if s.movable() <= fewOrderVMs {
		switch c, is := pass(0, e.d.Budget, fewOrderStates, steps); is {
		case foundOrder:
			return c
		case exhausted:
			e.last.proof = exhausting
			return nil
		}
	}
	for i, weight := range orderWeights {
		switch c, is := pass(weight, e.d.Budget, maxOrderStates, int64(orderShares[i]*float64(steps))); is {
		case foundOrder:
			if fewer, _ := pass(refineWeight, c.bytes*(1-sameBytes), maxOrderStates, min(steps, begin-steps)); fewer != nil {
				return fewer
			}
			return c
		case exhausted:
			e.last.proof = exhausting
			return nil
		}
	}
	e.last.steps = begin - steps
	return nil
}

// impossible is a proof that these VMs cannot leave whatever is moved; "": none was found. It counts memory alone, so that it
// holds for all rules and floors.
func (e *emptying) impossible(vms []int) string {
	f := e.f
	goes := make([]bool, len(f.home))
	deficit, scale := 0.0, 0.0
	for _, vm := range vms {
		goes[vm] = true
		deficit += f.of(vm).Memory
	}
	stay := make([]float64, len(f.p.Hosts))
	for vm, j := range f.home {
		if f.pinned[vm] {
			stay[j] += f.of(vm).Memory
		}
	}
	largest := 0.0 // that any other host can have besides the VMs that cannot be moved
	for j := range f.p.Hosts {
		if h := &f.p.Hosts[j]; e.takes(j) {
			room := h.Memory - h.Reserve
			deficit -= max(0, room-f.used[j])
			scale += h.Memory
			largest = max(largest, room-stay[j])
		}
	}
	for _, vm := range vms {
		if f.of(vm).Memory > largest+1e-9*scale {
			return "no host that takes VMs could have it even without all VMs that can be moved"
		}
	}
	switch {
	case deficit > 1e-9*scale:
		return "all other hosts together lack " + size(deficit) + " of memory"
	case e.tooCoarse(goes):
		return "no sets of VMs fill the other hosts far enough for all to have room"
	}
	return ""
}

// takes says whether a host may take VMs that leave.
func (e *emptying) takes(j int) bool { return !e.leaves[j] && !e.p.Hosts[j].Cordoned }

// maxGrains bounds the multiples of the largest common divisor of the VMs' memory that a host can take, and maxGrainVMs the VMs.
const (
	maxGrains   = 1 << 17
	maxGrainVMs = 500
)

// tooCoarse reports that the memory cannot suffice because VMs come whole: each host is filled at most by a
// sum that some of the VMs have, and all hosts so filled have too little.
func (e *emptying) tooCoarse(goes []bool) bool {
	f := e.f
	if len(f.home) > maxGrainVMs {
		return false
	}
	grain, largest := uint64(0), 0.0
	var all []uint64
	for vm, j := range f.home {
		if !goes[vm] && !e.takes(j) {
			continue
		}
		m := f.of(vm).Memory
		if m != math.Trunc(m) || m >= 1<<53 {
			return false
		}
		all = append(all, uint64(m))
		for b := uint64(m); b > 0; {
			grain, b = b, grain%b
		}
	}
	for j := range f.p.Hosts {
		largest = max(largest, f.p.Hosts[j].Memory, f.used[j])
	}
	if grain == 0 || largest/float64(grain) > maxGrains {
		return false
	}
	n := int(largest/float64(grain)) + 1
	sums := make([]uint64, n/64+1) // bit set: a sum that some VMs have
	sums[0] = 1
	total := uint64(0)
	for _, m := range all {
		k := int(m / grain)
		total += m / grain
		for w := len(sums) - 1; w >= k/64; w-- {
			x := sums[w-k/64] << (k % 64)
			if k%64 > 0 && w > k/64 {
				x |= sums[w-k/64-1] >> (64 - k%64)
			}
			sums[w] |= x
		}
	}
	filled := uint64(0)
	for j := range f.p.Hosts {
		h := &f.p.Hosts[j]
		if !e.takes(j) {
			continue
		}
		room := max(h.Memory-h.Reserve, f.used[j]) * (1 + 1e-12)
		for k := int(room / float64(grain)); k > 0; k-- {
			if sums[k/64]>>(k%64)&1 != 0 {
				filled += uint64(k)
				break
			}
		}
	}
	return filled < total
}
