package allocator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Allocate divides the CPU of every host among VMs that all have hosts. The
// minimum yield is the greatest that the placement allows; CPU left then goes
// where it raises the mean yield of the virtual clusters most (sec. 3.5, with
// one yield per virtual cluster as in sec. 5); what no whole cluster can use
// goes to single groups.
//
// A virtual cluster's MinYield is a floor under its yield. Where a host cannot
// keep the floors of all its VMs, the floors of their virtual clusters are
// lowered to the equal yield that this host can give; all other floors hold.
// Shortfall names the virtual clusters that end below their floors.
//
// It is an error if p is malformed, if a VM has no host, or if the memory of
// a host is exceeded.
func Allocate(p Problem) (Solution, error) {
	if err := p.Validate(); err != nil {
		return Solution{}, err
	}
	loads, unplaced := countLoads(&p)
	for g, n := range unplaced {
		if n > 0 {
			return Solution{}, fmt.Errorf("group %s: %d of %d VMs have no host", groupName(p.Groups, g), n, p.Groups[g].Count)
		}
	}
	for j, used := range memoryUsed(&p, loads) {
		if free := p.Hosts[j].Memory - used; free < -roundingSlack*p.Hosts[j].Memory {
			return Solution{}, fmt.Errorf("host %s: its VMs need %s of memory more than it has", hostName(p.Hosts, j), sizeText(-free))
		}
	}
	return solutionOf(&p, loads, spread(&p, loads, false)), nil
}

func memoryUsed(p *Problem, loads [][]load) []float64 {
	used := make([]float64, len(p.Hosts))
	for g := range loads {
		for _, l := range loads[g] {
			used[l.host] += float64(float64(l.n) * p.Groups[g].Memory)
		}
	}
	return used
}

// solutionOf divides the CPU for a placement and fills in the figures.
func solutionOf(p *Problem, loads [][]load, hosts [][]int) Solution {
	t := tenancyOf(p.Groups)
	return solutionWith(p, t, hosts, divide(p, loads, t), UpperBound(*p))
}

// solutionWith fills in the figures where the CPU is divided.
func solutionWith(p *Problem, t tenancy, hosts [][]int, cpu []float64, bound float64) Solution {
	s := Solution{Hosts: hosts, CPU: cpu, UpperBound: bound}
	s.MinYield, s.AverageYield = 1, 1
	sum := 0.0
	for c, members := range t.members {
		y := clusterYield(p.Groups, members, s.CPU)
		sum += y
		s.MinYield = min(s.MinYield, y)
		if y < t.floor[c]-yieldSlack {
			s.Shortfall = append(s.Shortfall, Shortfall{clusterName(p.Groups, members), t.floor[c], y})
		}
	}
	if n := len(t.members); n > 0 {
		s.AverageYield = min(1, max(s.MinYield, sum/float64(n)))
	}
	// No bound is below what was reached; rounding may say otherwise.
	s.UpperBound = max(s.UpperBound, s.MinYield)
	return s
}

func clusterName(groups []Group, members []int) string {
	if c := groups[members[0]].Cluster; c != "" {
		return c
	}
	return groupName(groups, members[0])
}

// clusterYield is the least yield of the groups, given the CPU of one VM of each.
func clusterYield(groups []Group, members []int, cpu []float64) float64 {
	y := 1.0
	for _, g := range members {
		if groups[g].Count > 0 && groups[g].CPU > 0 {
			y = min(y, cpu[g]/groups[g].CPU)
		}
	}
	return y
}

// books lists by host what its VMs need.
type books struct {
	on   [][]share // [host]
	need []float64 // [host]: sum of the weights
}

// share is what the VMs of a group need of a host in sum, cores.
type share struct {
	group  int
	weight float64
}

