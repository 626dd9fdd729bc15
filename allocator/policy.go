package allocator

import (
	"cmp"
	"slices"
)

// Policy says which placement is taken of those with equal minimum yields. Spread and Pack compare the yields of all virtual
// clusters first, the lowest first (lexicographic max-min); all VMs of a host count with the yield that it can give to each.
type Policy int

const (
	AsFound Policy = iota // the one that the search ends with
	Spread                // the largest least headroom of the hosts; then the largest of the second least, and so on
	Pack                  // the most capacity on hosts without VMs; then as Spread, among the other hosts
)

// sameHeadroom is the difference, as a share of a host, under which headrooms are equal.
const sameHeadroom = 1e-9

// run arranges the movers by the policy. false: nothing has changed.
func (x *arrangement) run(policy Policy) bool {
	if len(x.movers) == 0 {
		return false
	}
	x.aim(policy)
	found := x.hosts()
	switch policy {
	case Spread:
		x.spread()
		x.all(nil)
	case Pack:
		if x.yields() != nil {
			x.spread()
			x.all(nil)
		}
		undo := x.keepYields()
		x.pack()
		undo()
		x.all(x.weights())
	}
	return !slices.Equal(found, x.hosts())
}

// arrange is a placement of the request by the policy, beside what stays, that gives no virtual cluster less; ok: it differs.
func (a *admission) arrange(loads [][]load, s Solution) (arranged [][]load, better Solution, ok bool) {
	p := a.p
	if p.Policy == AsFound || a.asked == 0 || a.asked > maxArranged {
		return nil, s, false
	}
	a.needAt(s.MinYield)
	x := newArrangement(p, a.t, a.pk.closed, a.need)
	if a.ruled != nil {
		x.rules = newBoard(p, a.rules, a.fixed, a.need)
	}
	arranged = make([][]load, len(p.Groups))
	for g := range loads {
		for _, l := range a.fixed[g] {
			x.keep(g, l.host, l.n)
		}
		if a.unplaced[g] == 0 {
			continue
		}
		here := make(map[int]int, len(a.fixed[g]))
		for _, l := range a.fixed[g] {
			here[l.host] = l.n
		}
		for _, l := range loads[g] {
			for range l.n - here[l.host] {
				x.add(g, l.host)
			}
		}
	}
	if !x.run(p.Policy) {
		return nil, s, false
	}
	copy(arranged, loads)
	for g, n := range a.unplaced {
		if n > 0 {
			arranged[g] = slices.Clone(a.fixed[g])
		}
	}
	for _, v := range x.movers {
		arranged[v.group] = withOne(arranged[v.group], int(v.host))
	}
	better = solutionWith(p, a.t, spread(p, arranged, false), divide(p, arranged, a.t), s.UpperBound)
	if better.MinYield < s.MinYield-sameMinYield || len(better.Shortfall) > len(s.Shortfall) || overfull(p, memoryUsed(p, arranged), memoryUsed(p, loads)) {
		return nil, s, false // rounding
	}
	return arranged, better, true
}

// sameMinYield is what rounding may take from a minimum yield.
const sameMinYield = 1e-12

// maxArranged is up to how many VMs of a request the policy arranges.
const maxArranged = 1 << 15

// withOne adds one VM on host j.
func withOne(loads []load, j int) []load {
	at, there := slices.BinarySearchFunc(loads, j, func(l load, j int) int { return cmp.Compare(l.host, j) })
	if there {
		loads[at].n++
		return loads
	}
	return slices.Insert(loads, at, load{j, 1})
}

// overfull says whether a host has less memory than its VMs need, and than they needed before.
func overfull(p *Problem, used, before []float64) bool {
	for j := range used {
		if used[j] > before[j] && used[j] > p.Hosts[j].Memory*(1+roundingSlack) {
			return true
		}
	}
	return false
}

// arrange arranges the VMs of the model that have no host, or that move anyway, in host.
func (w *work) arrange(host []int32) {
	if w.p.Policy == AsFound || len(host) > maxSearchedArranged || w.stopped() {
		return
	}
	w.keepHomes(host)
	y := w.realized(host)
	other := (&movement{p: w.p, t: w.t, rules: w.s.Rules, group: w.group, home: w.home}).arranged(host, y)
	if other == nil {
		return
	}
	// A higher yield is refused, too, where moves count: a search with a greater budget might miss it, and must not give
	// less.
	if after := w.realized(other); w.m.Check(other) && after >= y-sameMinYield && (!w.moves || after <= y+sameMinYield) {
		copy(host, other)
	}
}

// keepHomes exchanges the hosts of VMs within a group, so that as many as possible stay where they are: those need not be arranged.
func (w *work) keepHomes(host []int32) {
	hosts := make([][]int, len(w.p.Groups))
	for g := range hosts {
		hosts[g] = make([]int, w.p.Groups[g].Count)
	}
	for vm, j := range host {
		hosts[w.group[vm]][w.task[vm]] = int(j)
	}
	w.s.keepHomes(w.p, hosts)
	for vm := range host {
		host[vm] = int32(hosts[w.group[vm]][w.task[vm]]) //nolint:gosec // it was one
	}
}

// maxSearchedArranged is up to how many VMs Best and Exact arrange.
const maxSearchedArranged = 100_000

// loadsOf is where the VMs of the model are, by group.
func (w *work) loadsOf(host []int32) [][]load {
	p := *w.p
	p.Groups = slices.Clone(w.p.Groups)
	for g := range p.Groups {
		p.Groups[g].Hosts = make([]int, p.Groups[g].Count)
	}
	for vm, j := range host {
		p.Groups[w.group[vm]].Hosts[w.task[vm]] = int(j)
	}
	loads, _ := countLoads(&p)
	return loads
}
