package allocator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// refuse says why the request does not fit: a.place has failed.
func (a *admission) refuse() Admission {
	r := Admission{Asked: a.asked, LeastYield: a.leastYield(), NeverFits: a.neverFits()}
	a.needAt(0)
	if over := a.overInPlace(); slices.Contains(over, true) {
		r.Reasons = a.reasonsInPlace(over)
		r.Summary = fmt.Sprintf("the VMs on %s would need more than there is", hostNames(a.p.Hosts, over))
	} else {
		a.packMost()
		r.Fits = a.asked - a.pk.total
		r.Reasons = a.reasonsForMore()
		r.Summary = a.summary(r.Fits)
	}
	if r.NeverFits {
		r.Summary += ", and would not fit if all hosts were empty"
	}
	r.Advice = a.advice()
	return r
}

// overInPlace marks the hosts that cannot give their VMs the least yields, or
// have not the memory for them.
func (a *admission) overInPlace() []bool {
	over := make([]bool, len(a.p.Hosts))
	a.pk.begin(a.need)
	for j := range over {
		h := &a.p.Hosts[j]
		over[j] = !a.pk.exempt[j] && (a.pk.freeCPU[j] < -roundingSlack*h.CPU || a.pk.memory[j] < -roundingSlack*h.Memory)
	}
	return over
}

func (a *admission) reasonsInPlace(over []bool) []HostReason {
	reasons := make([]HostReason, len(a.p.Hosts))
	for j := range reasons {
		h := &a.p.Hosts[j]
		r := &reasons[j]
		r.Host, r.Cordoned = hostName(a.p.Hosts, j), h.Cordoned
		if !over[j] {
			r.Text = "its VMs fit"
			continue
		}
		r.CPUMissing = missing(0, a.pk.freeCPU[j], h.CPU)
		r.MemoryMissing = missing(0, a.pk.memory[j], h.Memory)
		r.Text = fmt.Sprintf("lacks %s for the VMs it has", lack(r))
	}
	return reasons
}

// missing is how much of want is not free, 0 if the difference is rounding.
func missing(want, free, capacity float64) float64 {
	if m := want - free; m > roundingSlack*capacity {
		return m
	}
	return 0
}

func lack(r *HostReason) string {
	var s []string
	if r.CPUMissing > 0 {
		s = append(s, coresText(r.CPUMissing)+" of CPU")
	}
	if r.MemoryMissing > 0 {
		s = append(s, sizeText(r.MemoryMissing)+" of memory")
	}
	return strings.Join(s, " and ")
}

// packMost leaves in the packer the attempt at the least yields that places
// the most VMs.
func (a *admission) packMost() {
	fewest := -1
	pack := func(o HostOrder) (differ bool) {
		a.pk.begin(a.need)
		differ = a.pk.arrange(o)
		a.pk.fill(false)
		return differ
	}
	best := 0
	for i, o := range a.pk.orders {
		differ := pack(o)
		if fewest < 0 || a.pk.total < fewest {
			best, fewest = i, a.pk.total
		}
		if !differ {
			return
		}
	}
	pack(a.pk.orders[best])
}

// reasonsForMore says of each host what it lacks for one more VM.
func (a *admission) reasonsForMore() []HostReason {
	g := a.firstLeft()
	need := &a.p.Groups[g]
	here := make([]int, len(a.p.Hosts))
	for _, r := range a.pk.runs {
		here[r.host] += int(r.n)
	}
	reasons := make([]HostReason, len(a.p.Hosts))
	for j := range reasons {
		h := &a.p.Hosts[j]
		r := &reasons[j]
		r.Host, r.Cordoned = hostName(a.p.Hosts, j), h.Cordoned
		r.CPUMissing = missing(a.need[g], a.pk.freeCPU[j], h.CPU)
		r.MemoryMissing = missing(need.Memory, a.pk.freeMemory[j], h.Memory)
		switch {
		case h.Cordoned:
			r.Text = "cordoned: takes no new VM"
		case a.pk.closed[j]:
			r.Text = "takes no new VM: it has too little for the VMs it has"
		case here[j] > 0:
			r.Text = fmt.Sprintf("takes %d of the VMs; lacks %s for one more of %s", here[j], lack(r), groupName(a.p.Groups, g))
		default:
			r.Text = fmt.Sprintf("lacks %s for one VM of %s", lack(r), groupName(a.p.Groups, g))
		}
	}
	return reasons
}

// firstLeft is the first group of which the last packing left VMs over, and
// the first of all if it left none.
func (a *admission) firstLeft() int {
	for i, n := range a.pk.left {
		if n > 0 {
			return a.pk.items[i]
		}
	}
	return 0
}

func (a *admission) summary(fits int) string {
	g := a.firstLeft()
	need := &a.p.Groups[g]
	floor := a.t.floor[a.t.of[g]]
	return fmt.Sprintf("%d of %d VMs fit: one of %s needs %s of CPU (%s at yield %.4g) and %s of memory",
		fits, a.asked, groupName(a.p.Groups, g), coresText(a.need[g]), coresText(need.CPU), floor, sizeText(need.Memory))
}

// neverFits tells whether the clusters of the request are proved not to fit on
// the hosts if these were empty.
func (a *admission) neverFits() bool {
	alone := Problem{Hosts: a.p.Hosts}
	for g := range a.p.Groups {
		if a.request[a.t.of[g]] {
			group := a.p.Groups[g]
			group.MinYield = a.t.floor[a.t.of[g]]
			alone.Groups = append(alone.Groups, group)
		}
	}
	return ProveInfeasible(alone) != ""
}

