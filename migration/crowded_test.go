package migration_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// crowded is 8 to 12 hosts with 25 to 60 VMs that take 80% to 95% of the memory, and a host to be drained. Sizes are a few
// that many VMs have, or each its own; some virtual clusters are spread. CPU is short here and
// there, and no floor binds.
func crowded(seed uint64) (migration.Problem, int) {
	rng := rand.New(rand.NewPCG(seed, 21))
	hosts, vms := 8+rng.IntN(5), 25+rng.IntN(36)
	share := 0.80 + 0.15*rng.Float64()
	few, unequal, rules := rng.IntN(2) == 0, rng.IntN(4) == 0, rng.IntN(3) == 0
	for {
		if p, ok := crowd(rng, hosts, vms, share, few, unequal, rules); ok {
			return p, rng.IntN(hosts)
		}
	}
}

func crowd(rng *rand.Rand, hosts, vms int, share float64, few, unequal, rules bool) (migration.Problem, bool) {
	const mebi = 1 << 20
	sizes := []float64{1, 2, 3, 5, 6, 8}
	p := migration.Problem{}
	total := 0.0
	for i := 0; i < vms; {
		count := 1
		if rules && rng.IntN(4) == 0 {
			count = min(2+rng.IntN(2), vms-i)
		}
		m := sizes[rng.IntN(len(sizes))]
		if !few {
			m = 0.5 + 7.5*rng.Float64()
		}
		g := migration.Group{Name: fmt.Sprint("g", i), Count: count, CPU: 0.2 + 2.8*rng.Float64(), Memory: math.Floor(m * 1024)}
		p.Groups = append(p.Groups, g)
		total += g.Memory * float64(count)
		i += count
	}
	if rules {
		p.Rules = &allocator.Rules{Affinity: make([]*allocator.Affinity, len(p.Groups))}
	}
	for j := range hosts {
		h := migration.Host{Name: fmt.Sprint("h", j), CPU: 7.6, Memory: 1}
		if unequal && j%2 == 0 {
			h.Memory = 1.5
		}
		p.Hosts = append(p.Hosts, h)
	}
	sum := 0.0
	for _, h := range p.Hosts {
		sum += h.Memory
	}
	free := make([]float64, hosts)
	for j := range p.Hosts {
		p.Hosts[j].Memory = math.Ceil(p.Hosts[j].Memory / sum * total / share)
		free[j] = p.Hosts[j].Memory
	}
	order := make([]int, len(p.Groups)) // the largest first
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(p.Groups[b].Memory - p.Groups[a].Memory) })
	for _, g := range order {
		q := &p.Groups[g]
		for range q.Count {
			var may []int
			for j := range free {
				if free[j] >= q.Memory && !(q.Count > 1 && slices.Contains(q.Hosts, j)) {
					may = append(may, j)
				}
			}
			if len(may) == 0 {
				return p, false
			}
			j := may[rng.IntN(len(may))]
			free[j] -= q.Memory
			q.Hosts = append(q.Hosts, j)
		}
		if q.Count > 1 {
			p.Rules.Affinity[g] = &allocator.Affinity{Spread: "host"}
		}
	}
	for j := range p.Hosts {
		p.Hosts[j].Memory *= mebi
	}
	for g := range p.Groups {
		p.Groups[g].Memory *= mebi
	}
	return p, true
}

// outcome of an exact search of orders.
type outcome int

const (
	unknownOrder outcome = iota // the search did not end
	noPlacement                 // the memory left is less than what the VMs have
	noOrder                     // of so few moves, or none at all
	someOrder
)

// exactOrder searches all orders of at most so many moves by which every VM leaves a host, the fewest moves first. It knows of
// memory, of spread groups and of nothing else, and shares no code with the planner: A* with the VMs that are yet to leave,
// and the VMs that must first leave a host so that the one of them that needs most of that can come, as its bound.
type exactOrder struct {
	p      migration.Problem
	host   int
	limit  int       // of moves
	states int       // kept at most
	end    time.Time // zero: no limit
	memory []float64 // [vm]
	apart  []int     // [vm]: group that is spread, -1
	class  []uint64  // [vm]: VMs of equal class are interchangeable
	mates  [][]int   // [vm]: others that it must be apart from
	seen   map[[2]uint64]int
	count  int
}

