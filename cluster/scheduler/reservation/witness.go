package reservation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// tiny is a CPU or memory that counts for nothing, where the allocator wants hosts that have some.
const tiny = 1e-6

// witness looks for hosts for the VMs of a slot: first as if all of them ran all the time with the most they need (the packing of
// package allocator), then step by step, then with moves of residents.
func (a *Agenda) witness(s *Slot) (*found, *Refusal) {
	count, need := s.count()
	if count == 0 {
		return &found{accepted: &Accepted{Slot: *s}}, nil
	}
	w := a.surroundings(s)
	p := w.problem(count, need)
	admission := allocator.AdmitUnder(p, w.rules)
	if admission.Admitted {
		return &found{accepted: &Accepted{*s, Witness{Hosts: admission.Solution.Hosts[w.own]}}}, nil
	}
	if hosts := a.stepByStep(s, w, p); hosts != nil {
		return &found{accepted: &Accepted{*s, Witness{Hosts: hosts}}}, nil
	}
	if f := a.withMoves(s, w, count, need); f != nil {
		return f, nil
	}
	return nil, a.noWitness(s, &admission)
}

// surroundings are the hosts and VMs that a slot meets.
type surroundings struct {
	steps  []int    // of the agenda in which a run of the slot is, ascending
	free   []Amount // [host]: in all these steps
	hosts  []migration.Host
	groups []allocator.Group // what is there already, without needs: free is less by them
	rules  *allocator.Rules  // of groups, and of the slot's VMs as the last group
	own    int               // index of the slot's VMs
	name   string
	first  int // of groups that are slots
}

func (a *Agenda) surroundings(s *Slot) *surroundings {
	w := &surroundings{hosts: a.cluster.Hosts, name: s.Request.Name, rules: &allocator.Rules{ByCluster: true}}
	busy := make([]bool, a.cluster.Steps)
	s.each(a.cluster.Steps, func(step, _ int) { busy[step] = true })
	for t, b := range busy {
		if b {
			w.steps = append(w.steps, t)
		}
	}
	for h := range a.cluster.Hosts {
		peak := Amount{}
		for _, t := range w.steps {
			peak = peak.highest(a.taken(&s.Request, h, t))
		}
		w.free = append(w.free, a.usable(h).plus(peak, -1))
	}
	add := func(g allocator.Group, labels map[string]string, affinity *allocator.Affinity) {
		w.groups = append(w.groups, g)
		w.rules.Labels = append(w.rules.Labels, labels)
		w.rules.Affinity = append(w.rules.Affinity, affinity)
	}
	for i, g := range a.cluster.Residents {
		var labels map[string]string
		var affinity *allocator.Affinity
		if rules := a.cluster.Rules; rules != nil {
			if rules.Labels != nil {
				labels = rules.Labels[i]
			}
			if rules.Affinity != nil {
				affinity = rules.Affinity[i]
			}
		}
		add(allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, Hosts: g.Hosts}, labels, affinity)
	}
	w.first = len(w.groups)
	for _, o := range a.accepted {
		meets := false
		o.Slot.each(a.cluster.Steps, func(step, _ int) { meets = meets || busy[step] })
		if !meets || len(o.Witness.Hosts) == 0 {
			continue
		}
		r := &o.Slot.Request
		add(allocator.Group{Cluster: r.Name, Name: r.Name, Count: len(o.Witness.Hosts), Hosts: o.Witness.Hosts}, r.Labels, r.Affinity)
	}
	w.own = len(w.groups)
	add(allocator.Group{}, s.Request.Labels, s.Request.Affinity)
	return w
}

// problem is that of the allocator: what is there takes nothing of what is free.
func (w *surroundings) problem(count int, need Amount) allocator.Problem {
	p := allocator.Problem{Groups: slices.Clone(w.groups[:w.own])}
	for h, host := range w.hosts {
		p.Hosts = append(p.Hosts, allocator.Host{Name: host.Name, CPU: max(tiny, w.free[h][Cores]), Memory: max(tiny, w.free[h][Memory]),
			Cordoned: host.Cordoned, Unavailable: host.Unavailable != ""})
	}
	p.Groups = append(p.Groups, allocator.Group{Cluster: w.name, Name: w.name, Count: count, CPU: need[Cores], Memory: need[Memory], MinYield: 1, RequiredYield: 1})
	return p
}

// stepByStep puts VM after VM on the first host that has room in each of its steps; of hosts the one with the least memory free
// first. nil: a VM found none.
func (a *Agenda) stepByStep(s *Slot, w *surroundings, p allocator.Problem) []int {
	meaning, err := w.rules.Meaning(p)
	if err != nil {
		return nil
	}
	on := make([][]int, len(w.hosts)) // groups on each host
	for g := range w.own {
		for _, h := range w.groups[g].Hosts {
			on[h] = append(on[h], g)
		}
	}
	// What the slot's own VMs take of each host, by place in its amounts.
	own := make([][]Amount, len(w.hosts))
	fits := func(vm, h int) bool {
		ok, usable := true, a.usable(h)
		s.each(a.cluster.Steps, func(step, at int) {
			n, need := s.vm(at)
			if !ok || vm >= n {
				return
			}
			taken := a.taken(&s.Request, h, step)
			for r := range need[:VMs] {
				left := usable[r] - taken[r]
				if own[h] != nil {
					left -= own[h][at][r]
				}
				ok = ok && need[r] <= left
			}
		})
		return ok
	}
	order := make([]int, len(w.hosts))
	for h := range order {
		order[h] = h
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(w.free[x][Memory], w.free[y][Memory]) })
	hosts := make([]int, p.Groups[w.own].Count)
	for vm := range hosts {
		i := slices.IndexFunc(order, func(h int) bool {
			return !w.hosts[h].Cordoned && fits(vm, h) && meaning.Kept(h, append(slices.Clip(on[h]), w.own))
		})
		if i < 0 {
			return nil
		}
		h := order[i]
		hosts[vm] = h
		on[h] = append(on[h], w.own)
		if own[h] == nil {
			own[h] = make([]Amount, len(s.Amounts))
		}
		for at := range own[h] {
			if n, need := s.vm(at); vm < n {
				own[h][at] = own[h][at].plus(need, 1)
			}
		}
	}
	return hosts
}

