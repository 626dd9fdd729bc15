package migration

import (
	"cmp"
	"fmt"
	"slices"

	"evenkeel/allocator"
)

// op is one VM that goes from one host to another, or starts on its first.
type op struct {
	vm, from, to int // from: -1 for a start
	staging      bool
}

// order looks for ops that take every VM to its target, such that done one
// after another no host is ever beyond its memory and no two VMs that must be
// apart are on one host, a VM that moves being on both. It does not know of
// budgets, so that a greater budget gives no less.
type order struct {
	f        *fleet
	target   []int
	at       []int
	used     []float64                    // [host]
	room     []float64                    // [host]
	reserves []allocator.Reserve[float64] // [host]: for all VMs that are there before or afterwards
	on       [][]int                      // [host]: VMs that are there
	left     []int                        // VMs that are not where they belong
	ops      []op
}

func newOrder(f *fleet, target []int) *order {
	n := len(f.p.Hosts)
	o := &order{f: f, target: target, at: slices.Clone(f.home), used: slices.Clone(f.used), room: make([]float64, n), reserves: reserves(f, target), on: make([][]int, n)}
	for vm := range target {
		if j := f.home[vm]; j >= 0 {
			o.on[j] = append(o.on[j], vm)
		}
		if target[vm] != f.home[vm] {
			o.left = append(o.left, vm)
		}
	}
	for j := range o.room {
		o.room[j] = f.p.Hosts[j].room(o.reserves[j])
	}
	return o
}

// reserves are what hosts keep for the VMs that are there before or afterwards.
func reserves(f *fleet, target []int) []allocator.Reserve[float64] {
	out := allocator.NewReserves[float64](len(f.p.Hosts), f.p.LargestOnly)
	for vm, to := range target {
		if to >= 0 {
			out[to].Add(f.of(vm).Reclaimable)
		}
		if j := f.home[vm]; j >= 0 && j != to {
			out[j].Add(f.of(vm).Reclaimable)
		}
	}
	return out
}

// fits says whether a VM may go to a host now.
func (o *order) fits(vm, to int) bool {
	if !fits(o.used[to]+o.f.of(vm).Memory, o.room[to]) || o.f.noRoute(o.at[vm], to) != "" {
		return false
	}
	return !slices.ContainsFunc(o.on[to], func(other int) bool { return other != vm && o.f.rules.Apart(o.f.group[vm], o.f.group[other]) })
}

func (o *order) move(vm, to int, staging bool) {
	from, memory := o.at[vm], o.f.of(vm).Memory
	o.ops = append(o.ops, op{vm, from, to, staging})
	if from >= 0 {
		o.used[from] -= memory
		o.on[from] = slices.DeleteFunc(o.on[from], func(x int) bool { return x == vm })
	}
	o.used[to] += memory
	o.on[to] = append(o.on[to], vm)
	o.at[vm] = to
}