// advice lists changes to the request each of which alone makes it fit now.
// Every one was tried.
func (a *admission) advice() []string {
	var advice []string
	groups := slices.Clone(a.p.Groups)
	p := *a.p
	p.Groups = groups
	original := a.p
	a.p = &p
	defer func() { a.p = original }()

	for g := range groups {
		if n := a.unplaced[g]; n > 0 {
			k := most(n-1, func(k int) bool {
				a.unplaced[g] = k
				return a.fitsAtFloor()
			})
			a.unplaced[g] = n
			if k > 0 {
				kept := groups[g].Count - n
				advice = append(advice, fmt.Sprintf("at most %s in %s instead of %d", vmsText(kept+k), groupName(groups, g), kept+n))
			}
		}
	}
	for c, members := range a.t.members {
		if !a.request[c] || a.t.floor[c] == 0 {
			continue
		}
		floors := make([]float64, len(members))
		for i, g := range members {
			floors[i] = a.floor[g]
		}
		// Hundredths, so that the figure is one that a user would write.
		const steps = 100
		k := most(int(math.Ceil(a.t.floor[c]*steps))-1, func(k int) bool {
			for _, g := range members {
				a.floor[g] = float64(k) / steps
			}
			return a.fitsAtFloor()
		})
		for i, g := range members {
			a.floor[g] = floors[i]
		}
		if k >= 0 {
			advice = append(advice, fmt.Sprintf("a minYield of at most %g for %s instead of %.4g", float64(k)/steps, clusterName(groups, members), a.t.floor[c]))
		}
	}
	for g := range groups {
		if a.unplaced[g] == 0 && !groups[g].Requested {
			continue
		}
		whole := groups[g].Memory
		step, unit := memoryStep(whole)
		k := most(int(math.Ceil(whole/step))-1, func(k int) bool {
			groups[g].Memory = float64(k) * step
			return a.fitsAtFloor()
		})
		groups[g].Memory = whole
		if k > 0 {
			advice = append(advice, fmt.Sprintf("at most %.6g %s of memory per VM of %s instead of %s", float64(k)*step/unit.size, unit.name, groupName(groups, g), sizeText(whole)))
		}
		if !groups[g].Requested {
			continue // a lower need of CPU is the same as a lower minYield
		}
		whole = groups[g].CPU
		step = max(0.01, whole/1e4)
		k = most(int(math.Ceil(whole/step))-1, func(k int) bool {
			groups[g].CPU = float64(k) * step
			return a.fitsAtFloor()
		})
		groups[g].CPU = whole
		if k > 0 {
			advice = append(advice, fmt.Sprintf("a need of at most %s of CPU per VM of %s instead of %s", coresText(float64(k)*step), groupName(groups, g), coresText(whole)))
		}
	}
	return append(advice, a.hostAdvice()...)
}

// hostAdvice names a cordoned host that would have to be open, and the smallest
// host to add of those there are, each of which alone makes the request fit now.
func (a *admission) hostAdvice() (advice []string) {
	original := a.p
	defer func() { a.p = original }()
	for j := range original.Hosts {
		if !original.Hosts[j].Cordoned || !a.pk.closed[j] || a.pk.exempt[j] {
			continue
		}
		a.pk.closed[j] = false
		fits := a.fitsAtFloor()
		a.pk.closed[j] = true
		if fits {
			advice = append(advice, "uncordon host "+hostName(original.Hosts, j))
			break
		}
	}
	kinds := make([]int, 0, len(original.Hosts))
	for j := range original.Hosts {
		kinds = append(kinds, j)
	}
	size := func(j int) (cpu, memory float64) { return original.Hosts[j].CPU, original.Hosts[j].Memory }
	slices.SortStableFunc(kinds, func(x, y int) int {
		c, m := size(x)
		d, n := size(y)
		return cmp.Or(cmp.Compare(c, d), cmp.Compare(m, n))
	})
	kinds = slices.CompactFunc(kinds, func(x, y int) bool {
		c, m := size(x)
		d, n := size(y)
		return c == d && m == n
	})
	const most = 8
	for _, j := range kinds[max(0, len(kinds)-most):] {
		p := *original
		more := original.Hosts[j]
		more.Cordoned = false
		p.Hosts = append(slices.Clone(original.Hosts), more)
		a.p = &p
		if a.fitsAtFloor() {
			return append(advice, fmt.Sprintf("one more host like %s (%s, %s)", hostName(original.Hosts, j), coresText(more.CPU), sizeText(more.Memory)))
		}
	}
	return advice
}

// memoryStep is the grain of advice on memory: whole MiB, and the unit to write
// it in, or a hundredth of what is too small to be bytes.
func memoryStep(memory float64) (step float64, unit sizeUnit) {
	const mib = 1 << 20
	if memory >= 2*mib && memory < 1<<50 {
		return mib, sizeUnit{mib, "MiB"}
	}
	return max(memory/100, LeastNumber), sizeUnit{1, "bytes"}
}

type sizeUnit struct {
	size float64
	name string
}

// most is the greatest k in 0..limit for which ok(k), found by bisection, -1 if
// not even ok(0). ok should not become true again with a greater k; where the
// heuristic makes it, the k returned holds still.
func most(limit int, ok func(k int) bool) int {
	if limit < 0 || !ok(0) {
		return -1
	}
	lo, hi := 0, limit+1
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func vmsText(n int) string {
	if n == 1 {
		return "1 VM"
	}
	return strconv.Itoa(n) + " VMs"
}

func coresText(cores float64) string {
	s := strconv.FormatFloat(cores, 'g', 4, 64)
	if s == "1" {
		return "1 core"
	}
	return s + " cores"
}

func sizeText(bytes float64) string {
	for _, u := range []sizeUnit{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}} {
		if bytes >= u.size {
			return strconv.FormatFloat(bytes/u.size, 'g', 4, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(bytes, 'g', 6, 64) + " bytes"
}
