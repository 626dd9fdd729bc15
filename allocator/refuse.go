package allocator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/allocator/search"
)

// refuse says why the request does not fit: a.place has failed.
func (a *admission) refuse() Admission {
	r := Admission{Asked: a.asked, TriedMinYield: a.minYield(), NeverFits: a.neverFits()}
	a.needAt(0)
	if over := a.overInPlace(); slices.Contains(over, true) {
		r.Reasons = a.reasonsInPlace(over)
		r.Summary = fmt.Sprintf("the VMs on %s would need more than there is", hostNames(a.p.Hosts, over))
	} else {
		d := a.maximalDeal()
		g := a.firstLeft(d)
		r.Fits = a.asked - d.total
		r.Reasons = a.reasonsForMore(g, d)
		r.Summary = a.summary(g, r.Fits, r.Reasons)
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
		r.Text = fmt.Sprintf("lacks %s for the VMs it has", deficitText(r))
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

func deficitText(r *HostReason) string {
	var s []string
	if r.CPUMissing > 0 {
		s = append(s, coresText(r.CPUMissing)+" of CPU")
	}
	if r.MemoryMissing > 0 {
		s = append(s, sizeText(r.MemoryMissing)+" of memory")
	}
	return strings.Join(s, " and ")
}

// maximalDeal is the attempt at the least yields that places the most VMs.
func (a *admission) maximalDeal() deal {
	if a.ruled != nil {
		a.pk.begin(a.need)
		return a.ruled.placeMaximal(a.pk, a.need, a.unplaced)
	}
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
			break
		}
		if i == len(a.pk.orders)-1 {
			pack(a.pk.orders[best])
		}
	}
	d := deal{cpu: a.pk.freeCPU, memory: a.pk.freeMemory, left: make([]int, len(a.p.Groups)), here: make([]int, len(a.p.Hosts)), total: a.pk.total}
	for i, n := range a.pk.left {
		d.left[a.pk.items[i]] = n
	}
	for _, r := range a.pk.runs {
		d.here[r.host] += int(r.n)
	}
	return d
}

// reasonsForMore says of each host what it lacks for one more VM of group g.
func (a *admission) reasonsForMore(g int, d deal) []HostReason {
	need := &a.p.Groups[g]
	reasons := make([]HostReason, len(a.p.Hosts))
	for j := range reasons {
		h := &a.p.Hosts[j]
		r := &reasons[j]
		r.Host, r.Cordoned = hostName(a.p.Hosts, j), h.Cordoned
		r.CPUMissing = missing(a.need[g], d.cpu[j], h.CPU)
		r.MemoryMissing = missing(need.Memory, d.memory[j], h.Memory)
		rule := ""
		if a.ruled != nil {
			r.Rule, rule = a.ruled.why(g, j, d.on[j])
		}
		deficit := ""
		if r.CPUMissing > 0 || r.MemoryMissing > 0 {
			deficit = "lacks " + deficitText(r)
		}
		switch {
		case h.Cordoned:
			r.Text = "cordoned: takes no new VM"
		case a.pk.closed[j]:
			r.Text = "takes no new VM: it has too little for the VMs it has"
		case rule != "" && deficit != "":
			r.Text = fmt.Sprintf("%s; and it %s for one VM of %s", rule, deficit, groupName(a.p.Groups, g))
		case rule != "":
			r.Text = rule
		case d.here[j] > 0 && deficit != "":
			r.Text = fmt.Sprintf("%s for one more of %s", deficit, groupName(a.p.Groups, g))
		case deficit != "":
			r.Text = fmt.Sprintf("%s for one VM of %s", deficit, groupName(a.p.Groups, g))
		default:
			r.Text = fmt.Sprintf("has room for %s, but not for all that are left", groupName(a.p.Groups, g))
		}
		if d.here[j] > 0 {
			r.Text = fmt.Sprintf("takes %d of the VMs; %s", d.here[j], r.Text)
		}
	}
	return reasons
}

// firstLeft is the first group of which VMs were left over, or, if none were, the
// first of the request.
func (a *admission) firstLeft(d deal) int {
	first := 0
	for g := len(d.left) - 1; g >= 0; g-- {
		if d.left[g] > 0 {
			return slices.IndexFunc(d.left, func(n int) bool { return n > 0 })
		}
		if a.request[a.t.of[g]] {
			first = g
		}
	}
	return first
}

func (a *admission) summary(g, fits int, reasons []HostReason) string {
	need := &a.p.Groups[g]
	floor := a.t.floor[a.t.of[g]]
	s := fmt.Sprintf("%d of %d VMs fit: one of %s needs %s of CPU (%s at yield %.4g) and %s of memory",
		fits, a.asked, groupName(a.p.Groups, g), coresText(a.need[g]), coresText(need.CPU), floor, sizeText(need.Memory))
	ruled := 0
	for j := range reasons {
		if reasons[j].Rule.Kind != NoRefusal && !a.pk.closed[j] {
			ruled++
		}
	}
	switch {
	case ruled == 1:
		s += ", and its rules keep it from 1 host"
	case ruled > 1:
		s += fmt.Sprintf(", and its rules keep it from %d hosts", ruled)
	}
	return s
}