// find is the ops of the order, or why there is none.
func (o *order) find() ([]op, string) {
	// A VM whose target lacks memory goes last. One that frees scarce memory goes first.
	scarce := make([]float64, len(o.used))
	for _, vm := range o.left {
		scarce[o.target[vm]] += o.f.of(vm).Memory
	}
	for j := range scarce {
		scarce[j] += o.used[j] - o.room[j] // above 0: a VM has to leave before all have come
	}
	key := func(vm int) float64 {
		k := 0.0
		if from := o.at[vm]; from >= 0 && scarce[from] > 0 {
			k -= o.f.of(vm).Memory
		}
		if scarce[o.target[vm]] > 0 {
			k += o.f.of(vm).Memory
		}
		return k
	}
	keys := make(map[int]float64, len(o.left))
	for _, vm := range o.left {
		keys[vm] = key(vm)
	}
	slices.SortStableFunc(o.left, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	begin := o.copy()
	if o.direct(); len(o.left) == 0 {
		return o.ops, ""
	}
	if ops, ok := begin.cheapest(); ok {
		return ops, ""
	}
	if rest, ok := o.copy().cheapest(); ok {
		return append(slices.Clip(o.ops), rest...), ""
	}
	for stagings := 2*len(o.left) + 4; len(o.left) > 0; stagings-- {
		if stagings == 0 || !o.stage() {
			vm := o.left[0]
			return nil, fmt.Sprintf("no order was found in which %s can reach host %s: its memory is taken until others leave that wait for it in turn, and no other host can take them in for a while",
				o.f.name(vm), o.f.p.Hosts[o.target[vm]].Name)
		}
		o.direct()
	}
	return o.ops, ""
}

func (o *order) copy() *order {
	c := *o
	c.at, c.used, c.left, c.ops = slices.Clone(o.at), slices.Clone(o.used), slices.Clone(o.left), nil
	c.on = make([][]int, len(o.on))
	for j := range o.on {
		c.on[j] = slices.Clone(o.on[j])
	}
	return &c
}

// direct lets every VM go where it belongs, as far as that is possible.
func (o *order) direct() {
	for again := true; again; {
		again = false
		o.left = slices.DeleteFunc(o.left, func(vm int) bool {
			if !o.fits(vm, o.target[vm]) {
				return false
			}
			o.move(vm, o.target[vm], false)
			again = true
			return true
		})
	}
}

// hasReserveFor reports whether a host's reserve covers what a VM may take back while it waits there, beside the
// other VMs that wait there.
func (o *order) hasReserveFor(vm, to int) bool {
	if o.f.of(vm).Reclaimable == 0 || o.f.home[vm] == to {
		return true
	}
	reserves := o.reserves[to].With(o.f.of(vm).Reclaimable)
	for _, other := range o.on[to] {
		if o.f.home[other] != to && o.target[other] != to {
			reserves.Add(o.f.of(other).Reclaimable)
		}
	}
	return reserves.Bytes() <= o.reserves[to].Bytes()
}

// refuge says whether a VM may wait on a host that it does not belong to.
func (o *order) refuge(vm, to int) bool {
	f := o.f
	return to != o.at[vm] && to != o.target[vm] && !f.p.Hosts[to].Cordoned && f.allowed(vm, to) && o.fits(vm, to) && o.hasReserveFor(vm, to)
}

// roomiest is the host with the most room of those that a VM may wait on, -1: none.
func (o *order) roomiest(vm int) int {
	to := -1
	for j := range o.used {
		if o.refuge(vm, j) && (to < 0 || o.room[j]-o.used[j] > o.room[to]-o.used[to]) {
			to = j
		}
	}
	return to
}

// stage makes a staging hop of a VM that is on the target of another one which waits for its memory:
// of the cheapest, and preferably of those that alone free enough for the other.
func (o *order) stage() bool {
	best, where, helps := -1, -1, false
	cheaper := func(vm int) bool {
		return best < 0 || o.stagingCost(vm) < o.stagingCost(best) || o.stagingCost(vm) == o.stagingCost(best) && vm < best
	}
	const unknown = -2
	refuge := make([]int, len(o.at)) // [VM]: the roomiest host that it may wait on, -1: none
	for vm := range refuge {
		refuge[vm] = unknown
	}
	for _, wants := range o.left {
		t := o.target[wants]
		deficit := o.used[t] + o.f.of(wants).Memory - o.room[t]
		for _, vm := range o.on[t] {
			if o.f.pinned[vm] {
				continue
			}
			lets := o.f.of(vm).Memory >= deficit
			if helps && !lets || lets == helps && !cheaper(vm) {
				continue
			}
			if refuge[vm] == unknown {
				refuge[vm] = o.roomiest(vm)
			}
			if to := refuge[vm]; to >= 0 {
				best, where, helps = vm, to, lets
			}
		}
	}
	if best < 0 {
		return false
	}
	if !slices.Contains(o.left, best) {
		o.left = append(o.left, best)
	}
	o.move(best, where, true)
	return true
}

// stagingCost is what it costs to let a VM wait elsewhere.
func (o *order) stagingCost(vm int) float64 {
	if o.at[vm] == o.target[vm] {
		return 2 * o.f.bytes[vm]
	}
	return o.f.bytes[vm]
}
