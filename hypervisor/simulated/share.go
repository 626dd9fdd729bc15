package simulated

import (
	"cmp"
	"slices"
)

// contender is one VM's claim on a host's CPU.
type contender struct {
	limit  float64 // cores; least of demand, vCPUs and cap
	weight float64 // > 0
	gets   float64 // cores; the result
}

// minWeight stands in for a weight of 0: cgroups know none either.
const minWeight = 0.01

// share divides capacity (cores) as a weighted fair scheduler does: each contender
// gets what it can use, or else the same amount per weight as all others
// that are short (max-min fairness, found by water-filling). The sum given is
// the least of capacity and the sum of limits, up to rounding.
func share(capacity float64, cs []contender) {
	sum := 0.0
	for i := range cs {
		sum += cs[i].limit
	}
	if sum <= capacity {
		for i := range cs {
			cs[i].gets = cs[i].limit
		}
		return
	}
	order := make([]*contender, len(cs))
	weights := 0.0
	for i := range cs {
		order[i] = &cs[i]
		weights += cs[i].weight
	}
	// What is satisfied by the least water per weight is satisfied first.
	// Stable, so that ties resolve as the VMs stand.
	slices.SortStableFunc(order, func(a, b *contender) int {
		return cmp.Compare(a.limit/a.weight, b.limit/b.weight)
	})
	left := max(capacity, 0)
	for i, c := range order {
		fair := left
		if i < len(order)-1 && weights > 0 {
			fair = left * min(c.weight/weights, 1)
		}
		c.gets = min(c.limit, fair)
		left = max(left-c.gets, 0)
		weights -= c.weight
	}
}
