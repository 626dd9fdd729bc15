package allocator

import (
	"cmp"
	"fmt"
	"math"
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
// CPU a, a host of CPU C takes at most C/(y a) at yield y, rounded down.
func UpperBound(p Problem) float64 {
	bound := Bound(p)
	groups := make([]int, 0, len(p.Groups))
	for g := range p.Groups {
		if p.Groups[g].Count > 0 && p.Groups[g].CPU > 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b int) int { return cmp.Compare(p.Groups[b].CPU, p.Groups[a].CPU) })
	caps := capacities(p.Hosts, func(h *Host) float64 { return h.CPU })
	vms := 0
	for k, g := range groups {
		vms += p.Groups[g].Count
		a := p.Groups[g].CPU
		if k+1 < len(groups) && p.Groups[groups[k+1]].CPU == a {
			continue
		}
		fits := func(y float64) bool { return roomFor(caps, y*a, 1e-12) >= float64(vms) }
		if fits(bound) {
			continue
		}
		lo, hi := 0.0, bound
		for hi-lo > 1e-13*hi {
			if mid := lo + (hi-lo)/2; mid <= lo || mid >= hi {
				break
			} else if fits(mid) {
				lo = mid
			} else {
				hi = mid
			}
		}
		bound = min(bound, outwards(hi))
	}
	return bound
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

// capacity is a number of hosts with an equal amount of something.
type capacity struct {
	amount float64
	hosts  int
}

func capacities(hosts []Host, amount func(*Host) float64) []capacity {
	all := make([]float64, len(hosts))
	for j := range hosts {
		all[j] = amount(&hosts[j])
	}
	slices.Sort(all)
	var caps []capacity
	for _, a := range all {
		if n := len(caps); n > 0 && caps[n-1].amount == a {
			caps[n-1].hosts++
		} else {
			caps = append(caps, capacity{a, 1})
		}
	}
	return caps
}

// roomFor is how many VMs of a size the hosts take at most, with limits wider
// by a share of slack.
func roomFor(caps []capacity, size, slack float64) float64 {
	if size <= 0 {
		return math.Inf(1)
	}
	n := 0.0
	for _, c := range caps {
		n += float64(c.hosts) * math.Floor(c.amount*(1+slack)/size)
	}
	return n
}

// provedSlack widens the limits where something is proved impossible: whoever
// checks a placement with limits this wide must find none either.
const provedSlack = 1e-9

// ProveInfeasible says why no placement of all VMs of p can exist, "" if it
// finds no proof (which proves nothing). It proves by memory: in sum, and by
// counting for each size how many VMs of at least that size the hosts take;
// and, for MinYield, by CPU at that yield in the same two ways.
func ProveInfeasible(p Problem) string {
	t := tenancyOf(p.Groups)
	if s := proveTooMuch(&p, "memory", func(h *Host) float64 { return h.Memory }, func(g int) float64 { return p.Groups[g].Memory }); s != "" {
		return s
	}
	return proveTooMuch(&p, "CPU at the least yield", func(h *Host) float64 { return h.CPU }, func(g int) float64 { return t.floor[t.of[g]] * p.Groups[g].CPU })
}

func proveTooMuch(p *Problem, what string, amount func(*Host) float64, size func(g int) float64) string {
	var have, want sum
	for j := range p.Hosts {
		have.add(amount(&p.Hosts[j]))
	}
	groups := make([]int, 0, len(p.Groups))
	for g := range p.Groups {
		want.add(float64(p.Groups[g].Count) * size(g))
		if p.Groups[g].Count > 0 && size(g) > 0 {
			groups = append(groups, g)
		}
	}
	if want.value() > have.value()*(1+provedSlack) {
		return fmt.Sprintf("the VMs need %.6g of %s in sum, the hosts have %.6g", want.value(), what, have.value())
	}
	slices.SortFunc(groups, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	caps := capacities(p.Hosts, amount)
	vms := 0
	for _, g := range groups {
		vms += p.Groups[g].Count
		if room := roomFor(caps, size(g), provedSlack); room < float64(vms) {
			return fmt.Sprintf("%d VMs need at least %.6g of %s each, the hosts take %.0f of them", vms, size(g), what, room)
		}
	}
	return ""
}
