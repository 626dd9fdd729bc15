package allocator

import (
	"cmp"
	"slices"
)

// raiseAverage raises the yields of the virtual clusters from base as far as
// the hosts allow, to the greatest sum. It returns the yield of each group.
//
// With y_c the yield of virtual cluster c and w_cj the CPU that its VMs on host
// j need in sum: maximize sum y_c subject to sum_c w_cj y_c <= C_j and
// base_c <= y_c <= 1. Hosts that can give all their VMs everything are no
// constraint. A host shared only by clusters that no other constraint touches
// is solved by raising the smallest need first, which is optimal (sec. 3.5);
// the others together are a linear program (sec. 5).
func raiseAverage(p *Problem, loads [][]load, t tenancy, base []float64) []float64 {
	r := newRaise(p, loads, t, base)
	for _, part := range r.parts() {
		if len(part.hosts) > 1 {
			r.solve(part)
		}
		r.greedy(part.clusters)
	}
	yields := make([]float64, len(p.Groups))
	for g := range yields {
		yields[g] = r.yield[t.of[g]]
	}
	r.raiseGroups(loads, t, yields)
	return yields
}

// raise is the state of the average-yield pass.
type raise struct {
	p      *Problem
	weight [][]cell  // [cluster]: need by host
	scarce []float64 // [cluster]: need in sum on hosts that are tight
	yield  []float64 // [cluster]: so far
	free   []float64 // [host]: CPU not given yet
	tight  []bool    // [host]: cannot give all its VMs all they need
}

type cell struct {
	host   int
	weight float64
}

func newRaise(p *Problem, loads [][]load, t tenancy, base []float64) *raise {
	r := &raise{
		p: p, weight: make([][]cell, len(t.members)), scarce: make([]float64, len(t.members)),
		yield: slices.Clone(base), free: make([]float64, len(p.Hosts)), tight: make([]bool, len(p.Hosts)),
	}
	n := 0
	for g := range loads {
		n += len(loads[g])
	}
	room := make([]cell, 0, n)
	at := make([]int, len(p.Hosts)) // 1 + position of the host in the current cluster's cells
	need := make([]float64, len(p.Hosts))
	for j := range p.Hosts {
		r.free[j] = p.Hosts[j].CPU
	}
	for c, members := range t.members {
		start := len(room)
		for _, g := range members {
			if p.Groups[g].CPU == 0 {
				continue
			}
			for _, l := range loads[g] {
				w := float64(l.n) * p.Groups[g].CPU
				if at[l.host] == 0 {
					room = append(room, cell{l.host, 0})
					at[l.host] = len(room)
				}
				room[at[l.host]-1].weight += w
			}
		}
		r.weight[c] = room[start:len(room):len(room)]
		for _, w := range r.weight[c] {
			at[w.host] = 0
			r.free[w.host] -= w.weight * base[c]
			need[w.host] += w.weight
		}
	}
	for j := range p.Hosts {
		r.free[j] = max(0, r.free[j])
		r.tight[j] = need[j] > p.Hosts[j].CPU
	}
	for c := range r.weight {
		for _, w := range r.weight[c] {
			if r.tight[w.host] {
				r.scarce[c] += w.weight
			}
		}
	}
	return r
}

// part is a set of clusters and tight hosts that no constraint ties to any other.
type part struct{ hosts, clusters []int }

// parts gives clusters that no tight host limits their full need at once, and
// splits the others.
func (r *raise) parts() []part {
	parent := make([]int, len(r.p.Hosts))
	for j := range parent {
		parent[j] = j
	}
	root := func(j int) int {
		for parent[j] != j {
			parent[j] = parent[parent[j]]
			j = parent[j]
		}
		return j
	}
	first := make([]int, len(r.weight)) // a tight host of the cluster, -1: none
	for c, cells := range r.weight {
		first[c] = -1
		for _, w := range cells {
			if !r.tight[w.host] {
				continue
			}
			if first[c] < 0 {
				first[c] = w.host
			}
			parent[root(w.host)] = root(first[c])
		}
	}
	index := make([]int, len(r.p.Hosts)) // 1 + index of the part with this root
	var parts []part
	for c, cells := range r.weight {
		if first[c] < 0 {
			r.take(c, 1)
			continue
		}
		if r.yield[c] >= 1 {
			continue
		}
		k := root(first[c])
		if index[k] == 0 {
			parts = append(parts, part{})
			index[k] = len(parts)
		}
		q := &parts[index[k]-1]
		q.clusters = append(q.clusters, c)
		for _, w := range cells {
			if r.tight[w.host] {
				q.hosts = append(q.hosts, w.host)
			}
		}
	}
	for k := range parts {
		slices.Sort(parts[k].hosts)
		parts[k].hosts = slices.Compact(parts[k].hosts)
	}
	return parts
}

