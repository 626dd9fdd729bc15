package search

import (
	"cmp"
	"math"
	"slices"
)

// lowerLevel is a level that no placement is below (as far as weights, and
// memory through which VMs exclude each other, show). It is valid for any
// rules, which can only raise the optimum. If not thorough, it takes of equal hosts only what takes no search.
func (m *Model) lowerLevel(thorough bool) float64 {
	n, h := len(m.Weight), len(m.CPU)
	if n == 0 || h == 0 {
		return 0
	}
	var total, all, limit int64
	for _, w := range m.Weight {
		total += w
	}
	for _, c := range m.CPU {
		all += c
		limit = max(limit, c)
	}
	t := float64(total) / float64(all) * (1 - 1e-15)
	if !uniform(m.CPU) {
		return max(t, countLevel(m, t))
	}
	items := largestFirst(m.Weight)
	w := items.w
	// Equal hosts: an average rounds up to a whole number.
	lo := (total + int64(h) - 1) / int64(h)
	lo = max(lo, w[0])
	lo = max(lo, items.crowded(h))
	// Least load for which the bin packing bounds leave it possible.
	hi := lo
	packs := func(c int64) bool {
		return items.bins(c) <= h && !m.excludes(c, h)
	}
	if thorough && !packs(lo) {
		step := max(1, lo/64)
		for hi = lo + step; !packs(hi) && hi < 64*lo; hi += step {
			lo = hi
			step *= 2
		}
		if packs(hi) {
			for hi-lo > 1 && hi-lo > hi>>40 {
				if mid := lo + (hi-lo)/2; packs(mid) {
					hi = mid
				} else {
					lo = mid
				}
			}
			// lo is proved impossible; a load is a whole number.
			lo++
		}
	}
	return max(t, float64(lo)/float64(limit)*(1-1e-15))
}

func uniform(a []int64) bool {
	for _, x := range a {
		if x != a[0] {
			return false
		}
	}
	return true
}

// countLevel is a bound for hosts that differ: the VMs of at least some weight
// must find room, whole, at level t. known is a bound already.
func countLevel(m *Model, known float64) float64 {
	w := largestFirst(m.Weight).w
	cpu := slices.Clone(m.CPU)
	slices.Sort(cpu)
	var all float64
	var kind []int // cpu[kind[i]:kind[i+1]] are equal
	for j, c := range cpu {
		all += float64(c)
		if j == 0 || cpu[j-1] != c {
			kind = append(kind, j)
		}
	}
	kind = append(kind, len(cpu))
	// room is how many VMs like VM k the hosts take at level t at most, or that
	// it is more than k.
	room := func(t float64, k int) int {
		a := float64(w[k])
		// Rounding down costs less than one VM per host.
		if lowest := all*t/a*(1-1e-9) - float64(len(cpu)); lowest > float64(k+1) {
			return int(min(lowest, float64(len(w))))
		}
		n := 0
		// Hosts of one CPU at a time, or those that take one, two and so on.
		if highest := float64(cpu[len(cpu)-1]) * t / a; highest*4*math.Log2(float64(len(cpu))) > float64(len(kind)) {
			for i := len(kind) - 2; i >= 0 && n <= k+len(cpu); i-- {
				n += (kind[i+1] - kind[i]) * int(float64(cpu[kind[i]])*t/a*(1+1e-12))
			}
			return n
		}
		from := 0
		for q := 1; ; q++ {
			at, _ := slices.BinarySearchFunc(cpu[from:], q, func(c int64, q int) int { return cmp.Compare(int(float64(c)*t/a*(1+1e-12)), q) })
			if from += at; from == len(cpu) {
				return n
			}
			n += len(cpu) - from
		}
	}
	bound := known
	for k := 0; k < len(w) && w[k] > 0 && k <= 4*len(cpu); {
		if k+1 < len(w) && w[k+1] == w[k] && k < 4*len(cpu) {
			k++
			continue
		}
		if bound > 0 {
			if n := room(bound, k); n > k {
				k = n // those between are smaller
				continue
			}
		}
		lo, hi := bound, max(bound, 1e-9)
		for room(hi, k) <= k {
			lo, hi = hi, hi*2
		}
		for i := 0; i < 60 && hi-lo > 1e-13*hi; i++ {
			if mid := (lo + hi) / 2; room(mid, k) > k {
				hi = mid
			} else {
				lo = mid
			}
		}
		bound = lo
		k++
	}
	return bound
}

// sorted is items, largest first, and the sums of all items before each.
type sorted struct{ w, sum []int64 }

func largestFirst(a []int64) sorted {
	n := len(a)
	room := make([]int64, 2*n+1)
	s := sorted{room[:n:n], room[n:]}
	sortDown(s.w, a)
	for i, x := range s.w {
		s.sum[i+1] = s.sum[i] + x
	}
	return s
}

