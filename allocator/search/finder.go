package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// finder improves placements.
type finder struct {
	m        *Model
	rng      *rand.Rand
	steps    int64 // what may still be done; about 10 ns each
	stop     func() bool
	stopped  bool
	company  []uint64 // classes that have to be with others, or others with them
	splitter splitter
	pack     completion
	order    []int32
	vms      []int32
	hosts    []int32
	roomW    []int64
	roomM    []int64

	part     float64 // share of the way to floor at which press sets its next goal
	patience int64   // steps that press spends on that goal

	within    int64 // >= 0: note placements that cost no more
	near      []int32
	nearLevel float64
}

func newFinder(m *Model, seed uint64, steps int64, stop func() bool) *finder {
	f := &finder{m: m, rng: rand.New(rand.NewPCG(seed, 0x6576656e6b65656c)), steps: steps, stop: stop, within: -1}
	if r := m.Rules; r != nil && r.With != nil {
		f.company = setOf(64 * (1 + len(r.With)/64))
		for c, sets := range r.With {
			for _, set := range sets {
				f.company[c>>6] |= 1 << (c & 63)
				for k := range set {
					f.company[k] |= set[k]
				}
			}
		}
	}
	f.order = make([]int32, len(m.CPU))
	for j := range f.order {
		f.order[j] = int32(j)
	}
	return f
}

// done says whether the work is used up.
func (f *finder) done() bool {
	if f.steps <= 0 || f.stopped {
		return true
	}
	f.stopped = f.stop != nil && f.stop()
	return f.stopped
}

// deal places the VMs, largest first, each on the host with memory for it whose level is then
// lowest. With over it ignores memory: the search mends that later. With fill it puts VMs that must
// be with others on the fullest host. It reports whether every VM found a host.
func (f *finder) deal(over, fill bool) (*placement, bool) {
	m := f.m
	n, h := len(m.Weight), len(m.CPU)
	var cpu, memory float64
	for j := range h {
		cpu += float64(m.CPU[j])
		memory += float64(m.Memory[j])
	}
	key := make([]float64, n)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
		key[i] = float64(m.Weight[i]) / cpu
		if s := float64(m.Size[i]) / memory; memory > 0 && s > key[i] {
			key[i] = s
		}
		if f.company != nil && has(f.company, m.Rules.Class[i]) {
			key[i] += 1
			if len(m.withs(int32(i))) == 0 {
				key[i] += 1
			}
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(key[b], key[a]), cmp.Compare(a, b)) })
	if m.Rules == nil && h > 16 {
		return f.dealByHeap(order, over)
	}
	if f.company != nil {
		return f.dealParties(order, over, fill)
	}
	p := newPlacement(m)
	var late func() bool
	if f.stop != nil && m.mayStay() { // otherwise there may be no placement without the deal
		late = f.stop
	}
	for i, vm := range order {
		if late != nil && i%256 == 255 && late() {
			return nil, false
		}
		at := f.lowest(p, vm, over)
		if at < 0 {
			return nil, false
		}
		p.put(vm, at)
	}
	f.steps -= int64(n*h) / 8
	return p, true
}

// lowest is the host where the level is lowest once a VM is there; -1: none may take it. With over it ignores memory.
func (f *finder) lowest(p *placement, vm int32, over bool) int32 {
	m := f.m
	at, lowest := int32(-1), math.Inf(1)
	w, s := m.Weight[vm], m.Size[vm]
	for j := range m.CPU {
		if p.used[j]+s > m.Memory[j] && !over {
			continue
		}
		l := level(p.load[j]+w, m.CPU[j])
		if l >= lowest {
			continue
		}
		if m.Rules != nil && (p.clashes(vm, int32(j)) || m.budgeted() && p.cost+m.cost(vm, int32(j)) > m.Rules.Budget) {
			continue
		}
		at, lowest = int32(j), l
	}
	return at
}

