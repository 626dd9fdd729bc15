package allocator

import (
	"math"
	"slices"
)

// searchTolerance ends the search for the yield. It bounds how far the search's
// own target may lie below a yield at which the packing fails; the yield of the
// placement found is then computed exactly.
const searchTolerance = 1e-6

// MCBOptions choose one of the multi-capacity bin packing heuristics.
type MCBOptions struct {
	Lists ListOrder // 1 to 8; 0: 8, which the paper found best

	// Hosts are the orders in which hosts that differ are filled. At each yield
	// they are tried one after the other until one succeeds. nil: smallest host
	// first, then largest. HostOrders has all of METAHVP.
	Hosts []HostOrder

	// Bisect searches as the paper does: the middle of 0 and the bound first, then
	// half of the interval that is left. Otherwise the search goes up from the
	// bound, in terms of load, to where packings that failed say that one may
	// succeed. Packing may fail at a yield and succeed at a greater one, so that the
	// two may end differently.
	Bisect bool

	work *packer // of an earlier call, whose memory is used again; nil: none
}

// MCB8 is MCB with the paper's best list order and no options.
func MCB8(p Problem) (s Solution, ok bool) { return MCB(p, MCBOptions{}) }

// MCB places all VMs of p, wherever they are now, by a multi-capacity bin
// packing heuristic of sec. 3.4 (MCB1 to MCB8), searching for the greatest
// minimum yield, and then divides the CPU as Allocate does. Cordoned hosts
// take no VM. A virtual cluster is packed at its MinYield where that is above
// the yield searched for. ok is false if the heuristic finds no placement,
// which proves nothing, or if p is malformed.
//
// Beside the paper: the upper end of the search is tried before anything else,
// and zero if all else fails; a placement's own yield, which may exceed the
// target, raises the lower end; each host sees the needs as fractions of itself.
func MCB(p Problem, o MCBOptions) (s Solution, ok bool) {
	if o.Lists < 0 || o.Lists > 8 || p.Validate() != nil {
		return Solution{}, false
	}
	loads, ok := mcb(&p, o)
	if !ok {
		return Solution{}, false
	}
	return solutionOf(&p, loads, spread(&p, loads, true)), true
}

// mcb is the placement that MCB finds.
func mcb(p *Problem, o MCBOptions) ([][]load, bool) {
	counts := make([]int, len(p.Groups))
	floors := false
	for g := range p.Groups {
		counts[g] = p.Groups[g].Count
		floors = floors || p.Groups[g].MinYield > 0
	}
	k := o.work
	if k == nil {
		k = new(packer)
	}
	k.reset(p, nil, counts)
	if o.Lists > 0 {
		k.lists = o.Lists
	}
	if len(o.Hosts) > 0 {
		k.orders = o.Hosts
	}
	expected := 0.0
	if !o.Bisect && !floors {
		expected = k.expected(o)
	}
	seek := func(hi float64, try probe) { searchLoad(hi, expected, try) }
	if o.Bisect {
		seek = func(hi float64, try probe) {
			searchYield(hi, func(y float64) float64 { reached, _ := try(y); return reached })
		}
	}
	if floors {
		return k.bestWithFloors(seek)
	}
	return k.best(seek)
}

// probe packs at a yield. It returns a yield from which to go on, not below the one
// asked for, or -1 where the packing fails, and then the share of the VMs that were
// placed before what was left could not fit any more.
type probe func(y float64) (reached, share float64)

// share is the share of the VMs to be placed that the last packing placed.
func (k *packer) share() float64 { return 1 - float64(k.total)/float64(max(k.all, 1)) }

// best searches for the greatest yield by scaling the capacities. Nothing is
// allocated for a probe, but for the runs of the best packing so far.
func (k *packer) best(seek func(float64, probe)) ([][]load, bool) {
	best, bestYield := k.others, -1.0
	try := func(y float64) (reached, share float64) {
		// At a yield of zero, CPU is without limit: 1/0 is infinite.
		if !k.packScaled(1 / y) {
			return -1, k.share()
		}
		realized := 1.0
		if k.worst > 1 {
			realized = 1 / k.worst
		}
		if realized > bestYield {
			bestYield = realized
			best, k.runs = k.runs, slices.Grow(best[:0], len(k.runs))
		}
		return max(y, realized), 1
	}
	seek(Bound(*k.p), try)
	k.others = best
	if bestYield < 0 {
		return nil, false
	}
	return k.loadsOf(best, nil), true
}

