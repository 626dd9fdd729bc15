package migration

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"evenkeel/allocator"
)

const (
	// orderSteps is the most work of the searches of orders of one drain, and no more than orderFactor times Problem.Steps;
	// stateSteps is that of one state that is reached.
	orderSteps  = 100_000_000
	orderFactor = 5
	stateSteps  = 60

	maxOrderStates = 1_000_000 // that a pass keeps
	fewOrderStates = 12_000    // that the pass for the fewest bytes keeps
	fewOrderVMs    = 14        // up to which that pass comes first
	orderHosts     = 24        // hosts, besides those that are drained, whose VMs a search moves
	moveShare      = 0.15      // what a move counts besides its bytes, in mean bytes of a VM, so that small moves are not free
	floorSlack     = 1e-9
)

// orderWeights are the weights of the passes that look for any order, and orderShares the parts that they
// take of the steps then left. refineWeight is the weight of the pass that looks for an order with fewer
// bytes once there is one.
var (
	orderWeights = [...]float64{30, 5, 100}
	orderShares  = [...]float64{0.3, 0.6, 1}
)

const refineWeight = 3

// searched is what a search of orders says.
type searched int

const (
	notFound   searched = iota // within its steps
	foundOrder                 // an order
	exhausted                  // proved: no order exists
)

// orderSearch goes through the states that single moves lead to from the present one: VMs that have to leave go, and others
// go to other hosts, for good or for a while. It is a weighted A* (Pohl 1970): states are expanded by what was spent, what
// the VMs that have to leave will cost, and weight times the memory that is yet to be freed for them.
//
// Every move keeps memory with the VM counted on both hosts, the hosts' reserves, rules that keep VMs apart or off hosts,
// routes and floors of the CPU. Yields above the floors are no matter here. VMs of equal class are interchangeable, and so
// are hosts of equal kind, so that states that differ by such an exchange are one.
type orderSearch struct {
	e *emptying
	f *fleet

	hosts   []int // that take part: those that are drained, then others
	closed  int   // how many of hosts are drained
	local   []int // [host]: index into hosts, -1
	whole   bool  // all hosts take part that VMs could go to
	plain   bool  // no VM takes memory back by itself, so that the memory a state needs does not depend on how it was reached
	symm    bool  // hosts of equal kind are interchangeable
	class   []int // [vm]
	keys    [][2]uint64
	kinds   []uint64    // [index]
	mean    float64     // bytes of a VM
	apart   [][]int     // [group]: groups whose VMs it must be apart from; nil without rules
	mayGo   [][]bool    // [group][index]; nil without rules
	routes  [][]bool    // [index][index]: there is one; nil: all have
	goes    []bool      // [vm]: it has to leave
	floorOf []float64   // [vm]: CPU that it must have
	begin   orderLayout // before any move

}

// orderLayout is where VMs are in a state.
type orderLayout struct {
	at       []int   // [vm]: index of its host, -1: on none that takes part
	on       [][]int // [index]: VMs that may move
	free     []float64
	floors   []float64
	reserves []allocator.Reserve[float64]
	sums     [][2]uint64 // [index]: of the keys of its VMs
	groups   []map[int]int
	left     int     // VMs that have yet to leave
	rest     float64 // bytes of these
}

// orderNode is a state by the move that leads to it.
type orderNode struct {
	before   int32
	vm       int32
	from, to int16
	left     int16
	spent    float64
	bytes    float64
}

type orderEntry struct {
	worth float64
	node  int32
}

// orderHeap is a binary heap: the least worth first, of equal ones the latest.
type orderHeap []orderEntry

func (h orderHeap) before(a, b int) bool {
	return h[a].worth < h[b].worth || h[a].worth == h[b].worth && h[a].node > h[b].node
}

func (h *orderHeap) push(x orderEntry) {
	*h = append(*h, x)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.before(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *orderHeap) pop() orderEntry {
	q := *h
	x, last := q[0], len(q)-1
	q[0] = q[last]
	q = q[:last]
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			break
		}
		if next+1 < last && q.before(next+1, next) {
			next++
		}
		if !q.before(next, i) {
			break
		}
		q[i], q[next] = q[next], q[i]
		i = next
	}
	*h = q
	return x
}

