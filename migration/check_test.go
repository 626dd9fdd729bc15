package migration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// This file is independent of how plans are made. It carries a plan out, event by
// event, in an order and with durations that a generator draws, and checks every
// host after every event.

type where struct{ group, vm int }

type execution struct {
	p       migration.Problem
	plan    migration.Plan
	at      map[where][]int // hosts that hold a copy
	on      [][]where       // [host]: the same, the other way round
	changed map[int]bool    // hosts on which something has changed since they were looked at
	cap     []float64       // [group]
	moving  map[int]bool    // steps that have begun and not ended
	begun   []bool
	ended   []bool
	todo    [][]migration.Cap // [step]: of Adjust, what is left
	initial []float64         // [host]: memory and reserve beyond which it must not go: its own, or what it had
}

// checkPlan reports the first rule that an execution breaks. greedy: every step that may
// begin begins before any step ends.
func checkPlan(p migration.Problem, plan migration.Plan, budget float64, rng *rand.Rand, greedy bool) error {
	if !plan.Feasible {
		if len(plan.Steps) > 0 {
			return fmt.Errorf("%d steps of no plan", len(plan.Steps))
		}
		return nil
	}
	x := &execution{p: p, plan: plan, at: map[where][]int{}, on: make([][]where, len(p.Hosts)), changed: map[int]bool{}, moving: map[int]bool{}, begun: make([]bool, len(plan.Steps)), ended: make([]bool, len(plan.Steps)), todo: make([][]migration.Cap, len(plan.Steps))}
	for g, q := range p.Groups {
		for vm := range q.Count {
			if q.Hosts != nil && q.Hosts[vm] >= 0 {
				x.reserve(where{g, vm}, q.Hosts[vm])
			}
		}
	}
	x.cap = slices.Clone(p.Caps)
	if x.cap == nil {
		now := allocator.Problem{}
		for _, h := range p.Hosts {
			now.Hosts = append(now.Hosts, allocator.Host{Name: h.Name, CPU: h.CPU, Memory: 1e18})
		}
		for _, q := range p.Groups {
			a := allocator.Group{Cluster: q.Cluster, Name: q.Name, CPU: q.CPU, Memory: q.Memory, MinYield: q.MinYield}
			for _, j := range q.Hosts {
				if j >= 0 {
					a.Hosts = append(a.Hosts, j)
				}
			}
			a.Count = len(a.Hosts)
			now.Groups = append(now.Groups, a)
		}
		s, err := allocator.Allocate(now)
		if err != nil {
			return err
		}
		x.cap = s.CPU
	}
	x.initial = make([]float64, len(p.Hosts))
	for j := range p.Hosts {
		used, kept := x.memory(j)
		x.initial[j] = max(used+kept, p.Hosts[j].Memory-p.Hosts[j].Reserve)
	}
	bytes := 0.0
	for i, s := range plan.Steps {
		if s.Kind == migration.Move {
			bytes += s.Bytes
		}
		for _, a := range s.After {
			if a >= i || a < 0 {
				return fmt.Errorf("step %d waits for step %d", i, a)
			}
			if e := plan.Steps[a].Begins + plan.Steps[a].Seconds; s.Begins < e-1e-9 {
				return fmt.Errorf("step %d is to begin at %v, before step %d ends at %v", i, s.Begins, a, e)
			}
		}
	}
	if bytes > budget || math.Abs(bytes-plan.Bytes) > 1e-9*bytes {
		return fmt.Errorf("%v bytes are said to be %v of %v", bytes, plan.Bytes, budget)
	}
	if err := x.look(); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	if err := x.run(rng, greedy); err != nil {
		return err
	}
	for g := range p.Groups {
		if p.Groups[g].Count > 0 && math.Abs(x.cap[g]-plan.CPU[g]) > 1e-9*x.cap[g] {
			return fmt.Errorf("group %d ends with %v cores instead of %v", g, x.cap[g], plan.CPU[g])
		}
		for vm, j := range plan.Hosts[g] {
			if at := x.at[where{g, vm}]; len(at) != 1 || at[0] != j {
				return fmt.Errorf("VM %d of group %d ends on %v instead of %d", vm, g, at, j)
			}
		}
	}
	return nil
}

func (x *execution) run(rng *rand.Rand, greedy bool) error {
	for {
		var begin, end []int
		for i, s := range x.plan.Steps {
			if x.begun[i] && !x.ended[i] {
				end = append(end, i)
			}
			if !x.begun[i] && !slices.ContainsFunc(s.After, func(a int) bool { return !x.ended[a] }) {
				begin = append(begin, i)
			}
		}
		if len(begin)+len(end) == 0 {
			if i := slices.Index(x.ended, false); i >= 0 {
				return fmt.Errorf("step %d never begins", i)
			}
			return nil
		}
		var err error
		var i int
		if len(begin) > 0 && (greedy || len(end) == 0 || rng.IntN(2) == 0) {
			i = begin[rng.IntN(len(begin))]
			err = x.begin(i)
		} else {
			i = end[rng.IntN(len(end))]
			x.end(i)
		}
		if err == nil {
			err = x.look()
		}
		if err != nil {
			return fmt.Errorf("step %d %+v: %w", i, x.plan.Steps[i], err)
		}
	}
}

