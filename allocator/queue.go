package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Request is what one virtual cluster that waits asks for.
type Request struct {
	// Groups is what it wants to run. Where Hosts has an index, the VM can run
	// there only. Group.Requested is taken as set.
	Groups   []Group
	Rules    *Rules // of Groups; nil: none
	Priority int
}

// Queue is the answer to all that wait.
type Queue struct {
	Order    []int       // indices of the requests, in the order in which they were decided
	Answers  []Admission // [request]; without Solution
	Hosts    [][][]int   // [request][group][VM]: where its VMs are; nil: refused
	Admitted int         // requests
	Solution Solution    // of all that runs then: the groups of the problem, and those of the requests admitted, in order
}

// AdmitQueue decides on all requests of a queue, one after the other: the greatest
// priority first, of equal ones in the order given, which should be that of age. Each is
// admitted or refused as AdmitUnder would, beside what runs and what was admitted
// before it; a request that fits is admitted whatever was refused before it. All VMs
// of p must have hosts, and r are its rules. It decides what fits, so that the Policy of p
// does not matter.
//
// With explain a refusal says all that Admit says. Without, it has a summary only,
// and clear cases cost little.
func AdmitQueue(p Problem, r *Rules, requests []Request, explain bool) Queue {
	q := Queue{Order: make([]int, len(requests)), Answers: make([]Admission, len(requests)), Hosts: make([][][]int, len(requests))}
	for i := range q.Order {
		q.Order[i] = i
	}
	slices.SortStableFunc(q.Order, func(x, y int) int { return requests[y].Priority - requests[x].Priority })
	d := desk{explain: explain}
	if err := d.open(p, r); err != nil {
		for i := range q.Answers {
			q.Answers[i] = Admission{Summary: err.Error(), NeverFits: true}
		}
		return q
	}
	for _, i := range q.Order {
		q.Answers[i], q.Hosts[i] = d.decide(&requests[i])
		if q.Answers[i].Admitted {
			q.Admitted++
		}
	}
	loads := d.base.fixed
	q.Solution = solutionOf(&d.p, loads, spread(&d.p, loads, false))
	return q
}

// desk is where the requests of a queue are decided.
type desk struct {
	explain bool
	p       Problem // what runs, admitted requests included
	rules   *Rules
	base    *admission
	names   map[string]bool // virtual clusters of p
	refused map[string]bool // shapes of requests that did not fit beside what runs now
}

func (d *desk) open(p Problem, r *Rules) error {
	err := p.Validate()
	if err == nil {
		err = r.check(&p)
	}
	if err != nil {
		return fmt.Errorf("not a valid problem: %w", err)
	}
	d.p = Problem{Hosts: p.Hosts, Groups: slices.Clone(p.Groups)}
	for g := range d.p.Groups {
		d.p.Groups[g].Requested = false
	}
	d.rules = r
	loads, unplaced := countLoads(&d.p)
	for g, n := range unplaced {
		if n > 0 {
			return fmt.Errorf("not a valid problem: group %s: %s without a host", groupName(p.Groups, g), vmsText(n))
		}
	}
	d.names = map[string]bool{}
	for g := range p.Groups {
		d.names[p.Groups[g].Cluster] = true
	}
	d.stand(loads)
	return nil
}

// stand prepares what does not depend on a request.
func (d *desk) stand(fixed [][]load) {
	d.base = &admission{p: &d.p, fixed: fixed, unplaced: make([]int, len(d.p.Groups)), standing: true}
	d.base.derive()
	d.base.needAt(0)
	d.base.pk.begin(d.base.need)
	d.refused = map[string]bool{}
}

// decide on one request, and admit it if it fits.
func (d *desk) decide(request *Request) (Admission, [][]int) {
	groups := slices.Clone(request.Groups)
	fresh := true // none of its VMs is bound to a host, and none runs
	for g := range groups {
		groups[g].Requested = true
		fresh = fresh && !slices.ContainsFunc(groups[g].Hosts, func(j int) bool { return j != -1 }) &&
			(groups[g].Cluster == "" || !d.names[groups[g].Cluster])
	}
	alone := Problem{Hosts: d.p.Hosts, Groups: groups}
	err := alone.Validate()
	if err == nil {
		err = request.Rules.check(&alone)
	}
	if err != nil {
		return Admission{Summary: fmt.Sprintf("not a valid request: %v", err), NeverFits: true}, nil
	}
	shape := ""
	if fresh && !d.explain && request.Rules == nil {
		wants := wantsOf(&alone)
		if why := hopeless(d.base.pk, wants); why != "" {
			return refusalOf(wants, why, &alone), nil
		}
		if shape = shapeOf(groups); d.rules == nil && d.refused[shape] {
			return refusalOf(wants, "no way was found to place all its VMs; others like it did not fit either", &alone), nil
		}
	}
	n := len(d.p.Groups)
	whole := Problem{Hosts: d.p.Hosts, Groups: append(d.p.Groups[:n:n], groups...)}
	a := &admission{p: &whole, rules: together(d.rules, n, request.Rules, len(groups))}
	if fresh {
		a.join(d.base)
	} else {
		a.prepare()
	}
	placed := a.placement()
	if placed == nil {
		if d.explain {
			return a.refuse(), nil
		}
		d.refused[shape] = shape != ""
		a.needAt(0)
		top := a.maximalDeal()
		g := a.firstLeft(top)
		return Admission{Asked: a.asked, Fits: a.asked - top.total, TriedMinYield: a.minYield(), NeverFits: a.neverFits(),
			Summary: a.summary(g, a.asked-top.total, nil)}, nil
	}
	hosts := make([][]int, len(groups))
	for g := range hosts {
		hosts[g] = slices.Clone(placed[n+g])
		groups[g].Hosts, groups[g].Requested = hosts[g], false
		d.names[groups[g].Cluster] = true
	}
	copy(whole.Groups[n:], groups)
	added, _ := countLoads(&alone)
	fixed := append(d.base.fixed[:n:n], added...)
	d.p, d.rules = whole, a.rules
	d.stand(fixed)
	return Admission{Admitted: true, Asked: a.asked, Fits: a.asked, TriedMinYield: a.minYield()}, hosts
}

