package allocator

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
	// bound, in terms of load, by growing steps, most of which fail at once, and
	// bisects only the last step. Packing may fail at a yield and succeed at a
	// greater one, so that the two may end differently.
	Bisect bool
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
	k := newPacker(p, nil, counts)
	if o.Lists > 0 {
		k.lists = o.Lists
	}
	if len(o.Hosts) > 0 {
		k.orders = o.Hosts
	}
	seek := searchLoad
	if o.Bisect {
		seek = searchYield
	}
	if floors {
		return k.bestWithFloors(seek)
	}
	return k.best(seek)
}

// best searches for the greatest yield by scaling the capacities. Nothing is
// allocated for a probe, but for the runs of the best packing so far.
func (k *packer) best(seek func(float64, func(float64) float64)) ([][]load, bool) {
	var best []run
	bestYield := -1.0
	try := func(y float64) float64 {
		// At a yield of zero, CPU is without limit: 1/0 is infinite.
		if !k.packScaled(1 / y) {
			return -1
		}
		realized := 1.0
		if k.worst > 1 {
			realized = 1 / k.worst
		}
		if realized > bestYield {
			bestYield = realized
			best, k.runs = k.runs, best[:0]
			if cap(k.runs) == 0 {
				k.runs = make([]run, 0, len(best))
			}
		}
		return max(y, realized)
	}
	seek(Bound(*k.p), try)
	if best == nil {
		return nil, false
	}
	return k.loadsOf(best, nil), true
}

// bestWithFloors searches for the greatest yield where some needs do not fall
// below a floor.
func (k *packer) bestWithFloors(seek func(float64, func(float64) float64)) ([][]load, bool) {
	p := k.p
	floor, need := tenancyOf(p.Groups).floors(), make([]float64, len(p.Groups))
	var best [][]load
	bestYield := -1.0
	seek(Bound(*p), func(y float64) float64 {
		for g := range p.Groups {
			need[g] = max(y, floor[g]) * p.Groups[g].CPU
		}
		if !k.pack(need) {
			return -1
		}
		loads := k.loads(nil)
		realized := maxMin(p, loads, floor)
		if realized > bestYield {
			best, bestYield = loads, realized
		}
		return max(y, realized)
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

// lastSteps is into how many parts searchLoad divides the step between failure
// and success. The search ends within a fortieth or so of the distance to the bound:
// what packing reaches varies by more than that from one yield to the next.
const lastSteps = 32

// searchLoad looks for the greatest yield from above: at loads that exceed the
// least possible one by 0.0032%, four times as much, sixteen times and so on. Where the packing is
// hopeless it fails the sooner the greater the yield is, so that all steps up to
// the first that succeeds cost little more than the last of them.
func searchLoad(hi float64, try func(y float64) float64) {
	if try(hi) >= 0 {
		return
	}
	failed := hi
	for over := lastSteps * searchTolerance; ; over *= 4 {
		y := hi / (1 + over)
		if y < searchTolerance {
			try(0)
			return
		}
		if reached := try(y); reached >= 0 {
			bisect(reached, failed, max(searchTolerance, (failed-reached)/lastSteps), try)
			return
		}
		failed = y
	}
}