// newOrderSearch is for the drain of these VMs. All other VMs of the hosts that are drained stay.
func newOrderSearch(e *emptying, vms []int) *orderSearch {
	f := e.f
	s := &orderSearch{e: e, f: f, local: make([]int, len(f.p.Hosts)), goes: make([]bool, len(f.home)), plain: true, class: make([]int, len(f.home)), floorOf: make([]float64, len(f.home))}
	for _, vm := range vms {
		s.goes[vm] = true
	}
	var others []int
	for j := range f.p.Hosts {
		s.local[j] = -1
		switch {
		case e.leaves[j]:
			s.hosts = append(s.hosts, j)
		case !f.p.Hosts[j].Cordoned:
			others = append(others, j)
		}
	}
	s.closed = len(s.hosts)
	free := func(j int) float64 { return f.p.Hosts[j].Memory - f.p.Hosts[j].Reserve - f.used[j] }
	if s.whole = len(others) <= orderHosts; !s.whole {
		slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(free(b), free(a)) })
		others = others[:orderHosts]
		slices.Sort(others)
	}
	s.hosts = append(s.hosts, others...)
	for i, j := range s.hosts {
		s.local[j] = i
	}
	moving := 0.0
	for vm := range f.home {
		s.floorOf[vm] = f.of(vm).CPU * e.p.Groups[f.group[vm]].MinYield
		s.plain = s.plain && f.of(vm).Reclaimable == 0
		if s.local[f.home[vm]] >= 0 {
			s.mean += f.bytes[vm]
			moving++
		}
	}
	s.mean /= max(1, moving)
	s.rules()
	s.classes()
	s.lay()
	return s
}

// rules looks up what keeps VMs apart and off hosts.
func (s *orderSearch) rules() {
	f, n := s.f, len(s.hosts)
	s.symm = s.plain
	if f.p.Rules != nil {
		s.apart, s.mayGo = make([][]int, len(f.p.Groups)), make([][]bool, len(f.p.Groups))
		for g := range f.p.Groups {
			s.apart[g] = f.rules.ApartFrom(g)
			s.mayGo[g] = make([]bool, n)
			for i, j := range s.hosts {
				s.mayGo[g][i] = f.rules.Allowed(g, j)
			}
		}
	}
	if f.p.NoRoute == nil {
		return
	}
	routes, all := make([][]bool, n), true
	for i, j := range s.hosts {
		routes[i] = make([]bool, n)
		for k, to := range s.hosts {
			routes[i][k] = f.noRoute(j, to) == ""
			all = all && (routes[i][k] || k < s.closed)
		}
	}
	if !all {
		s.routes, s.symm = routes, false
	}
}

// classes sorts VMs into those that are interchangeable, and hosts into kinds.
func (s *orderSearch) classes() {
	type kind struct {
		memory, reclaimable, floor, bytes float64
		group                             int
	}
	f, rng := s.f, rand.New(rand.NewPCG(1, 2))
	of := map[kind]int{}
	for vm := range f.home {
		g := f.of(vm)
		k := kind{g.Memory, g.Reclaimable, s.floorOf[vm], 0, -1}
		if !math.IsInf(s.e.d.Budget, 1) {
			k.bytes = f.bytes[vm]
		}
		if f.p.Rules != nil && (len(s.apart[f.group[vm]]) > 0 || slices.Contains(s.mayGo[f.group[vm]], false) || f.rules.Required()) {
			k.group = f.group[vm]
		}
		c, ok := of[k]
		if !ok {
			c = len(s.keys)
			of[k] = c
			s.keys = append(s.keys, [2]uint64{rng.Uint64() | 1, rng.Uint64() | 1})
		}
		s.class[vm] = c
	}
	type box struct{ room, cpu, fixed, floors float64 }
	kinds, fixed, floors := map[box]uint64{}, make([]float64, len(s.hosts)), make([]float64, len(s.hosts))
	for vm, j := range f.home {
		if i := s.local[j]; i >= 0 && s.stays(vm) {
			fixed[i] += f.of(vm).Memory
			floors[i] += s.floorOf[vm]
			if s.mayGo != nil && len(s.apart[f.group[vm]]) > 0 {
				s.symm = false
			}
		}
	}
	barred := false
	for _, may := range s.mayGo {
		barred = barred || slices.Contains(may, false)
	}
	for i, j := range s.hosts {
		h := &f.p.Hosts[j]
		b := box{room: h.Memory - h.Reserve, cpu: h.CPU, fixed: fixed[i], floors: floors[i]}
		k, ok := kinds[b]
		if !ok || !s.symm || barred || i < s.closed {
			k = rng.Uint64()
			kinds[b] = k
		}
		s.kinds = append(s.kinds, k)
	}
}

// stays says whether a search moves a VM in no case.
func (s *orderSearch) stays(vm int) bool {
	return s.f.pinned[vm] || s.e.leaves[s.f.home[vm]] && !s.goes[vm]
}