// take raises cluster c to yield y.
func (r *raise) take(c int, y float64) {
	for _, w := range r.weight[c] {
		r.free[w.host] = max(0, r.free[w.host]-w.weight*(y-r.yield[c]))
	}
	r.yield[c] = y
}

// room is how far cluster c can rise above its yield, at most to 1.
func (r *raise) room(c int) float64 {
	up := 1 - r.yield[c]
	for _, w := range r.weight[c] {
		// A host that is not tight has room for all, whatever rounding says.
		if r.tight[w.host] {
			up = min(up, r.free[w.host]/w.weight)
		}
	}
	return up
}

// greedy raises the clusters one after the other, smallest need of scarce CPU
// first.
func (r *raise) greedy(clusters []int) {
	order := slices.Clone(clusters)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.scarce[a], r.scarce[b]), cmp.Compare(a, b))
	})
	for _, c := range order {
		if up := r.room(c); up > 0 {
			if y := r.yield[c] + up; up >= 1-r.yield[c] {
				r.take(c, 1)
			} else {
				r.take(c, y)
			}
		}
	}
}

// solve raises the clusters of a part to the greatest sum of yields.
func (r *raise) solve(q part) {
	rows := make([]int, len(r.p.Hosts))
	for i, j := range q.hosts {
		rows[j] = i
	}
	lp := boundedLP{limit: make([]float64, len(q.hosts)), upper: make([]float64, len(q.clusters)), column: make([][]cell, len(q.clusters))}
	for i, j := range q.hosts {
		lp.limit[i] = r.free[j] / r.p.Hosts[j].CPU
	}
	for k, c := range q.clusters {
		lp.upper[k] = 1 - r.yield[c]
		for _, w := range r.weight[c] {
			if r.tight[w.host] {
				lp.column[k] = append(lp.column[k], cell{rows[w.host], w.weight / r.p.Hosts[w.host].CPU})
			}
		}
	}
	x := lp.maximize()
	// Rounding may have put a host a little over: then all that was added on it
	// shrinks, and no yield falls below its base.
	shrink := make([]float64, len(q.hosts))
	for i := range lp.limit {
		shrink[i] = 1
	}
	used := make([]float64, len(q.hosts))
	for k := range x {
		for _, w := range lp.column[k] {
			used[w.host] += w.weight * x[k]
		}
	}
	for i := range used {
		if used[i] > lp.limit[i] {
			shrink[i] = lp.limit[i] / used[i]
		}
	}
	for k, c := range q.clusters {
		f := 1.0
		for _, w := range lp.column[k] {
			f = min(f, shrink[w.host])
		}
		r.take(c, min(1, r.yield[c]+f*x[k]))
	}
}

// raiseGroups gives CPU that is left to single groups of clusters whose other
// groups are limited on other hosts: it raises no cluster's yield, but would be
// idle otherwise. Smallest need first.
func (r *raise) raiseGroups(loads [][]load, t tenancy, yields []float64) {
	need := make([]float64, len(yields))
	var order []int
	for g := range yields {
		if len(t.members[t.of[g]]) > 1 && yields[g] < 1 && r.p.Groups[g].CPU > 0 && len(loads[g]) > 0 {
			for _, l := range loads[g] {
				need[g] += float64(l.n) * r.p.Groups[g].CPU
			}
			order = append(order, g)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(need[a], need[b]), cmp.Compare(a, b)) })
	for _, g := range order {
		up := 1 - yields[g]
		for _, l := range loads[g] {
			if r.tight[l.host] {
				up = min(up, r.free[l.host]/(float64(l.n)*r.p.Groups[g].CPU))
			}
		}
		if up >= 1-yields[g] {
			yields[g] = 1
		} else {
			yields[g] += up
		}
		for _, l := range loads[g] {
			r.free[l.host] = max(0, r.free[l.host]-up*float64(l.n)*r.p.Groups[g].CPU)
		}
	}
}
