package migration

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Placement is where all VMs would be after moves of so many bytes, each VM going
// directly to its host, and a bound that no placement exceeds.
type Placement struct {
	Found    bool
	Hosts    [][]int // [group][vm]; nil if none was found that keeps rules and floors
	Bytes    float64
	MinYield float64

	// UpperBound of the minimum yield of all placements of at most as many bytes
	// as were asked for.
	UpperBound float64
}

// Place is the best placement that New finds for a budget, whether or not
// there is an order of moves that leads to it. A greater budget never gives a
// lower minimum yield, unless Stop ends the search.
func Place(p Problem, budget float64) (Placement, error) {
	p.Budget = max(budget, math.SmallestNonzeroFloat64) // 0 would be one that is not known
	f, err := p.fleet()
	if err != nil {
		return Placement{}, fmt.Errorf("a problem of migration: %w", err)
	}
	s := newSearch(f)
	s.direct = true
	s.run()
	out := Placement{UpperBound: min(s.bound, f.coverBound(budget*(1+sameBytes)))}
	for i := range s.found {
		c := &s.found[i] // the best first
		if c.direct > budget*(1+1e-12) || c.broken > 0 || c.missing > 0 {
			continue
		}
		out.Found, out.Bytes, out.MinYield = true, c.direct, c.yield
		for g := range p.Groups {
			first := f.first[g]
			out.Hosts = append(out.Hosts, slices.Clone(c.at[first:first+p.Groups[g].Count]))
		}
		if budget <= s.known {
			out.UpperBound = min(out.UpperBound, c.yield*(1+2*sameYield))
		}
		out.UpperBound = max(out.UpperBound, c.yield)
		break
	}
	return out, nil
}

// coverBound is a minimum yield that no placement within the budget exceeds: 1 over the least level
// that the budget suffices for. It counts the cheapest VMs that bring each host down to the level,
// host by host, and does not ask where they fit.
func (f *fleet) coverBound(budget float64) float64 {
	n := len(f.p.Hosts)
	on := make([][]int, n)
	need := make([]float64, len(f.home))
	for vm, j := range f.home {
		need[vm] = f.of(vm).CPU
		if j >= 0 && !f.pinned[vm] && need[vm] > 0 {
			on[j] = append(on[j], vm)
		}
	}
	high := 0.0
	for j := range on {
		slices.SortFunc(on[j], func(a, b int) int {
			return cmp.Or(cmp.Compare(f.bytes[a]*need[b], f.bytes[b]*need[a]), cmp.Compare(a, b))
		})
		high = max(high, f.need[j]/f.p.Hosts[j].CPU)
	}
	cost := func(t float64) (sum float64) {
		for j := range on {
			if excess := f.need[j] - t*f.p.Hosts[j].CPU; excess > 0 {
				sum += minCover(on[j], need, f.bytes, excess)
			}
			if sum > budget {
				return sum
			}
		}
		return sum
	}
	low := 1.0
	if high <= low || cost(low) <= budget {
		return 1
	}
	for high-low > 1e-10*high {
		if t := (low + high) / 2; cost(t) <= budget {
			high = t
		} else {
			low = t
		}
	}
	return min(1, 1/low*(1+sameYield))
}

// maxCover is how many sets of VMs of a host are examined for the exact cover;
// with more, fractions of VMs count.
const maxCover = 400

// minCover is at most what the cheapest of the VMs, given by cost per need, cost
// that need excess together; +Inf: all together do not.
func minCover(vms []int, need, cost []float64, excess float64) float64 {
	excess *= 1 - 1e-12
	fraction := func(from int, excess float64) (sum float64) {
		for _, vm := range vms[from:] {
			if need[vm] >= excess {
				return sum + cost[vm]*max(0, excess)/need[vm]
			}
			sum += cost[vm]
			excess -= need[vm]
		}
		return math.Inf(1)
	}
	root := fraction(0, excess)
	if math.IsInf(root, 1) {
		return root
	}
	lowest, examined := math.Inf(1), 0
	var pick func(i int, excess, spent float64)
	pick = func(i int, excess, spent float64) {
		if examined++; examined > maxCover {
			return
		}
		if excess <= 0 {
			lowest = min(lowest, spent)
			return
		}
		if i == len(vms) || spent+fraction(i, excess) >= lowest {
			return
		}
		pick(i+1, excess-need[vms[i]], spent+cost[vms[i]])
		pick(i+1, excess, spent)
	}
	pick(0, excess, 0)
	if examined > maxCover {
		return root
	}
	return lowest
}
