package allocator

import (
	"math"
	"slices"
)

// worth is what a policy compares: greater yields below 1 of virtual clusters, least first; then less weight of hosts in use;
// then greater headrooms, least first.
type worth struct {
	yields    []float64
	used      float64
	headrooms []float64
}

// yields are those of all virtual clusters if each VM of a host has the same; nil: all are 1.
func (x *arrangement) yields() []float64 {
	var yields []float64
	for j := range x.on {
		if x.cpu[j] >= 0 {
			continue
		}
		if yields == nil {
			yields = make([]float64, len(x.p.Groups))
			for c := range yields {
				yields[c] = 1
			}
		}
		level := x.p.Hosts[j].CPU / (x.p.Hosts[j].CPU - x.cpu[j])
		lower := func(g int32) {
			if c := x.of[g]; x.p.Groups[g].CPU > 0 {
				yields[c] = min(yields[c], level)
			}
		}
		for _, s := range x.stay[j] {
			lower(s.group)
		}
		for _, v := range x.on[j] {
			lower(x.movers[v].group)
		}
	}
	return yields
}

func (x *arrangement) worth(weight []float64) worth {
	var w worth
	for _, y := range x.yields() {
		if y < 1 {
			w.yields = append(w.yields, y)
		}
	}
	for j := range x.on {
		if x.closed[j] {
			continue
		}
		if weight != nil {
			if x.empty(j) {
				continue
			}
			w.used += weight[j]
		}
		w.headrooms = append(w.headrooms, x.headroom(int32(j), 0, 0))
	}
	slices.Sort(w.yields)
	slices.Sort(w.headrooms)
	return w
}

// better says whether a is worth more than b.
func (a *worth) better(b *worth) bool {
	differ := func(a, b []float64) float64 {
		for i := range min(len(a), len(b)) {
			if d := a[i] - b[i]; math.Abs(d) > sameHeadroom {
				return d
			}
		}
		return 0
	}
	if d := differ(a.yields, b.yields); d != 0 || len(a.yields) != len(b.yields) {
		return d > 0 || d == 0 && len(a.yields) < len(b.yields)
	}
	if d := b.used - a.used; math.Abs(d) > sameHeadroom {
		return d > 0
	}
	return differ(a.headrooms, b.headrooms) > 0
}

// keepYields has every VM keep what its virtual cluster has now. It returns what undoes that.
func (x *arrangement) keepYields() (undo func()) {
	before, yields := x.need, x.yields()
	need := slices.Clone(before)
	for g := range need {
		y := 1.0
		if yields != nil {
			y = yields[x.of[g]]
		}
		need[g] = max(need[g], y*x.p.Groups[g].CPU)
	}
	x.require(need)
	return func() { x.require(before) }
}

// require sets the CPU that VMs must have.
func (x *arrangement) require(need []float64) {
	x.need = need
	for j := range x.slackCPU {
		x.slackCPU[j] = x.p.Hosts[j].CPU
		for _, s := range x.stay[j] {
			x.slackCPU[j] -= float64(s.n) * need[s.group]
		}
		for _, v := range x.on[j] {
			x.slackCPU[j] -= need[x.movers[v].group]
		}
	}
}
