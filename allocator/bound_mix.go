package allocator

import (
	"cmp"
	"math"
	"slices"
)

// The bound by the mix of CPU and memory, for hosts that differ.
//
// At minimum yield Y a VM with need (a, m) takes at least (Y a, m) of its host. For every r > 0 the function
// min(r x, y) is superadditive in the vector (x, y), so the VMs of a host with (C, M) have
//
//	sum min(r Y a, m) <= min(r C, M)
//
// and the sums over all VMs and all hosts, G(r Y) and K(r), have G(r Y) <= K(r). Together with sum Y a <= sum C and
// sum m <= sum M these inequalities are equivalent to the relaxation in which a VM may be split over hosts, each
// part with CPU and memory in proportion: its dual solutions are the concave functions that are monotone and
// homogeneous of degree 1, and these are the nonnegative combinations of min(r x, y), x and y. The relaxation of
// eq. 3-11 with unequal hosts is weaker: it lets a VM have its CPU on one host and its memory on another.
// The same holds of part of the hosts and those VMs that fit on no other host (Hall's condition). The parts are
// the hosts above some CPU, or above some memory.

// mixCells is the number of groups, or of hosts, up to which each is a cell by itself. Above it, those of about the
// same size and mix share a cell.
const mixCells = 1024

// mixParts is the most limits of CPU, and of memory, at which hosts are divided into parts.
const mixParts = 24

// mixed is hosts, or VMs, of about the same mix.
type mixed struct {
	ratio       float64 // memory over CPU; of VMs that are taken together none has more
	cpu, memory float64 // sums
	// Of one of them: of hosts no less than any has, of VMs no more.
	oneCPU, oneMemory float64
}

// mix finds the bound.
type mix struct {
	hosts, vms []mixed     // ratios ascending
	parts      []hostsPart // the first is all hosts

	maxCPU, maxMemory float64 // of a VM
	rounding          float64 // by which share a sum, or a quotient of two, may be wrong

	// scratch of one part
	inHosts, inVMs     []int32
	cpuBehind, cpuLeft []float64 // [of the part]: CPU of the hosts, of the VMs, with a higher ratio
}

// hostsPart is the hosts that have more than this CPU and this memory.
type hostsPart struct {
	overCPU, overMemory float64
	otherCPU            float64 // the greatest of the hosts that are left out
	otherMemory         float64
}

// mixBound returns an upper bound on the minimum yield, at most the bound given. Where it proves that memory is
// too small at any yield it lowers the bound no further: ProveInfeasible reports this case.
func mixBound(p *Problem, bound float64) float64 {
	if !(bound > 0) || !mixMatters(p, bound) {
		return bound
	}
	bound = fitBound(p, bound)
	x := newMix(p)
	if len(x.vms) == 0 || len(x.hosts) == 0 {
		return bound
	}
	// A placement has a yield below y, or of at most at(y), which does not rise with y. So the bound lies between
	// lo and hi, and hi is proved.
	hi := bound
	lo := x.below(hi)
	if lo >= hi {
		return bound
	}
	y := lo
	for range mixRounds {
		if b := x.at(y); b <= y {
			lo, hi = max(lo, b), y
			y = lo + (hi-lo)/2
		} else {
			lo = y
			if y = lo + (hi-lo)/2; b < hi {
				hi = b
				y = max(lo, hi*(1-mixNear)) // mostly no other VMs are in question
			}
		}
		if hi-lo <= mixNear*hi {
			break
		}
	}
	if !(hi > 0) {
		return bound
	}
	return min(bound, hi*(1+x.rounding))
}

// The bound is looked for in so many steps at most, to within this share.
const (
	mixRounds = 60
	mixNear   = 1e-10
)