// withMoves lets residents move for the slot, within the byte budget. What all other slots have, in any step, stays free on the way
// and afterwards; so their witnesses stay good.
func (a *Agenda) withMoves(s *Slot, w *surroundings, count int, need Amount) *found {
	if a.cluster.MoveBudget == 0 || len(a.cluster.Residents) == 0 {
		return nil
	}
	p := migration.Problem{Steps: a.cluster.Effort, Rules: &allocator.Rules{Labels: w.rules.Labels, Affinity: w.rules.Affinity, ByCluster: true}}
	for h, host := range a.cluster.Hosts {
		peak := Amount{}
		for _, u := range a.reserved[h] {
			peak = peak.highest(u)
		}
		host.CPU, host.Memory = max(tiny, host.CPU-peak[Cores]), max(tiny, host.Memory-peak[Memory])
		p.Hosts = append(p.Hosts, host)
	}
	for _, g := range a.cluster.Residents {
		g.CPU, g.MinYield = g.CPU*g.MinYield, 1
		p.Groups = append(p.Groups, g)
	}
	for _, g := range w.groups[w.first:w.own] {
		pinned := make([]int, g.Count)
		for i := range pinned {
			pinned[i] = i
		}
		p.Groups = append(p.Groups, migration.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, Hosts: g.Hosts, Pinned: pinned})
	}
	p.Groups = append(p.Groups, migration.Group{Cluster: w.name, Name: w.name, Count: count, CPU: need[Cores], Memory: need[Memory], MinYield: 1})
	planner, err := migration.New(p)
	if err != nil {
		return nil
	}
	plan := planner.Plan(a.cluster.MoveBudget)
	if !plan.Feasible {
		return nil
	}
	f := &found{accepted: &Accepted{*s, Witness{Hosts: plan.Hosts[w.own], Bytes: plan.Bytes}}, residents: plan.Hosts[:len(a.cluster.Residents)]}
	for _, step := range plan.Steps {
		if step.Kind != migration.Start {
			f.accepted.Witness.Moves = append(f.accepted.Witness.Moves, step)
		}
	}
	return f
}

// Refusal is why a request has no slot.
type Refusal struct {
	Step     int      // of the agenda: where it binds
	Resource Resource // that binds
	Missing  float64  // of it, in that step; 0: rules or pieces of room bind, not the sum
	Host     string   // "": the sum over all hosts binds
	Text     string
	Changes  []Change // each of which alone was tried and fits
}

// tooMuch is for a slot that does not fit the sums.
func (l *Load) tooMuch(s *Slot) *Refusal {
	r := &Refusal{}
	worst := 0.0
	s.each(len(l.used), func(step, at int) {
		sum := l.used[step].plus(s.Amounts[at], 1)
		if c, binds := sum.share(l.capacity); c > worst {
			worst = c
			r.Step, r.Resource, r.Missing = step, binds, sum[binds]-l.capacity[binds]
		}
	})
	r.Text = fmt.Sprintf("%s: in step %d of the agenda %.4g %s are missing in the cluster", s.Request.Name, r.Step, r.Missing, r.Resource)
	return r
}

// noWitness is for a slot that fits the sums and not the hosts. It names the host that lacks least.
func (a *Agenda) noWitness(s *Slot, admission *allocator.Admission) *Refusal {
	r := &Refusal{Resource: Memory, Text: s.Request.Name + ": the sums fit, and no placement on the hosts was found"}
	lowest := math.Inf(1)
	for h, reason := range admission.Reasons {
		if reason.Cordoned || h >= len(a.cluster.Hosts) {
			continue
		}
		deficit := reason.CPUMissing/a.cluster.Hosts[h].CPU + reason.MemoryMissing/a.cluster.Hosts[h].Memory
		if deficit >= lowest {
			continue
		}
		lowest = deficit
		r.Host, r.Missing, r.Resource = reason.Host, reason.MemoryMissing, Memory
		if reason.CPUMissing > 0 && reason.MemoryMissing == 0 {
			r.Missing, r.Resource = reason.CPUMissing, Cores
		}
		r.Text = fmt.Sprintf("%s: %d of %d VMs find a host; %s: %s", s.Request.Name, admission.Fits, admission.Asked, reason.Host, reason.Text)
	}
	r.Step = a.fullest(s, r.Host, r.Resource)
	return r
}

// fullest is the step of the slot in which the host has most of a resource reserved; of no host, the sum.
func (a *Agenda) fullest(s *Slot, host string, binds Resource) (step int) {
	h := slices.IndexFunc(a.cluster.Hosts, func(x migration.Host) bool { return x.Name == host })
	peak := -1.0
	s.each(a.cluster.Steps, func(t, _ int) {
		u := a.load.used[t]
		if h >= 0 {
			u = a.reserved[h][t]
		}
		if u[binds] > peak {
			peak, step = u[binds], t
		}
	})
	return step
}