// placement is where each VM is if the request fits, nil if it does not: place, without
// dividing the CPU where nothing depends on that.
func (a *admission) placement() [][]int {
	if slices.Contains(a.placedOn, true) || a.hasPreferences() {
		s, _ := a.place()
		return s.Hosts
	}
	if loads := a.find(); loads != nil {
		return spread(a.p, loads, false)
	}
	return nil
}

// join makes a the admission of groups that follow those of base and have no VM with a host.
func (a *admission) join(base *admission) {
	n, m := len(base.p.Groups), len(a.p.Groups)
	extra := tenancyOf(a.p.Groups[n:])
	a.t = tenancy{of: slices.Clone(base.t.of), members: slices.Clone(base.t.members), floor: append(slices.Clone(base.t.floor), extra.floor...)}
	clusters := len(a.t.members)
	for _, c := range extra.of {
		a.t.of = append(a.t.of, clusters+c)
	}
	for _, members := range extra.members {
		for i := range members {
			members[i] += n
		}
		a.t.members = append(a.t.members, members)
	}
	a.fixed = append(base.fixed[:n:n], make([][]load, m-n)...)
	a.unplaced = append(base.unplaced[:n:n], make([]int, m-n)...)
	a.levels, a.floor = append(base.levels[:n:n], make([]float64, m-n)...), append(base.floor[:n:n], make([]float64, m-n)...)
	for g := n; g < m; g++ {
		a.unplaced[g] = a.p.Groups[g].Count
		a.asked += a.unplaced[g]
		a.levels[g], a.floor[g] = 1, a.t.floor[a.t.of[g]]
	}
	a.marked = true
	a.request, a.strict = make([]bool, len(a.t.members)), make([]bool, len(a.t.members))
	for c := clusters; c < len(a.request); c++ {
		a.request[c], a.strict[c] = true, true
	}
	a.placedOn = make([]bool, len(a.p.Hosts))
	a.pk = newPacker(a.p, a.fixed, a.unplaced)
	copy(a.pk.exempt, base.pk.exempt)
	copy(a.pk.closed, base.pk.closed)
	a.need = make([]float64, m)
	a.ruled = rulingOf(a.p, a.rules, a.fixed, a.unplaced)
}

// wantsOf is what a request wants at its least yields.
func wantsOf(p *Problem) []want {
	t := tenancyOf(p.Groups)
	var w []want
	for g := range p.Groups {
		if group := &p.Groups[g]; group.Count > 0 {
			w = append(w, want{group, group.Count, demand{t.floor[t.of[g]] * group.CPU, group.Memory}})
		}
	}
	return w
}

// refusalOf refuses a request without searching for a placement.
func refusalOf(wants []want, why string, alone *Problem) Admission {
	t := tenancyOf(alone.Groups)
	for g := range alone.Groups {
		alone.Groups[g].MinYield = t.floor[t.of[g]]
	}
	never := ProveInfeasible(Problem{Hosts: withoutVMs(alone.Hosts), Groups: alone.Groups}) != ""
	a := Admission{Summary: why, TriedMinYield: 1, NeverFits: never}
	for _, w := range wants {
		a.Asked += w.n
		a.TriedMinYield = min(a.TriedMinYield, w.group.MinYield)
	}
	return a
}

// shapeOf is equal for requests that want the same but for names.
func shapeOf(groups []Group) string {
	var b strings.Builder
	t := tenancyOf(groups)
	for g := range groups {
		for _, x := range []float64{float64(groups[g].Count), groups[g].CPU, groups[g].Memory, t.floor[t.of[g]]} {
			b.WriteString(strconv.FormatFloat(x, 'x', -1, 64))
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(t.of[g]))
		b.WriteByte(';')
	}
	return b.String()
}

// together are the rules of n groups and of m that follow them.
func together(r *Rules, n int, more *Rules, m int) *Rules {
	if r == nil && more == nil {
		return nil
	}
	out := &Rules{Labels: make([]map[string]string, n+m), Affinity: make([]*Affinity, n+m)}
	if r != nil {
		copy(out.Labels, r.Labels)
		copy(out.Affinity, r.Affinity)
		out.ByCluster = r.ByCluster
	}
	if more != nil {
		copy(out.Labels[n:], more.Labels)
		copy(out.Affinity[n:], more.Affinity)
		out.ByCluster = out.ByCluster || more.ByCluster
	}
	return out
}