type exactState struct {
	at     []uint8
	moves  int
	bound  int
	number int
}

type exactHeap []*exactState

func (h exactHeap) Len() int { return len(h) }
func (h exactHeap) Less(a, b int) bool {
	if x, y := h[a].moves+h[a].bound, h[b].moves+h[b].bound; x != y {
		return x < y
	}
	if h[a].bound != h[b].bound {
		return h[a].bound < h[b].bound
	}
	return h[a].number < h[b].number
}
func (h exactHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *exactHeap) Push(x any)   { *h = append(*h, x.(*exactState)) }
func (h *exactHeap) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

func (x *exactOrder) search() (outcome, int) {
	room, used := 0.0, 0.0
	begin := &exactState{}
	rng := rand.New(rand.NewPCG(1, 99))
	random := map[[2]float64]uint64{}
	for g, q := range x.p.Groups {
		for vm, j := range q.Hosts {
			apart := -1
			if x.p.Rules != nil && x.p.Rules.Affinity[g] != nil {
				apart = g
			}
			key := [2]float64{q.Memory, float64(apart)}
			if random[key] == 0 {
				random[key] = rng.Uint64() | 1
			}
			x.memory, x.apart, x.class = append(x.memory, q.Memory), append(x.apart, apart), append(x.class, random[key])
			begin.at = append(begin.at, uint8(j))
			used += q.Memory
			_ = vm
		}
	}
	for j, h := range x.p.Hosts {
		if j != x.host {
			room += h.Memory
		}
	}
	if used > room {
		return noPlacement, 0
	}
	x.mates = make([][]int, len(x.memory))
	for i := range x.mates {
		for k := range x.mates {
			if i != k && x.apart[i] >= 0 && x.apart[i] == x.apart[k] {
				x.mates[i] = append(x.mates[i], k)
			}
		}
	}
	x.seen = map[[2]uint64]int{}
	free := make([]float64, len(x.p.Hosts))
	on := make([][]int, len(x.p.Hosts))
	x.load(begin.at, free, on)
	begin.bound = x.bound(begin.at, free, on)
	x.seen[x.key(begin.at)] = 0
	open := exactHeap{begin}
	for n := 0; len(open) > 0; n++ {
		if n%256 == 0 && !x.end.IsZero() && time.Now().After(x.end) || len(x.seen) > x.states {
			return unknownOrder, 0
		}
		s := heap.Pop(&open).(*exactState)
		if s.bound == 0 {
			return someOrder, s.moves
		}
		if s.moves > x.seen[x.key(s.at)] {
			continue
		}
		x.load(s.at, free, on)
		for j := range on {
			for i, vm := range on[j] {
				if slices.ContainsFunc(on[j][:i], func(o int) bool { return x.class[o] == x.class[vm] }) {
					continue
				}
				for to := range free {
					if to == j || to == x.host || free[to] < x.memory[vm] || slices.ContainsFunc(x.mates[vm], func(o int) bool { return int(s.at[o]) == to }) {
						continue
					}
					next := &exactState{at: slices.Clone(s.at), moves: s.moves + 1}
					next.at[vm] = uint8(to)
					key := x.key(next.at)
					if m, ok := x.seen[key]; ok && m <= next.moves {
						continue
					}
					free[j] += x.memory[vm]
					free[to] -= x.memory[vm]
					on[j] = slices.Delete(on[j], i, i+1)
					on[to] = append(on[to], vm)
					next.bound = x.bound(next.at, free, on)
					on[to] = on[to][:len(on[to])-1]
					on[j] = slices.Insert(on[j], i, vm)
					free[j] -= x.memory[vm]
					free[to] += x.memory[vm]
					if next.moves+next.bound > x.limit {
						continue
					}
					x.seen[key] = next.moves
					x.count++
					next.number = -x.count
					heap.Push(&open, next)
				}
			}
		}
	}
	return noOrder, 0
}