// fitBound is an upper bound on the minimum yield, at most the one given: each VM has at most the CPU of one of the hosts with
// its memory.
func fitBound(p *Problem, bound float64) float64 {
	hosts := slices.Clone(p.Hosts)
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Compare(b.Memory, a.Memory) })
	first := hosts[0].CPU // any VM that fits at all fits there, by memory
	for j := 1; j < len(hosts); j++ {
		hosts[j].CPU = max(hosts[j].CPU, hosts[j-1].CPU)
	}
	for g := range p.Groups {
		v := &p.Groups[g]
		if v.Count == 0 || bound*v.CPU <= first {
			continue
		}
		with, _ := slices.BinarySearchFunc(hosts, v.Memory, func(h Host, m float64) int {
			if h.Memory*(1+provedSlack) >= m {
				return -1
			}
			return 1
		})
		if with > 0 {
			bound = min(bound, outwards(hosts[with-1].CPU/v.CPU))
		}
	}
	return bound
}

// mixMatters says whether the bound can be lowered: where all hosts have the same mix, and take any VM, it is the sums.
func mixMatters(p *Problem, bound float64) bool {
	if len(p.Hosts) == 0 {
		return false
	}
	first, same, smallest := &p.Hosts[0], true, p.Hosts[0]
	for j := range p.Hosts {
		h := &p.Hosts[j]
		same = same && h.CPU*first.Memory == h.Memory*first.CPU
		smallest.CPU, smallest.Memory = min(smallest.CPU, h.CPU), min(smallest.Memory, h.Memory)
	}
	if !same {
		return true
	}
	for g := range p.Groups {
		if v := &p.Groups[g]; v.Count > 0 && (bound*v.CPU > smallest.CPU || v.Memory > smallest.Memory) {
			return true
		}
	}
	return false
}

func newMix(p *Problem) *mix {
	x := &mix{}
	var top mixed // the greatest ratio and CPU of a host that has CPU
	for j := range p.Hosts {
		if h := &p.Hosts[j]; h.CPU > 0 {
			top.ratio, top.cpu = max(top.ratio, h.Memory/h.CPU), max(top.cpu, h.CPU)
		}
	}
	x.hosts = hostCells(top, len(p.Hosts), func(j int) mixed {
		h := &p.Hosts[j]
		return mixed{ratio(h.Memory, h.CPU), h.CPU, h.Memory, h.CPU, h.Memory}
	})
	x.vms = vmCells(top, len(p.Groups), func(g int) mixed {
		v := &p.Groups[g]
		n := float64(v.Count)
		return mixed{ratio(v.Memory, v.CPU), n * v.CPU, n * v.Memory, v.CPU, v.Memory}
	})
	for i := range x.vms {
		x.maxCPU, x.maxMemory = max(x.maxCPU, x.vms[i].oneCPU), max(x.maxMemory, x.vms[i].oneMemory)
	}
	x.rounding = float64(len(p.Groups)+len(p.Hosts)+16) * 0x1p-52
	x.parts = partsOf(x.hosts)
	return x
}

func ratio(memory, cpu float64) float64 {
	if cpu > 0 {
		return memory / cpu
	}
	return math.Inf(1)
}

// hostCells takes hosts together where there are many. They count as one with all that they have, which does not make
// the bound lower than it is: a sum of minima is at most the minimum of the sums.
func hostCells(top mixed, n int, host func(j int) mixed) []mixed {
	hosts := inCells(top, n, host, math.Max)
	if n > mixCells {
		for j := range hosts {
			hosts[j].ratio = ratio(hosts[j].memory, hosts[j].cpu)
		}
	}
	sortByRatio(hosts)
	return hosts
}

// vmCells takes VMs together where there are many. Their ratio is the upper end of the step, so that all VMs up to a
// ratio are those before it. Above the ratios of all hosts, where G need not be known, it is infinite.
func vmCells(top mixed, n int, vm func(g int) mixed) []mixed {
	vms := inCells(top, n, vm, math.Min)
	if n > mixCells {
		for i := range vms {
			switch r := vms[i].ratio; {
			case r > top.ratio:
				vms[i].ratio = math.Inf(1)
			case r > 0:
				vms[i].ratio = math.Float64frombits((math.Float64bits(r)>>ratioStep + 1) << ratioStep)
			}
		}
	}
	sortByRatio(vms)
	return vms
}