// neverFits says whether the clusters of the request are proved not to fit on
// the hosts if these were empty.
func (a *admission) neverFits() bool {
	alone := Problem{Hosts: withoutVMs(a.p.Hosts)}
	for g := range a.p.Groups {
		if a.request[a.t.of[g]] {
			group := a.p.Groups[g]
			group.MinYield = a.t.floor[a.t.of[g]]
			alone.Groups = append(alone.Groups, group)
		}
	}
	return ProveInfeasible(alone) != "" || a.neverByRules()
}

// neverByRules says whether some group is proved not to fit on the hosts that it may
// run on by name, or beside the VMs of its own cluster that it requires, if the hosts were empty.
func (a *admission) neverByRules() bool {
	if a.ruled == nil {
		return false
	}
	hosts := withoutVMs(a.p.Hosts)
	for g := range a.p.Groups {
		group := a.p.Groups[g]
		if a.unplaced[g] == 0 {
			continue
		}
		if a.neverTogether(g) {
			return true
		}
		group.MinYield, group.Hosts = a.t.floor[a.t.of[g]], nil
		spread := in(a.ruled.apart[g], g)
		if a.ruled.byHost[g] == nil && !spread {
			continue
		}
		alone, places := Problem{Groups: []Group{group}}, 0
		for j, h := range hosts {
			if a.ruled.byHost[g] == nil || in(a.ruled.byHost[g], j) {
				alone.Hosts = append(alone.Hosts, h)
				if group.Memory <= h.Memory*(1+provedSlack) && group.MinYield*group.CPU <= h.CPU*(1+provedSlack) {
					places++
				}
			}
		}
		if len(alone.Hosts) == 0 || ProveInfeasible(alone) != "" || spread && places < group.Count {
			return true
		}
	}
	return false
}

// neverTogether reports whether a VM of group g is proved to fit on no host, even an empty one, together with the VMs that it requires
// there, the VMs that those require, and so on. It counts only required terms vc:... that name groups of g's own virtual cluster alone:
// what a label names may come with another one, or be there already. It proves nothing where VMs of the virtual cluster have hosts:
// what these require does not count any more.
func (a *admission) neverTogether(g int) bool {
	own := a.t.members[a.t.of[g]]
	rules := search.Rules{Apart: a.ruled.apart, With: make([][][]uint64, len(a.p.Groups))}
	for _, o := range own {
		if a.unplaced[o] != a.p.Groups[o].Count {
			return false
		}
		for _, c := range a.ruled.with[o] {
			if strings.HasPrefix(c.term, "vc:") && namesOnly(c.groups, own) {
				rules.With[o] = append(rules.With[o], c.groups)
			}
		}
	}
	if rules.With[g] == nil {
		return false
	}
	hosts, floor := withoutVMs(a.p.Hosts), a.t.floor[a.t.of[g]]
	party, sure := search.Party(int32(g), nil, func(c int32) int { return a.p.Groups[c].Count }, &rules, func(party []int32) bool { //nolint:gosec // MaxVMs bounds groups
		cpu, memory := 0.0, 0.0
		for _, c := range party {
			cpu, memory = cpu+floor*a.p.Groups[c].CPU, memory+a.p.Groups[c].Memory
		}
		for j, h := range hosts {
			shut := func(c int32) bool { return !a.ruled.open(int(c), j, nil) }
			if memory <= h.Memory*(1+provedSlack) && cpu <= h.CPU*(1+provedSlack) && !slices.ContainsFunc(party, shut) {
				return true
			}
		}
		return false
	})
	return party == nil && sure
}