// dealByHeap is deal without rules, for many hosts: they lie in a heap, the
// least loaded on top.
func (f *finder) dealByHeap(order []int32, over bool) (*placement, bool) {
	m := f.m
	h := len(m.CPU)
	p := newPlacement(m)
	lower := func(a, b int32) bool {
		x, y := level(p.load[a], m.CPU[a]), level(p.load[b], m.CPU[b])
		return x < y || x == y && a < b
	}
	heap := all(h)
	down := func(n int) {
		for i := 0; ; {
			k := 2*i + 1
			if k >= n {
				return
			}
			if k+1 < n && lower(heap[k+1], heap[k]) {
				k++
			}
			if !lower(heap[k], heap[i]) {
				return
			}
			heap[i], heap[k] = heap[k], heap[i]
			i = k
		}
	}
	up := func(i int) {
		for i > 0 && lower(heap[i], heap[(i-1)/2]) {
			heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
			i = (i - 1) / 2
		}
	}
	for _, vm := range order {
		// Hosts with too little memory are set aside, behind the heap.
		n := h
		for n > 0 && !over && p.used[heap[0]]+m.Size[vm] > m.Memory[heap[0]] {
			n--
			heap[0], heap[n] = heap[n], heap[0]
			down(n)
		}
		f.steps -= int64(4 * (1 + h - n))
		if n == 0 {
			return nil, false
		}
		p.put(vm, heap[0])
		down(n)
		for ; n < h; n++ {
			up(n)
		}
	}
	return p, true
}

// dealt is a placement that takes no search, or nil.
func (f *finder) dealt() *placement {
	m := f.m
	if p, ok := f.deal(false, false); ok && m.Check(p.host) {
		return p
	}
	if f.company != nil {
		if p, ok := f.deal(false, true); ok && m.Check(p.host) {
			return p
		}
	}
	if m.mayStay() {
		return placementOf(m, m.Rules.Home)
	}
	return nil
}

// mayStay says whether moves have a budget and all VMs may stay on their present hosts.
func (m *Model) mayStay() bool {
	return m.budgeted() && !slices.Contains(m.Rules.Home, -1) && m.Check(m.Rules.Home)
}

// stepsPerPacked is what placements of another kind cost, per VM and host.
const stepsPerPacked = 50

// other returns the placement that ask has if it is better than p, which may be nil; else p.
func (f *finder) other(p *placement, ask func(level float64) []int32) *placement {
	if ask == nil {
		return p
	}
	t := math.Inf(1)
	if p != nil {
		_, t = p.top()
	}
	host := ask(t)
	if host == nil {
		return p
	}
	f.steps -= int64(stepsPerPacked * (len(f.m.Weight) + len(f.m.CPU)))
	if f.m.Check(host) && f.m.Level(host) < t {
		return placementOf(f.m, host)
	}
	return p
}

// byMemory spreads the memory evenly over the hosts, as if it were CPU, until it fits.
func (f *finder) byMemory() *placement {
	m := f.m
	memory := &Model{CPU: make([]int64, len(m.CPU)), Memory: make([]int64, len(m.CPU)), Weight: m.Size, Size: make([]int64, len(m.Size)), Rules: m.Rules}
	for j, r := range m.Memory {
		memory.CPU[j] = max(1, r)
	}
	g := newFinder(memory, f.rng.Uint64(), f.steps, f.stop)
	g.stopped = f.stopped
	p, ok := g.deal(true, false)
	if ok {
		g.improve(p, 1)
	}
	f.steps, f.stopped = g.steps, g.stopped
	if !ok || !m.Check(p.host) {
		return nil
	}
	return placementOf(m, p.host)
}

// contest improves p and, where there is one, rival by turns, each with twice the work of the turn before: the level
// of a start does not predict the level in the end. It returns the better of the two.
func (f *finder) contest(p, rival *placement, floor float64) *placement {
	if rival == nil {
		f.improve(p, floor)
		return p
	}
	for turn := int64(len(f.m.Weight)) * 400; !f.done(); turn *= 2 {
		f.spend(turn, func() { f.improve(p, floor) })
		f.spend(turn/2, func() { f.improve(rival, floor) })
		f.spend(turn/2, func() { f.press(rival, floor) })
		_, t := p.top()
		if _, u := rival.top(); min(t, u) <= floor {
			break
		}
	}
	_, t := p.top()
	if _, u := rival.top(); u <= t {
		return rival
	}
	return p
}

