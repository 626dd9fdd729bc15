package allocator

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Bound is min(1, total CPU / total need), rounded up: no placement has a
// greater minimum yield. With equal hosts, no need above one host, and enough
// memory in sum it is the value of the rational relaxation (sec. 3.1). It is 1
// for a malformed problem.
func Bound(p Problem) float64 {
	var cpu, need sum
	for j := range p.Hosts {
		cpu.add(p.Hosts[j].CPU)
	}
	for g := range p.Groups {
		need.add(float64(p.Groups[g].Count) * p.Groups[g].CPU)
	}
	if !(need.value() > 0) {
		return 1
	}
	if b := outwards(cpu.value() / need.value()); b < 1 {
		return b
	}
	return 1
}

// UpperBound is at most Bound. It also counts: of all VMs that need at least
// CPU a, a host of CPU C takes at most C/(y a) at yield y, rounded down. And
// where hosts differ it compares the mix of CPU and memory.
func UpperBound(p Problem) float64 { return mixBound(&p, countBound(&p)) }

func countBound(p *Problem) float64 {
	bound := Bound(*p)
	caps := capacitiesOf(p.Hosts, func(h *Host) float64 { return h.CPU })
	const slack = 1e-12
	size := func(g int) float64 { return p.Groups[g].CPU }
	fits := func(a float64, vms int) bool { return caps.take(vms, bound*a, slack) }
	eachShort(p.Groups, size, fits, func(a float64, vms int) bool {
		lo, hi := 0.0, bound
		for hi-lo > 1e-13*hi {
			if mid := lo + (hi-lo)/2; mid <= lo || mid >= hi {
				break
			} else if caps.take(vms, mid*a, slack) {
				lo = mid
			} else {
				hi = mid
			}
		}
		bound = min(bound, outwards(hi))
		return true
	})
	return bound
}