func (x *execution) begin(i int) error {
	s := x.plan.Steps[i]
	x.begun[i] = true
	if s.Kind == migration.Adjust {
		for _, c := range s.Shrink {
			if c.CPU > x.cap[c.Group] {
				return fmt.Errorf("cap of group %d grows from %v", c.Group, x.cap[c.Group])
			}
		}
		x.todo[i] = append(slices.Clone(s.Shrink), s.Grow...)
		return nil
	}
	vm := where{s.Group, s.VM}
	at := x.at[vm]
	switch {
	case s.Kind == migration.Start && len(at) != 0, s.Kind == migration.Move && (len(at) != 1 || at[0] != s.From):
		return fmt.Errorf("the VM is on %v", at)
	case s.From == s.To:
		return fmt.Errorf("goes nowhere")
	case x.p.Hosts[s.To].Cordoned:
		return fmt.Errorf("host %d is cordoned", s.To)
	case s.Kind == migration.Move && slices.Contains(x.p.Groups[s.Group].Pinned, s.VM):
		return fmt.Errorf("the VM is held")
	}
	runs := false
	for vm := range x.p.Groups[s.Group].Count {
		runs = runs || len(x.at[where{s.Group, vm}]) > 0
	}
	if !runs {
		x.cap[s.Group] = s.CPU
	}
	if math.Abs(x.cap[s.Group]-s.CPU) > 1e-9*s.CPU {
		return fmt.Errorf("comes with %v cores, its group has %v", s.CPU, x.cap[s.Group])
	}
	x.reserve(vm, append(slices.Clone(at), s.To)...)
	x.moving[i] = true
	return nil
}

// end ends a step, or one cap of it.
func (x *execution) end(i int) {
	s := x.plan.Steps[i]
	if len(x.todo[i]) > 0 {
		x.cap[x.todo[i][0].Group] = x.todo[i][0].CPU
		for vm := range x.p.Groups[x.todo[i][0].Group].Count {
			for _, j := range x.at[where{x.todo[i][0].Group, vm}] {
				x.changed[j] = true
			}
		}
		x.todo[i] = x.todo[i][1:]
		return
	}
	x.ended[i] = true
	if s.Kind != migration.Adjust {
		x.reserve(where{s.Group, s.VM}, s.To)
		delete(x.moving, i)
	}
}

// reserve says which hosts have a copy of a VM from now on.
func (x *execution) reserve(w where, hosts ...int) {
	for _, j := range x.at[w] {
		x.on[j] = slices.DeleteFunc(x.on[j], func(o where) bool { return o == w })
		x.changed[j] = true
	}
	x.at[w] = hosts
	for _, j := range hosts {
		x.on[j] = append(x.on[j], w)
		x.changed[j] = true
	}
}

func (x *execution) memory(j int) (used, kept float64) {
	reserves := allocator.Reserve[float64]{LargestOnly: x.p.LargestOnly}
	for _, w := range x.on[j] {
		used += x.p.Groups[w.group].Memory
		reserves.Add(x.p.Groups[w.group].Reclaimable)
	}
	return used, reserves.Bytes()
}

// look looks at all hosts on which something has changed.
func (x *execution) look() error {
	perHost, perLink, total := make([]int, len(x.p.Hosts)), map[string]int{}, 0
	for i := range x.moving {
		s := x.plan.Steps[i]
		if s.Kind != migration.Move {
			continue
		}
		total++
		perHost[s.From]++
		perHost[s.To]++
		a, b := x.p.Hosts[s.From].Link, x.p.Hosts[s.To].Link
		perLink[a]++
		if a != b {
			perLink[b]++
		}
		for k := range x.todo {
			for _, c := range x.todo[k] {
				if c.Group == s.Group {
					return fmt.Errorf("the cap of group %d changes while step %d moves a VM of it", c.Group, i)
				}
			}
		}
	}
	l := x.p.Limits
	delete(perLink, "")
	for name, n := range perLink {
		if l.PerLink > 0 && n > l.PerLink {
			return fmt.Errorf("%d moves over link %s", n, name)
		}
	}
	if l.Total > 0 && total > l.Total {
		return fmt.Errorf("%d moves at once", total)
	}
	for j, h := range x.p.Hosts {
		if l.PerHost > 0 && perHost[j] > l.PerHost {
			return fmt.Errorf("host %d: %d moves at once", j, perHost[j])
		}
		if !x.changed[j] {
			continue
		}
		delete(x.changed, j)
		used, kept := x.memory(j)
		if used+kept > x.initial[j]+1e-9*h.Memory {
			return fmt.Errorf("host %d: memory %v of %v less %v and %v", j, used, h.Memory, h.Reserve, kept)
		}
		cpu, here := 0.0, x.on[j]
		for _, w := range here {
			cpu += x.cap[w.group]
		}
		if cpu > h.CPU*(1+1e-9) {
			return fmt.Errorf("host %d: caps sum to %v of %v", j, cpu, h.CPU)
		}
		if x.p.Rules == nil {
			continue
		}
		for _, a := range here {
			if a.group >= len(x.p.Rules.Affinity) || x.p.Rules.Affinity[a.group] == nil {
				continue
			}
			rule := x.p.Rules.Affinity[a.group]
			for _, b := range here {
				if a == b {
					continue
				}
				if rule.Spread == "host" && a.group == b.group {
					return fmt.Errorf("host %d: two VMs of group %d, which is spread", j, a.group)
				}
				if slices.Contains(rule.Avoid, "vc:"+x.p.Groups[b.group].Name) {
					return fmt.Errorf("host %d: group %d avoids group %d", j, a.group, b.group)
				}
			}
			if slices.Contains(rule.Avoid, "host:"+h.Name) {
				return fmt.Errorf("host %d: group %d avoids it", j, a.group)
			}
		}
	}
	return nil
}