// improve lowers the greatest level until it is at most floor, the work is used
// up, or nothing more is found.
func (f *finder) improve(p *placement, floor float64) {
	for !f.done() {
		a, t := p.top()
		f.note(p, t)
		if t <= floor {
			return
		}
		if f.pairs(p, a, t) {
			continue
		}
		if !f.few(p, a, t) {
			return
		}
	}
}

// pairs tries host a with every other.
func (f *finder) pairs(p *placement, a int32, t float64) bool {
	n := len(f.order)
	for i := range n {
		// Of three at random the least loaded: it has most to offer.
		k := i + f.rng.IntN(n-i)
		for range 2 {
			if o := i + f.rng.IntN(n-i); level(p.load[f.order[o]], f.m.CPU[f.order[o]]) < level(p.load[f.order[k]], f.m.CPU[f.order[k]]) {
				k = o
			}
		}
		f.order[i], f.order[k] = f.order[k], f.order[i]
		b := f.order[i]
		if b == a {
			continue
		}
		if level(p.load[a]+p.load[b], f.m.CPU[a]+f.m.CPU[b]) >= t {
			continue
		}
		if f.split(p, a, b, t) {
			return true
		}
		if f.done() {
			return false
		}
	}
	return false
}

// fewItems is up to how many VMs a few hosts are packed again.
const fewItems = 28

// few packs host a and some others again, more and more of them.
func (f *finder) few(p *placement, a int32, t float64) bool {
	h := len(f.order)
	if h < 3 {
		return false
	}
	rounds := 0
	for k := 3; ; k++ {
		if k > h || k > 12 {
			k = 3
			if rounds++; rounds > 20 {
				return false
			}
		}
		any := false
		for try := 0; try < 2*h; try++ {
			if f.done() {
				return false
			}
			f.hosts = append(f.hosts[:0], a)
			items := len(p.on[a])
			load, cpu := p.load[a], f.m.CPU[a]
			for i := 0; len(f.hosts) < k && i < h; i++ {
				q := i + f.rng.IntN(h-i)
				f.order[i], f.order[q] = f.order[q], f.order[i]
				if b := f.order[i]; b != a && items+len(p.on[b]) <= fewItems {
					f.hosts = append(f.hosts, b)
					items += len(p.on[b])
					load, cpu = load+p.load[b], cpu+f.m.CPU[b]
				}
			}
			f.steps -= int64(4 * k)
			if len(f.hosts) < 3 || level(load, cpu) >= t {
				continue
			}
			any = true
			if f.repack(p, f.hosts, t) {
				return true
			}
		}
		if !any && k > 4 {
			k = h
		}
	}
}

// maxRepack is how much work one try of repack may be.
const maxRepack = 8000

// repack looks for another packing of the hosts' VMs with all levels below t.
func (f *finder) repack(p *placement, hosts []int32, t float64) bool {
	m := f.m
	f.vms, f.roomW, f.roomM = f.vms[:0], f.roomW[:0], f.roomM[:0]
	money := p.cost
	for _, j := range hosts {
		for _, vm := range p.on[j] {
			money -= m.cost(vm, j)
		}
		f.vms = append(f.vms, p.on[j]...)
		f.roomW = append(f.roomW, under(m.CPU[j], t, false))
		f.roomM = append(f.roomM, m.Memory[j])
	}
	f.pack.load(m, f.vms, hosts, f.roomW, f.roomM)
	f.pack.money = money
	limit := min(f.steps, maxRepack)
	left := limit
	found := f.pack.solve(&left, f.stop)
	f.steps -= limit - max(0, left) + int64(8*len(f.vms))
	if !found {
		return false
	}
	for i, vm := range f.pack.vms {
		p.move(vm, f.pack.hosts[f.pack.assign[i]])
	}
	return true
}

// note keeps the placement if it is the best that costs at most f.within.
func (f *finder) note(p *placement, t float64) {
	if f.within >= 0 && p.cost <= f.within && (f.near == nil || t < f.nearLevel) {
		f.near, f.nearLevel = append(f.near[:0], p.host...), t
	}
}