// lay makes the layout of the present state.
func (s *orderSearch) lay() {
	f, n := s.f, len(s.hosts)
	l := orderLayout{at: make([]int, len(f.home)), on: make([][]int, n), free: make([]float64, n), floors: make([]float64, n),
		reserves: allocator.NewReserves[float64](n, f.p.LargestOnly), sums: make([][2]uint64, n)}
	if f.p.Rules != nil {
		l.groups = make([]map[int]int, n)
		for i := range l.groups {
			l.groups[i] = map[int]int{}
		}
	}
	for i, j := range s.hosts {
		l.free[i] = f.p.Hosts[j].Memory - f.p.Hosts[j].Reserve - f.used[j]
	}
	for vm, j := range f.home {
		i := s.local[j]
		l.at[vm] = i
		if i < 0 {
			continue
		}
		l.floors[i] += s.floorOf[vm]
		l.reserves[i].Add(f.of(vm).Reclaimable)
		if l.groups != nil {
			l.groups[i][f.group[vm]]++
		}
		if s.stays(vm) {
			continue
		}
		l.on[i] = append(l.on[i], vm)
		s.sum(&l, i, vm, 1)
		if s.goes[vm] {
			l.left++
			l.rest += f.bytes[vm]
		}
	}
	s.begin = l
}

func (s *orderSearch) sum(l *orderLayout, i, vm int, sign uint64) {
	k := s.keys[s.class[vm]]
	l.sums[i][0] += sign * k[0]
	l.sums[i][1] += sign * k[1]
}

// mixed is a number that two equal inputs share, and others all but never.
func mixed(v, salt uint64) uint64 { // the finalizer of SplitMix64 (Steele et al. 2014)
	v = (v ^ salt) + 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// part of a host in the key of a state.
func (s *orderSearch) part(l *orderLayout, i int) [2]uint64 {
	salt := s.kinds[i]
	if !s.plain {
		salt = mixed(salt, math.Float64bits(l.reserves[i].Bytes()))
	}
	return [2]uint64{mixed(l.sums[i][0], salt), mixed(l.sums[i][1], salt^0x5851f42d4c957f2d)}
}

// may says whether a VM may go from where it is to a host.
func (s *orderSearch) may(l *orderLayout, vm, to int) bool {
	f, from := s.f, l.at[vm]
	q := f.of(vm)
	h := &f.p.Hosts[s.hosts[to]]
	left := l.free[to]
	if q.Reclaimable > 0 && f.home[vm] != s.hosts[to] {
		left -= l.reserves[to].With(q.Reclaimable).Bytes()
	} else {
		left -= l.reserves[to].Bytes()
	}
	if left < q.Memory-math.Abs(h.Memory)*1e-13 {
		return false
	}
	if s.floorOf[vm] > 0 && l.floors[to]+s.floorOf[vm] > h.CPU*(1+floorSlack) {
		return false
	}
	if s.routes != nil && !s.routes[from][to] || f.p.NoRoute != nil && !f.allowed(vm, s.hosts[to]) {
		return false
	}
	if s.apart == nil {
		return true
	}
	if !s.mayGo[f.group[vm]][to] {
		return false
	}
	for _, o := range s.apart[f.group[vm]] {
		if l.groups[to][o] > 0 {
			return false
		}
	}
	return true
}

func (s *orderSearch) move(l *orderLayout, vm, to int) {
	from, q := l.at[vm], s.f.of(vm)
	l.at[vm] = to
	k := slices.Index(l.on[from], vm)
	last := len(l.on[from]) - 1
	l.on[from][k] = l.on[from][last]
	l.on[from] = l.on[from][:last]
	l.on[to] = append(l.on[to], vm)
	l.free[from] += q.Memory
	l.free[to] -= q.Memory
	l.floors[from] -= s.floorOf[vm]
	l.floors[to] += s.floorOf[vm]
	if l.groups != nil {
		l.groups[from][s.f.group[vm]]--
		l.groups[to][s.f.group[vm]]++
	}
	s.sum(l, from, vm, ^uint64(0))
	s.sum(l, to, vm, 1)
	if s.goes[vm] && from < s.closed {
		l.left--
		l.rest -= s.f.bytes[vm]
	}
	if q.Reclaimable > 0 && s.f.home[vm] != s.hosts[to] {
		l.reserves[to].Add(q.Reclaimable)
	}
}

// copyTo makes another layout equal, without new memory where it has some.
func (l *orderLayout) copyTo(c *orderLayout) {
	c.at = append(c.at[:0], l.at...)
	c.free, c.floors = append(c.free[:0], l.free...), append(c.floors[:0], l.floors...)
	c.reserves, c.sums = append(c.reserves[:0], l.reserves...), append(c.sums[:0], l.sums...)
	c.left, c.rest = l.left, l.rest
	if c.on == nil {
		c.on = make([][]int, len(l.on))
	}
	for i := range l.on {
		c.on[i] = append(c.on[i][:0], l.on[i]...)
	}
	if l.groups == nil {
		return
	}
	if c.groups == nil {
		c.groups = make([]map[int]int, len(l.groups))
	}
	for i, m := range l.groups {
		if c.groups[i] == nil {
			c.groups[i] = map[int]int{}
		}
		clear(c.groups[i])
		for g, n := range m {
			c.groups[i][g] = n
		}
	}
}