// eachShort goes through the sizes of VMs, greatest first. It calls short for each size whose VMs,
// together with all larger ones, do not fit by fits, until short returns false. fits must be
// monotone: what fits must also fit with fewer or smaller VMs. Most sizes are passed over in
// groups: eachShort asks fits once for all VMs of about a size, as if they were a little larger.
func eachShort(groups []Group, size func(g int) float64, fits func(size float64, vms int) bool, short func(size float64, vms int) bool) {
	if len(groups) <= fewGroups {
		eachShortOfFew(groups, size, fits, short)
		return
	}
	// The bits of a positive number rise with it: exponent, then 8 bits of fraction.
	const shift = 52 - 8
	const steps = 1 << 12 // 16 octaves; in the last step is all that is smaller
	limit := uint64(0)
	for g := range groups {
		if x := size(g); x > 0 && groups[g].Count > 0 {
			limit = max(limit, math.Float64bits(x)>>shift)
		}
	}
	step := func(x float64) int { return int(min(steps-1, limit-math.Float64bits(x)>>shift)) }
	var vms [steps]int
	for g := range groups {
		if x := size(g); x > 0 && groups[g].Count > 0 {
			vms[step(x)] += groups[g].Count
		}
	}
	// Few steps do not fit as a whole. Their VMs, and those of the 63 steps behind, are gathered and
	// checked size by size.
	var items []sized
	before := 0
	for k := 0; k < steps; k++ {
		if vms[k] == 0 || fits(math.Float64frombits((limit-uint64(k)+1)<<shift), before+vms[k]) {
			before += vms[k]
			continue
		}
		end := min(steps, k+64)
		items = items[:0]
		for g := range groups {
			if x := size(g); x > 0 && groups[g].Count > 0 && step(x) >= k && step(x) < end {
				items = append(items, sized{x, groups[g].Count})
			}
		}
		slices.SortFunc(items, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
		for i := range items {
			before += items[i].n
			if i+1 < len(items) && items[i+1].size == items[i].size {
				continue
			}
			if !fits(items[i].size, before) && !short(items[i].size, before) {
				return
			}
		}
		k = end - 1
	}
}

// sized is VMs of one size.
type sized struct {
	size float64
	n    int
}

// fewGroups is up to how many groups it is quickest to ask size by size.
const fewGroups = 32

func eachShortOfFew(groups []Group, size func(g int) float64, fits func(size float64, vms int) bool, short func(size float64, vms int) bool) {
	var room [fewGroups]sized
	items := room[:0]
	for g := range groups {
		x := size(g)
		if !(x > 0) || groups[g].Count <= 0 {
			continue
		}
		items = append(items, sized{})
		k := len(items) - 1
		for ; k > 0 && items[k-1].size < x; k-- {
			items[k] = items[k-1]
		}
		items[k] = sized{x, groups[g].Count}
	}
	vms := 0
	for i := range items {
		vms += items[i].n
		if i+1 < len(items) && items[i+1].size == items[i].size {
			continue
		}
		if !fits(items[i].size, vms) && !short(items[i].size, vms) {
			return
		}
	}
}

// outwards rounds up by more than the quotient of two sums can be wrong.
func outwards(x float64) float64 { return x * (1 + 1e-14) }

// sum adds with the lost digits kept (Neumaier 1974).
type sum struct{ high, low float64 }

func (s *sum) add(x float64) {
	t := s.high + x
	if math.Abs(s.high) >= math.Abs(x) {
		s.low += (s.high - t) + x
	} else {
		s.low += (x - t) + s.high
	}
	s.high = t
}

func (s *sum) value() float64 { return s.high + s.low }

// capacities are the amounts of something that hosts have.
type capacities struct {
	amount []float64 // distinct, ascending
	hosts  []int     // [amount]: hosts with at most that much
	sum    float64   // of all hosts
}

func capacitiesOf(hosts []Host, amount func(*Host) float64) capacities {
	all := make([]float64, len(hosts))
	var c capacities
	inOrder := true
	for j := range hosts {
		all[j] = amount(&hosts[j])
		c.sum += all[j]
		inOrder = inOrder && (j == 0 || all[j] >= all[j-1])
	}
	if !inOrder {
		slices.Sort(all)
	}
	for j, a := range all {
		if j == 0 || all[j-1] != a {
			c.amount, c.hosts = append(c.amount, a), append(c.hosts, 0)
		}
		c.hosts[len(c.hosts)-1] = j + 1
	}
	return c
}

// take says whether room is at least vms.
func (c *capacities) take(vms int, size, slack float64) bool {
	if len(c.amount) == 0 {
		return vms == 0
	}
	n := float64(c.hosts[len(c.hosts)-1])
	// Rounding down costs less than one VM per host.
	if c.sum*(1-1e-9)/size-n >= float64(vms) {
		return true
	}
	return c.room(size, slack) >= float64(vms)
}

// room is how many VMs of a size the hosts take at most, with limits wider
// by a share of slack.
func (c *capacities) room(size, slack float64) float64 {
	if size <= 0 {
		return math.Inf(1)
	}
	kinds := len(c.amount)
	if kinds == 0 {
		return 0
	}
	n := 0.0
	// Host by host, or for one VM, two, three and so on the hosts that take as many.
	if highest := c.amount[kinds-1] * (1 + slack) / size; kinds < 32 || highest*4*float64(bits.Len(uint(kinds))) > float64(kinds) {
		less := 0
		for k, a := range c.amount {
			n += float64(c.hosts[k]-less) * math.Floor(a*(1+slack)/size)
			less = c.hosts[k]
		}
		return n
	}
	from := 0
	for q := 1.0; ; q++ {
		at, _ := slices.BinarySearchFunc(c.amount[from:], q, func(a, q float64) int { return cmp.Compare(math.Floor(a*(1+slack)/size), q) })
		if from += at; from == kinds {
			return n
		}
		less := 0
		if from > 0 {
			less = c.hosts[from-1]
		}
		n += float64(c.hosts[kinds-1] - less)
	}
}

// provedSlack widens the limits where something is proved impossible: a
// check of placements with limits this wide must find none either.
const provedSlack = 1e-9

// ProveInfeasible says why no placement of all VMs of p can exist, "" if it
// finds no proof (which proves nothing). It proves by memory: in sum, and by
// counting for each size how many VMs of at least that size the hosts take;
// and, for MinYield, by CPU at that yield in the same two ways.
func ProveInfeasible(p Problem) string { return proveInfeasible(&p, tenancyOf(p.Groups)) }

func proveInfeasible(p *Problem, t tenancy) string {
	if s := proveTooMuch(p, "memory", func(h *Host) float64 { return h.Memory }, func(g int) float64 { return p.Groups[g].Memory }); s != "" {
		return s
	}
	if !slices.ContainsFunc(t.floor, func(y float64) bool { return y > 0 }) {
		return ""
	}
	return proveTooMuch(p, "CPU at the least yield", func(h *Host) float64 { return h.CPU }, func(g int) float64 { return t.floor[t.of[g]] * p.Groups[g].CPU })
}

func proveTooMuch(p *Problem, what string, amount func(*Host) float64, size func(g int) float64) (why string) {
	var have, want sum
	for j := range p.Hosts {
		have.add(amount(&p.Hosts[j]))
	}
	for g := range p.Groups {
		want.add(float64(p.Groups[g].Count) * size(g))
	}
	if want.value() > have.value()*(1+provedSlack) {
		return fmt.Sprintf("the VMs need %.6g of %s in sum, the hosts have %.6g", want.value(), what, have.value())
	}
	caps := capacitiesOf(p.Hosts, amount)
	fits := func(a float64, vms int) bool { return caps.take(vms, a, provedSlack) }
	eachShort(p.Groups, size, fits, func(a float64, vms int) bool {
		why = fmt.Sprintf("%d VMs need at least %.6g of %s each, the hosts take %.0f of them", vms, a, what, caps.room(a, provedSlack))
		return false
	})
	return why
}