func (x *exactOrder) load(at []uint8, free []float64, on [][]int) {
	for j := range free {
		free[j], on[j] = x.p.Hosts[j].Memory, on[j][:0]
	}
	for vm, j := range at {
		free[j] -= x.memory[vm]
		on[j] = append(on[j], vm)
	}
	for j := range on {
		slices.SortFunc(on[j], func(a, b int) int { return int(x.memory[b] - x.memory[a]) })
	}
}

func (x *exactOrder) key(at []uint8) [2]uint64 {
	sums := make([]uint64, len(x.p.Hosts))
	for vm, j := range at {
		sums[j] += x.class[vm]
	}
	mix := func(v, salt uint64) uint64 {
		v = (v ^ salt) * 0x9e3779b97f4a7c15
		v ^= v >> 29
		v *= 0xbf58476d1ce4e5b9
		v ^= v >> 32
		v *= 0x94d049bb133111eb
		return v ^ v>>29
	}
	var out [2]uint64
	for j, s := range sums {
		kind := math.Float64bits(x.p.Hosts[j].Memory)
		if j == x.host {
			kind = 1
		}
		out[0] += mix(s^mix(kind, 3), 5)
		out[1] += mix(s^mix(kind, 7), 11)
	}
	return out
}

// bound is a number of moves that no order has less of.
func (x *exactOrder) bound(at []uint8, free []float64, on [][]int) int {
	extra := 0
	for _, vm := range on[x.host] {
		fewest := len(at)
		for j := range free {
			if j == x.host {
				continue
			}
			deficit, n := x.memory[vm]-free[j], 0
			var left [8]float64 // the largest first
			all := left[:0]
			for _, o := range on[j] {
				all = append(all, x.memory[o])
			}
			slices.SortFunc(all, func(a, b float64) int { return int(b - a) })
			for _, m := range all {
				if deficit <= 0 {
					break
				}
				deficit -= m
				n++
			}
			if deficit <= 0 {
				fewest = min(fewest, n)
			}
		}
		extra = max(extra, fewest)
	}
	return len(on[x.host]) + extra
}

// recordedCase is eight hosts with 28 VMs of which host h3 can be emptied in six moves, and not in fewer.
func recordedCase(seed uint64) (migration.Problem, int) {
	rng := rand.New(rand.NewPCG(seed, 22))
	p := migration.Problem{}
	for j := range 8 {
		p.Hosts = append(p.Hosts, migration.Host{Name: fmt.Sprint("h", j+1), CPU: 7.6, Memory: 16 << 30})
	}
	const mebi = 1 << 20
	for _, g := range []struct {
		memory float64 // MiB
		hosts  []int
	}{{1024, []int{2, 3}}, {3072, []int{1, 2}}, {5120, []int{1}}, {1024, []int{1}}, {3072, []int{4}}, {5120, []int{2}}, {1024, []int{5, 5}},
		{5120, []int{3, 7, 8}}, {5120, []int{7}}, {6144, []int{8}}, {6144, []int{1, 4}}, {3072, []int{7}}, {6144, []int{5, 5, 6}}, {2048, []int{6}},
		{6144, []int{2}}, {6144, []int{4}}, {2048, []int{7, 8}}, {5120, []int{6, 3}}} {
		q := migration.Group{Name: fmt.Sprint("g", len(p.Groups)), Count: len(g.hosts), CPU: 0.2 + 2.8*rng.Float64(), Memory: g.memory * mebi}
		for _, j := range g.hosts {
			q.Hosts = append(q.Hosts, j-1)
		}
		p.Groups = append(p.Groups, q)
	}
	return p, 2
}