func booksOf(p *Problem, loads [][]load) books {
	b := books{on: make([][]share, len(p.Hosts)), need: make([]float64, len(p.Hosts))}
	n := make([]int, len(p.Hosts))
	total := 0
	for g := range loads {
		for _, l := range loads[g] {
			n[l.host]++
			total++
		}
	}
	room := make([]share, total)
	for j := range n {
		b.on[j], room = room[:0:n[j]], room[n[j]:]
	}
	for g := range loads {
		if p.Groups[g].CPU == 0 {
			continue
		}
		for _, l := range loads[g] {
			w := float64(l.n) * p.Groups[g].CPU
			b.on[l.host] = append(b.on[l.host], share{g, w})
			b.need[l.host] += w
		}
	}
	return b
}

// maxMin is the greatest minimum yield that a placement allows, at most 1,
// when group g gets max(yield, floor[g]).
func maxMin(p *Problem, loads [][]load, floor []float64) float64 {
	b := booksOf(p, loads)
	y := 1.0
	for j := range p.Hosts {
		if b.need[j] > 0 {
			y = min(y, levelOf(p.Hosts[j].CPU, b.on[j], floor))
		}
	}
	return y
}

// levelOf is the greatest y with which the sum of max(y, floor) x weight over
// the shares is at most the capacity. If the floors alone take more, it is the
// equal yield without floors. It may exceed 1; without need it is infinite.
func levelOf(capacity float64, on []share, floor []float64) float64 {
	need, atFloors, highest := 0.0, 0.0, 0.0
	for _, s := range on {
		need += s.weight
		atFloors += floor[s.group] * s.weight
		highest = max(highest, floor[s.group])
	}
	equal := math.Inf(1)
	if need > 0 {
		equal = max(0, capacity) / need
	}
	if highest <= equal || !floorsFit(capacity, atFloors) {
		return equal
	}
	on = slices.Clone(on)
	slices.SortFunc(on, func(a, b share) int {
		return cmp.Or(cmp.Compare(floor[a.group], floor[b.group]), cmp.Compare(a.group, b.group))
	})
	rest := make([]float64, len(on)+1) // CPU of on[k:] at their floors
	for k := len(on) - 1; k >= 0; k-- {
		rest[k] = rest[k+1] + floor[on[k].group]*on[k].weight
	}
	raised := 0.0 // need of on[:k]
	for k, s := range on {
		if raised > 0 {
			if y := (capacity - rest[k]) / raised; y <= floor[s.group] {
				return max(y, floor[on[0].group])
			}
		}
		raised += s.weight
	}
	return equal
}

// floorsFit says whether a host can give its VMs their floors.
func floorsFit(capacity, atFloors float64) bool {
	return atFloors <= capacity*(1+yieldSlack/10)
}

// keepable lowers the floors that cannot be kept. It returns the floor of each
// group: its virtual cluster's, or, where a host of the cluster cannot keep the
// floors of all its VMs, at most the equal yield that this host can give. short
// marks these hosts. The scarcest hosts come first: what a cluster loses there it
// cannot use elsewhere either, and what it leaves may keep others at their floors.
func (b *books) keepable(p *Problem, t tenancy) (floor []float64, short []bool) {
	perCluster := slices.Clone(t.floor)
	short = make([]bool, len(p.Hosts))
	var order []int
	for j := range p.Hosts {
		if b.need[j] > 0 {
			order = append(order, j)
		}
	}
	slices.SortFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(p.Hosts[x].CPU/b.need[x], p.Hosts[y].CPU/b.need[y]), cmp.Compare(x, y))
	})
	for _, j := range order {
		atFloors := 0.0
		for _, s := range b.on[j] {
			atFloors += perCluster[t.of[s.group]] * s.weight
		}
		if floorsFit(p.Hosts[j].CPU, atFloors) {
			continue
		}
		short[j] = true
		for _, s := range b.on[j] {
			c := t.of[s.group]
			perCluster[c] = min(perCluster[c], p.Hosts[j].CPU/b.need[j])
		}
	}
	floor = make([]float64, len(p.Groups))
	for g := range floor {
		floor[g] = perCluster[t.of[g]]
	}
	return floor, short
}