func sortByRatio(all []mixed) {
	slices.SortFunc(all, func(a, b mixed) int { return cmp.Compare(a.ratio, b.ratio) })
}

// Bits of a number that are not looked at: 32 steps to an octave of ratios, 4 to one of CPU.
const (
	ratioStep = 52 - 5
	cpuStep   = 52 - 2
)

// inCells is all that has CPU or memory: one by one, of more than mixCells what has the same steps of
// ratio, for 32 octaves below the top, and of CPU, for 8 octaves, together.
func inCells(top mixed, n int, get func(i int) mixed, one func(a, b float64) float64) []mixed {
	if n <= mixCells {
		out := make([]mixed, 0, n)
		for i := range n {
			if a := get(i); a.cpu > 0 || a.memory > 0 {
				out = append(out, a)
			}
		}
		return out
	}
	const ratios, sizes = 32 * 32, 4 * 8
	step := func(top, x float64, bits, limit int) int {
		if x > top {
			return 0
		}
		return 1 + min(limit-2, int(math.Float64bits(top)>>bits-math.Float64bits(x)>>bits))
	}
	var cell [ratios * sizes]int32 // index into out, 1 more
	var out []mixed
	for i := range n {
		a := get(i)
		if !(a.cpu > 0 || a.memory > 0) {
			continue
		}
		k := step(top.ratio, a.ratio, ratioStep, ratios)*sizes + step(top.cpu, a.oneCPU, cpuStep, sizes)
		if cell[k] == 0 {
			out = append(out, a)
			cell[k] = int32(len(out))
			continue
		}
		o := &out[cell[k]-1]
		o.ratio = max(o.ratio, a.ratio)
		o.cpu += a.cpu
		o.memory += a.memory
		o.oneCPU, o.oneMemory = one(o.oneCPU, a.oneCPU), one(o.oneMemory, a.oneMemory)
	}
	return out
}

// partsOf are the parts of hosts to ask for.
func partsOf(hosts []mixed) []hostsPart {
	parts := []hostsPart{{-1, -1, -1, -1}}
	limits := func(of func(*mixed) float64) []float64 {
		var all []float64
		for j := range hosts {
			all = append(all, of(&hosts[j]))
		}
		slices.Sort(all)
		all = slices.Compact(all)
		if len(all) > 0 {
			all = all[:len(all)-1] // above the greatest is no host
		}
		if n := len(all); n > mixParts {
			for i := range mixParts {
				all[i] = all[i*(n-1)/(mixParts-1)]
			}
			all = all[:mixParts]
		}
		return all
	}
	cpu := func(h *mixed) float64 { return h.oneCPU }
	memory := func(h *mixed) float64 { return h.oneMemory }
	for _, c := range limits(cpu) {
		parts = append(parts, hostsPart{overCPU: c, overMemory: -1})
	}
	for _, m := range limits(memory) {
		parts = append(parts, hostsPart{overCPU: -1, overMemory: m})
	}
	for i := range parts[1:] {
		q := &parts[1+i]
		for j := range hosts {
			if h := &hosts[j]; !q.has(h) {
				q.otherCPU, q.otherMemory = max(q.otherCPU, h.oneCPU), max(q.otherMemory, h.oneMemory)
			}
		}
	}
	return parts
}

func (q *hostsPart) has(h *mixed) bool { return h.oneCPU > q.overCPU && h.oneMemory > q.overMemory }

// at is a yield that no placement of yield y or more passes.
func (x *mix) at(y float64) float64 {
	b := math.Inf(1)
	for i := range x.parts {
		b = min(b, x.of(&x.parts[i], y))
	}
	return b
}