// namesOnly says whether a set names some of those groups and no other.
func namesOnly(set []uint64, groups []int) bool {
	rest, some := slices.Clone(set), false
	for _, g := range groups {
		if in(rest, g) {
			rest[g>>6] &^= 1 << (g & 63)
			some = true
		}
	}
	return some && !slices.ContainsFunc(rest, func(left uint64) bool { return left != 0 })
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
			k := maxTrue(n-1, func(k int) bool {
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
		k := maxTrue(int(math.Ceil(a.t.floor[c]*steps))-1, func(k int) bool {
			for _, g := range members {
				a.floor[g] = float64(k) / steps
			}
			return a.fitsAtFloor()
		})
		for i, g := range members {
			a.floor[g] = floors[i]
		}
		lowest := 0.0
		for _, g := range members {
			lowest = max(lowest, groups[g].RequiredYield)
		}
		// A yield of 0 would be no answer: a VM cannot run without CPU.
		if k > 0 && float64(k)/steps >= lowest {
			advice = append(advice, fmt.Sprintf("a minYield of at most %g for %s instead of %.4g", float64(k)/steps, clusterName(groups, members), a.t.floor[c]))
		}
	}
	for g := range groups {
		if a.unplaced[g] == 0 && !groups[g].Requested {
			continue
		}
		all, overhead := groups[g].Memory, groups[g].Overhead
		whole := max(0, all-overhead)
		step, unit := memoryStep(whole)
		k := maxTrue(int(math.Ceil(whole/step))-1, func(k int) bool {
			groups[g].Memory = float64(k)*step + overhead
			return a.fitsAtFloor()
		})
		groups[g].Memory = all
		if k > 0 && float64(k)*step >= groups[g].MinMemory {
			advice = append(advice, fmt.Sprintf("at most %.6g %s of memory per VM of %s instead of %s", float64(k)*step/unit.size, unit.name, groupName(groups, g), sizeText(whole)))
		}
		if !groups[g].Requested {
			continue // a lower need of CPU is the same as a lower minYield
		}
		whole = groups[g].CPU
		step = max(0.01, whole/1e4)
		k = maxTrue(int(math.Ceil(whole/step))-1, func(k int) bool {
			groups[g].CPU = float64(k) * step
			return a.fitsAtFloor()
		})
		groups[g].CPU = whole
		if k > 0 {
			advice = append(advice, fmt.Sprintf("a need of at most %s of CPU per VM of %s instead of %s", coresText(float64(k)*step), groupName(groups, g), coresText(whole)))
		}
	}
	return append(append(advice, a.ruleAdvice()...), a.hostAdvice()...)
}

// ruleAdvice names rules of the request without each of which alone it would fit now.
func (a *admission) ruleAdvice() (advice []string) {
	if a.ruled == nil {
		return nil
	}
	original := a.rules
	defer func() { a.rules = original }()
	const top = 16
	tries := 0
	try := func(g int, rule string, without Affinity) {
		if tries++; tries > top {
			return
		}
		r := *original
		r.Affinity = slices.Clone(original.Affinity)
		r.Affinity[g] = &without
		a.rules = &r
		if a.fitsAtFloor() {
			advice = append(advice, fmt.Sprintf("%s without %q", groupName(a.p.Groups, g), rule))
		}
	}
	for g, rule := range original.Affinity {
		if rule == nil || a.unplaced[g] == 0 {
			continue
		}
		if rule.Spread != "" {
			without := *rule
			without.Spread = ""
			try(g, "spread host", without)
		}
		for i, term := range rule.Require {
			without := *rule
			without.Require = slices.Delete(slices.Clone(rule.Require), i, i+1)
			try(g, "require "+term, without)
		}
		for i, term := range rule.Avoid {
			without := *rule
			without.Avoid = slices.Delete(slices.Clone(rule.Avoid), i, i+1)
			try(g, "avoid "+term, without)
		}
	}
	return advice
}

// hostAdvice names changes to the hosts, each of which alone makes the request fit now: the first
// cordoned host that would do if it were uncordoned, and one more host like the smallest that
// suffices.
func (a *admission) hostAdvice() (advice []string) {
	original := a.p
	defer func() { a.p = original }()
	for j := range original.Hosts {
		if !original.Hosts[j].Cordoned || original.Hosts[j].Unavailable || !a.pk.closed[j] || a.pk.exempt[j] {
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
	const maxKinds, maxHosts = 8, 64
	fits := func(j, n int) bool {
		p := *original
		more := original.Hosts[j]
		more.Cordoned, more.Name = false, ""
		p.Hosts = slices.Clone(original.Hosts)
		for range n {
			p.Hosts = append(p.Hosts, more)
		}
		a.p = &p
		return a.fitsAtFloor()
	}
	like := func(j int) string {
		h := original.Hosts[j]
		return fmt.Sprintf("like %s (%s, %s)", hostName(original.Hosts, j), coresText(h.CPU), sizeText(h.Memory))
	}
	kinds = kinds[max(0, len(kinds)-maxKinds):]
	for _, j := range kinds {
		if fits(j, 1) {
			return append(advice, "one more host "+like(j))
		}
	}
	// One more host does not suffice: the least number that does of hosts like the largest.
	if j := kinds[len(kinds)-1]; fits(j, maxHosts) {
		n := maxHosts - maxTrue(maxHosts-2, func(k int) bool { return fits(j, maxHosts-k) })
		return append(advice, fmt.Sprintf("%d more hosts %s", n, like(j)))
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
	return max(memory/100, MinNumber), sizeUnit{1, "bytes"}
}

type sizeUnit struct {
	size float64
	name string
}

// maxTrue returns the greatest k in 0..limit for which ok(k), found by bisection; -1 if not even
// ok(0). It assumes that ok is true up to some k and false above. Where the heuristic behind ok
// breaks that, ok is still true for the k returned, but may be true for a greater one, too.
func maxTrue(limit int, ok func(k int) bool) int {
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