// divide gives each group the CPU of one of its VMs.
func divide(p *Problem, loads [][]load, t tenancy) []float64 {
	if s := singlesOf(p, loads, t); s != nil {
		return s.divide()
	}
	return divideAny(p, loads, t)
}

func divideAny(p *Problem, loads [][]load, t tenancy) []float64 {
	b := booksOf(p, loads)
	floor, _ := b.keepable(p, t)
	lowest := 1.0
	for j := range p.Hosts {
		if b.need[j] > 0 {
			lowest = min(lowest, levelOf(p.Hosts[j].CPU, b.on[j], floor))
		}
	}
	base := make([]float64, len(t.members))
	for c, members := range t.members {
		base[c] = max(lowest, floor[members[0]])
	}
	yields := raiseAverage(p, loads, t, base)
	cpu := make([]float64, len(p.Groups))
	for g := range p.Groups {
		cpu[g] = yields[g] * p.Groups[g].CPU
	}
	b.cutToCapacity(p, loads, cpu)
	return cpu
}

// cutToCapacity takes away what rounding put above a capacity, so that the sum
// over a host's VMs in the order of the groups, taken VM by VM or as count
// times CPU, never exceeds it in float64.
func (b *books) cutToCapacity(p *Problem, loads [][]load, cpu []float64) {
	count := make([][]int, len(p.Hosts)) // VMs, beside b.on
	for g := range loads {
		if p.Groups[g].CPU == 0 {
			continue
		}
		for _, l := range loads[g] {
			count[l.host] = append(count[l.host], l.n)
		}
	}
	for j := range p.Hosts {
		capacity := p.Hosts[j].CPU
		for round := 1.0; ; round *= 4 {
			var one, many float64
			for k, s := range b.on[j] {
				many += float64(float64(count[j][k]) * cpu[s.group])
				for range count[j][k] {
					one += cpu[s.group]
				}
			}
			highest := max(one, many)
			if highest <= capacity {
				break
			}
			f := capacity / highest * (1 - round*0x1p-52)
			for _, s := range b.on[j] {
				cpu[s.group] *= f
			}
		}
	}
}

// fairLevels is the yield of each group, not below floor, when the CPU is shared
// so that no yield above its floor can rise without one that is not greater
// falling: all yields rise together, and those on a full host stay. A group
// with no placed VM has 1. The floors must be such that all can be kept.
func (b *books) fairLevels(p *Problem, loads [][]load, floor []float64) []float64 {
	levels := make([]float64, len(p.Groups))
	for g := range levels {
		levels[g] = 1
	}
	free := make([]float64, len(p.Hosts))
	rising := make([][]share, len(p.Hosts))
	level := make([]float64, len(p.Hosts))
	for j := range p.Hosts {
		free[j] = p.Hosts[j].CPU
		rising[j] = slices.Clone(b.on[j])
		level[j] = levelOf(free[j], rising[j], floor)
	}
	changed := make([]bool, len(p.Hosts))
	for {
		full := 0
		for j := range level {
			if level[j] < level[full] {
				full = j
			}
		}
		if level[full] >= 1 {
			return levels
		}
		y := level[full]
		clear(changed)
		for _, s := range rising[full] {
			levels[s.group] = max(y, floor[s.group])
			for _, l := range loads[s.group] {
				free[l.host] -= levels[s.group] * float64(l.n) * p.Groups[s.group].CPU
				changed[l.host] = true
				if l.host != full {
					rising[l.host] = slices.DeleteFunc(rising[l.host], func(o share) bool { return o.group == s.group })
				}
			}
		}
		rising[full], changed[full] = nil, true
		for j := range changed {
			if changed[j] {
				level[j] = levelOf(free[j], rising[j], floor)
			}
		}
	}
}