// sortDown puts a into w, largest first: into sections of the range of a that
// hold a few each, if it is spread evenly, which are then sorted.
func sortDown(w, a []int64) {
	n := len(a)
	if n < 1024 {
		copy(w, a)
		slices.Sort(w)
		slices.Reverse(w)
		return
	}
	lowest, limit := slices.Min(a), slices.Max(a)
	sections := n / 4
	per := float64(sections-1) / (float64(limit-lowest) + 1)
	end := make([]int32, sections+1)
	for _, x := range a {
		end[int(float64(limit-x)*per)+1]++
	}
	for k := range sections {
		end[k+1] += end[k]
	}
	for _, x := range a {
		k := int(float64(limit-x) * per)
		w[end[k]] = x
		end[k]++
	}
	from := int32(0)
	for _, to := range end[:sections] {
		if part := w[from:to]; len(part) > 16 {
			slices.Sort(part)
			slices.Reverse(part)
		} else {
			for i := 1; i < len(part); i++ {
				x, k := part[i], i
				for ; k > 0 && part[k-1] < x; k-- {
					part[k] = part[k-1]
				}
				part[k] = x
			}
		}
		from = to
	}
}

// crowded is a load that some of h equal bins must have: of the n largest items
// some k bins hold at least as many as when the items are dealt evenly, k
// floor(n/h) + min(k, n mod h), and no smaller ones than the smallest of the n
// (Haouari, Gharbi and Jemmali 2006).
func (s sorted) crowded(h int) (load int64) {
	for n := h + 1; n <= len(s.w) && n <= 8*h; n++ {
		if h > 512 && n%h != 1 {
			continue
		}
		each, more := n/h, n%h
		// With more bins than there are crowded ones the mean only falls.
		for k := 1; k <= max(1, more); k++ {
			taken := k*each + min(k, more)
			lowest := s.sum[n] - s.sum[n-taken]
			load = max(load, (lowest+int64(k)-1)/int64(k))
			if h > 512 {
				break
			}
		}
	}
	return load
}

// bins is the bound L2 of Martello and Toth (1990) on the bins of capacity c
// that the items need.
func (s sorted) bins(c int64) int {
	w, sum := s.w, s.sum
	n := len(w)
	if n == 0 {
		return 0
	}
	if w[0] > c {
		return math.MaxInt
	}
	at := func(x int64) int { // items greater than x
		lo, hi := 0, n
		for lo < hi {
			if mid := (lo + hi) / 2; w[mid] > x {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo
	}
	half := at(c / 2)
	if half == 0 {
		if sum[n] == 0 {
			return 0
		}
		return int((sum[n] + c - 1) / c)
	}
	best := 0
	last := int64(-1)
	for i := n; i >= half; i-- {
		// Items of at least a count; those above c-a stand alone.
		a := int64(0)
		if i < n {
			a = w[i]
		} else if sum[n] == 0 {
			return 0
		}
		if a == last {
			continue
		}
		last = a
		alone := at(c - a)
		from := i
		for from < n && w[from] == a {
			from++
		}
		if i == n {
			from = n
		}
		if from < half {
			from = half
		}
		alone = min(alone, half)
		over := sum[from] - sum[half] - (int64(half-alone)*c - (sum[half] - sum[alone]))
		need := half
		if over > 0 {
			need += int((over + c - 1) / c)
		}
		best = max(best, need)
	}
	return best
}

// excludes says whether h equal hosts with load at most c are too few because
// of VMs that take more than half of the CPU, or more than half of the memory,
// of a host: each host takes at most one of either, and one VM of each only
// where the two fit together (a greatest matching).
func (m *Model) excludes(c int64, h int) bool {
	if !uniform(m.Memory) {
		return false
	}
	memory := m.Memory[0]
	var heavy, large []int32
	both := 0
	for i := range m.Weight {
		switch w, s := m.Weight[i] > c/2, m.Size[i] > memory/2; {
		case w && s:
			both++
		case w:
			heavy = append(heavy, int32(i))
		case s:
			large = append(large, int32(i))
		}
	}
	if len(heavy)+len(large)+both <= h || len(heavy)*len(large) > 1<<16 {
		return false
	}
	mate := make([]int32, len(large))
	for i := range mate {
		mate[i] = -1
	}
	seen := make([]bool, len(large))
	var grow func(a int32) bool
	grow = func(a int32) bool {
		v := heavy[a]
		for k, u := range large {
			if seen[k] || m.Weight[v]+m.Weight[u] > c || m.Size[v]+m.Size[u] > memory {
				continue
			}
			seen[k] = true
			if mate[k] < 0 || grow(mate[k]) {
				mate[k] = a
				return true
			}
		}
		return false
	}
	matched := 0
	for a := range heavy {
		clear(seen)
		if grow(int32(a)) {
			matched++
		}
	}
	return both+len(heavy)+len(large)-matched > h
}

// NoMemory says whether the memory is proved too small for all VMs: a single
// one, in sum, or by the bin packing bound.
func NoMemory(m *Model) bool {
	var size, room, limit int64
	for _, s := range m.Size {
		size += s
	}
	for _, r := range m.Memory {
		room += r
		limit = max(limit, r)
	}
	if size > room {
		return true
	}
	if len(m.Size) == 0 || uniform(m.Memory) && float64(size) < float64(len(m.Memory))*float64(limit-slices.Max(m.Size)) {
		return false // put anywhere they fit, they all do
	}
	items := largestFirst(m.Size)
	return items.bins(limit) > len(m.Memory) || items.crowded(len(m.Memory)) > limit
}