// below is at, and forgets the parts that do not lower a bound of y: of lesser yields they say no more.
func (x *mix) below(y float64) float64 {
	lowest := math.Inf(1)
	x.parts = slices.DeleteFunc(x.parts, func(q hostsPart) bool {
		b := x.of(&q, y)
		lowest = min(lowest, b)
		return b >= y
	})
	return lowest
}

// of is at by one part of the hosts.
func (x *mix) of(q *hostsPart, y float64) float64 {
	if q.otherCPU >= 0 && y*x.maxCPU <= q.otherCPU && x.maxMemory <= q.otherMemory {
		return math.Inf(1) // each fits elsewhere
	}
	x.inVMs = x.inVMs[:0]
	var cpu, memory float64
	minCPU, minMemory := math.Inf(1), math.Inf(1)
	for i := range x.vms {
		// Those that fit on no other host.
		v := &x.vms[i]
		if q.otherCPU < 0 || y*v.oneCPU > q.otherCPU*(1+x.rounding) || v.oneMemory > q.otherMemory*(1+provedSlack) {
			x.inVMs = append(x.inVMs, int32(i))
			cpu += v.cpu
			memory += v.memory
			minCPU, minMemory = min(minCPU, v.oneCPU), min(minMemory, v.oneMemory)
		}
	}
	if len(x.inVMs) == 0 {
		return math.Inf(1)
	}
	x.inHosts = x.inHosts[:0]
	var hasCPU, hasMemory float64
	for j := range x.hosts {
		// Hosts on which none of them fits are of no use.
		h := &x.hosts[j]
		if q.has(h) && y*minCPU <= h.oneCPU*(1+x.rounding) && minMemory <= h.oneMemory*(1+provedSlack) {
			x.inHosts = append(x.inHosts, int32(j))
			hasCPU += h.cpu
			hasMemory += h.memory
		}
	}
	if memory > hasMemory*(1+provedSlack+x.rounding) {
		return 0
	}
	if !(cpu > 0) {
		return math.Inf(1)
	}
	x.cpuLeft, x.cpuBehind = x.behind(x.cpuLeft, x.vms, x.inVMs), x.behind(x.cpuBehind, x.hosts, x.inHosts)
	return min(hasCPU/cpu*(1+x.rounding), x.merge())
}

// behind is [i] the CPU of all behind i.
func (x *mix) behind(sums []float64, of []mixed, in []int32) []float64 {
	sums = slices.Grow(sums[:0], len(in))[:len(in)]
	sum := 0.0
	for i := len(in) - 1; i >= 0; i-- {
		sums[i] = sum
		sum += of[in[i]].cpu
	}
	return sums
}

// merge is the least s/r of all s at which G bends, where K(r) = G(s).
func (x *mix) merge() float64 {
	b := math.Inf(1)
	var g, k float64 // memory of VMs, of hosts, with ratios up to where we are
	j, left := 0, 0.0
	if len(x.inHosts) > 0 {
		left = x.cpuBehind[0] + x.hosts[x.inHosts[0]].cpu
	}
	for i, vm := range x.inVMs {
		v := &x.vms[vm]
		g += v.memory
		if !(v.ratio > 0) || math.IsInf(v.ratio, 1) || i+1 < len(x.inVMs) && x.vms[x.inVMs[i+1]].ratio == v.ratio {
			continue
		}
		need := (g + v.ratio*x.cpuLeft[i]) * (1 - provedSlack - x.rounding)
		for j < len(x.inHosts) {
			h := &x.hosts[x.inHosts[j]]
			if h.cpu > 0 && k+h.ratio*left >= need {
				break
			}
			if h.cpu > 0 {
				k += h.memory
			}
			left = x.cpuBehind[j]
			j++
		}
		switch {
		case left > 0:
			if need > k {
				b = min(b, v.ratio*left/(need-k))
			}
		case need > k:
			return 0
		}
	}
	return b
}