// bestWithFloors searches for the greatest yield where some needs do not fall
// below a floor.
func (k *packer) bestWithFloors(seek func(float64, probe)) ([][]load, bool) {
	p := k.p
	floor, need := tenancyOf(p.Groups).floors(), make([]float64, len(p.Groups))
	var best [][]load
	bestYield := -1.0
	seek(Bound(*p), func(y float64) (reached, share float64) {
		for g := range p.Groups {
			need[g] = max(y, floor[g]) * p.Groups[g].CPU
		}
		if !k.pack(need) {
			return -1, k.share()
		}
		loads := k.loads(nil)
		realized := maxMin(p, loads, floor)
		if realized > bestYield {
			best, bestYield = loads, realized
		}
		return max(y, realized), 1
	})
	return best, best != nil
}

// searchYield bisects [0, hi] for the greatest yield at which try finds a
// placement, starting at the half (sec. 3.4). try returns -1 for failure, else
// a yield, not below the one asked for, from which to go on.
func searchYield(hi float64, try func(y float64) float64) {
	if try(hi) >= 0 {
		return
	}
	lo, found := bisect(0, hi, searchTolerance, try)
	if !found && lo == 0 {
		try(0)
	}
}

// bisect narrows [lo, hi] to a width of tolerance. found: some try succeeded.
func bisect(lo, hi, tolerance float64, try func(y float64) float64) (greatest float64, found bool) {
	for hi-lo > tolerance {
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi {
			break
		}
		if y := try(mid); y >= 0 {
			lo, found = y, true
		} else {
			hi = mid
		}
	}
	return lo, found
}

const (
	// firstExcess is the load of the second probe beyond the least possible one, where none is expected to suffice.
	firstExcess = 0.0005
	// firstParts is by how much less is tried first than what was expected and suffices.
	firstParts = 1.0 / 16
	// lastParts ends searchLoad where the excess that suffices is known to a part of
	// that size: what packing reaches varies by more from one yield to the next.
	lastParts = 12
)

// searchLoad looks for the greatest yield from above, in terms of load: by how much
// it exceeds the least possible one. A packing is given up where the waste so far
// has used the excess up. Waste grows with what is placed, so that an excess over the
// share of the VMs placed by then is about the excess that suffices: within a tenth
// where the share is 0.9, and half too little where it is 0.1. expected is an
// excess near the one that suffices; 0: none is known.
func searchLoad(hi, expected float64, try probe) {
	reached, share := try(hi)
	if reached >= 0 {
		return
	}
	failed, enough := 0.0, math.Inf(1) // excesses
	caution, down := 1.0, firstParts
	next := firstExcess
	if expected > 0 {
		next = expected
	}
	for {
		y := hi / (1 + next)
		if y < searchTolerance {
			try(0)
			return
		}
		if reached, placed := try(y); reached >= 0 {
			enough = min(enough, hi/reached-1)
		} else {
			failed, share = next, placed
		}
		width := enough - failed
		switch {
		case math.IsInf(enough, 1):
			next = failed * excessGrowth(share) * caution
			caution *= caution + 0.05 // where memory is short the share says little
		case width <= enough/lastParts, width*hi <= searchTolerance*(1+enough)*(1+failed):
			return
		case failed == 0 && expected > 0:
			next = enough * (1 - down)
			down = min(2*down, 0.5)
		default:
			next = min(max(failed/max(share, 1e-9), failed+width/4), enough-width/4)
		}
	}
}

// excessGrowth is by what an excess that failed is multiplied next, so that most
// often it suffices then, given the share of the VMs that were placed.
func excessGrowth(share float64) float64 {
	beyond := 1.5
	switch {
	case share >= 0.8:
		beyond = 1.03
	case share >= 0.3:
		beyond = 1.1
	}
	return min(max(beyond/max(share, 1e-9), 1.02), 8)
}
