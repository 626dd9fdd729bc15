package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Blocker is a VM that cannot leave its host while those that leave do, and why.
type Blocker struct {
	Group, VM int
	Host      int
	Cause     Cause
	Why       string   // in words
	Advice    []Advice // changes that would let it leave, the smallest first
}

// Advice names one change that would let a VM leave.
type Advice string

// StopIt is the advice that always helps.
const StopIt Advice = "stop it"

const addHost Advice = "add a host"

// Cause of a Blocker.
type Cause string

// The causes there are.
const (
	ByPinned Cause = "held"   // it is among Group.Pinned
	ByRules  Cause = "rules"  // rules keep it from every host that takes VMs
	ByMemory Cause = "memory" // no host has the memory
	ByYield  Cause = "yield"  // some virtual cluster would get less than its MinYield
	ByBudget Cause = "budget" // its move, or those that make room for it, cost more than is left
	ByOrder  Cause = "order"  // there would be room, but no VM can move first
	ByCordon Cause = "cordon" // no other host takes VMs
	ByRoute  Cause = "way"    // its host cannot send VMs to those that could take it
)

// cause is what is known of a VM that stays.
type cause int

const (
	pinned cause = iota
	left         // no way was found for it
)

// maximal are as many of the VMs as can leave together, the cheapest first; the others are stuck.
func (e *emptying) maximal(vms []int) []int {
	units := newPlacementTable(e.f).units(vms)
	bytes := func(unit []int) (b float64) {
		for _, vm := range unit {
			b += e.f.bytes[vm]
		}
		return b
	}
	slices.SortStableFunc(units, func(a, b []int) int { return cmp.Compare(bytes(a), bytes(b)) })
	var evicted []int
	for _, unit := range units {
		if more := append(slices.Clip(evicted), unit...); len(e.candidates(more, false)) > 0 {
			evicted = more
			continue
		}
		for _, vm := range unit {
			e.stuck[vm] = left
		}
	}
	slices.Sort(evicted)
	return evicted
}

// blockers says of every VM that stays why.
func (e *emptying) blockers(out *Drained) {
	f := e.f
	at := slices.Clone(f.home)
	if out.Hosts != nil {
		for vm := range at {
			at[vm] = out.Hosts[f.group[vm]][vm-f.first[f.group[vm]]]
		}
	}
	for vm := range at {
		c, stays := e.stuck[vm]
		if !stays {
			continue
		}
		b := Blocker{Group: f.group[vm], VM: vm - f.first[f.group[vm]], Host: f.home[vm], Cause: ByPinned,
			Why: "it cannot be moved while it runs", Advice: []Advice{StopIt}}
		if c == left {
			e.explain(&b, vm, at, out.Bytes)
		}
		out.Blockers = append(out.Blockers, b)
	}
}

// verdict of a host on a VM.
type verdict struct {
	host    int
	cause   Cause
	other   int     // the VM that it must be apart from, -1
	deficit float64 // memory
	yield   float64 // with it
	route   string  // why there is none
}

// judge what keeps a VM from a host, others being where they are; "" if nothing.
func (s *placementTable) judge(vm, j int) verdict {
	v := verdict{host: j, other: -1}
	unit := []int{vm}
	deficit := -s.memory(j, unit)
	v.yield = s.yieldWith(j, unit)
	v.route = s.f.noRoute(s.f.home[vm], j)
	switch {
	case v.route != "":
		v.cause = ByRoute
	case !s.f.rules.Allowed(s.f.group[vm], j):
		v.cause = ByRules
	case s.apart(j, unit) >= 0:
		v.cause, v.other = ByRules, s.apart(j, unit)
	case deficit > 0:
		v.cause, v.deficit = ByMemory, deficit
	case !s.kept(j, unit):
		v.cause = ByRules
	case v.yield < 0:
		v.cause = ByYield
	}
	if v.cause == "" && !s.open[j] {
		v.cause = ByCordon
	}
	return v
}

// explain says why no host was found for a VM.
func (e *emptying) explain(b *Blocker, vm int, at []int, spent float64) {
	s := newPlacementTable(e.f)
	for other, j := range at {
		if s.at[other] != j {
			s.move(other, j)
		}
	}
	b.Cause, b.Why, b.Advice = s.refusal(vm, e.leaves)
	if b.Cause != "" {
		return
	}
	// There is room on some host.
	over := spent + e.f.bytes[vm]
	switch {
	case over > e.d.Budget && spent > 0:
		b.Cause = ByBudget
		b.Why = fmt.Sprintf("its move is predicted to take %s, and %s of the budget of %s are spent on others", size(e.f.bytes[vm]), size(spent), size(e.d.Budget))
		b.Advice = []Advice{Advice("allow " + size(over))}
	case over > e.d.Budget:
		b.Cause = ByBudget
		b.Why = fmt.Sprintf("its move is predicted to take %s, and the budget is %s", size(e.f.bytes[vm]), size(e.d.Budget))
		b.Advice = []Advice{Advice("allow " + size(over))}
	default:
		b.Cause = ByOrder
		b.Why = "there is room for it only once others have moved, and no order was found in which they can"
		b.Advice = []Advice{Advice(fmt.Sprintf("free %s on any other host for a while", size(e.f.of(vm).Memory))), addHost, StopIt}
	}
}

// refusal sums up why no host takes a VM that is on one of those that leave: "" if one would. Hosts that leave
// themselves are no choice.
func (s *placementTable) refusal(vm int, leaves []bool) (c Cause, why string, advice []Advice) {
	f := s.f
	var rules, memory, yields, closed, away, routes []verdict
	all := 0
	for j := range s.open {
		if j == f.home[vm] || leaves != nil && leaves[j] {
			continue
		}
		all++
		switch v := s.judge(vm, j); v.cause {
		case "":
			return "", "", nil
		case ByRules:
			rules = append(rules, v)
		case ByMemory:
			memory = append(memory, v)
		case ByYield:
			yields = append(yields, v)
		case ByCordon:
			if f.p.Hosts[j].Unavailable != "" {
				away = append(away, v)
			} else {
				closed = append(closed, v)
			}
		case ByRoute:
			routes = append(routes, v)
		}
	}
	name := func(j int) string { return "host " + f.p.Hosts[j].Name }
	var parts []string
	say := func(vs []verdict, one, many string) {
		switch n := len(vs); {
		case n == 1:
			parts = append(parts, name(vs[0].host)+" "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d hosts %s", n, many))
		}
	}
	say(closed, "is cordoned", "are cordoned")
	if len(closed) > 0 {
		c = ByCordon
		advice = append(advice, Advice("uncordon "+name(closed[0].host)))
	}
	if len(away) > 0 {
		c = ByCordon
		why := name(away[0].host) + " " + f.p.Hosts[away[0].host].Unavailable
		if n := len(away); n > 1 {
			why = fmt.Sprintf("%d hosts take no VMs now, the first because %s", n, why)
		}
		parts, advice = append(parts, why), append(advice, Advice("bring "+name(away[0].host)+" back"))
	}
	// Memory: of a host that takes VMs, the one that lacks least.
	slices.SortStableFunc(memory, func(a, b verdict) int { return cmp.Compare(a.deficit, b.deficit) })
	if i := slices.IndexFunc(memory, func(v verdict) bool { return s.open[v.host] }); i >= 0 || len(memory) > 0 {
		v := memory[max(0, i)]
		c = ByMemory
		if n := len(memory); n == 1 {
			parts = append(parts, fmt.Sprintf("%s has %s of memory too little for it", name(v.host), size(v.deficit)))
		} else {
			parts = append(parts, fmt.Sprintf("%d hosts have too little memory for it, %s least: %s", n, name(v.host), size(v.deficit)))
		}
		free := Advice(fmt.Sprintf("free %s on %s", size(v.deficit), name(v.host)))
		switch {
		case s.open[v.host]:
		case f.p.Hosts[v.host].Unavailable != "":
			free += " and bring it back"
		default:
			free += " and uncordon it"
		}
		advice = append(advice, free)
	}
	say(yields, "could not give its VMs what they must have", "could not give their VMs what they must have")
	if len(yields) > 0 {
		c = ByYield
		advice = append(advice, Advice(fmt.Sprintf("lower the least yield of %s, or of VMs on %s", f.of(vm).title(), name(yields[0].host))))
	}
	if len(rules) > 0 {
		parts = append(parts, s.explainRules(vm, rules))
		if len(rules) == all || c == "" {
			c = ByRules
		}
		advice = append(advice, Advice("loosen the rules of "+f.of(vm).title()))
	}
	if len(routes) > 0 {
		parts = append(parts, s.explainRoutes(vm, routes))
		if len(routes) == all || c == "" {
			c = ByRoute
		}
		advice = append(advice, Advice("have "+name(f.home[vm])+" reach "+name(routes[0].host)))
	}
	if all == 0 {
		return ByCordon, "there is no other host", []Advice{addHost, StopIt}
	}
	why = "no host can take it: "
	for i, part := range parts {
		if i > 0 {
			why += "; "
		}
		why += part
	}
	return c, why, append(advice, addHost, StopIt)
}

// explainRoutes says why a VM cannot be sent to hosts, equal reasons once.
func (s *placementTable) explainRoutes(vm int, routes []verdict) string {
	to := map[string][]string{}
	var causes []string
	for _, v := range routes {
		if to[v.route] == nil {
			causes = append(causes, v.route)
		}
		to[v.route] = append(to[v.route], s.f.p.Hosts[v.host].Name)
	}
	for i, why := range causes {
		causes[i] = fmt.Sprintf("host %s cannot send VMs to %s: %s", s.f.p.Hosts[s.f.home[vm]].Name, listed(to[why]), why)
	}
	return strings.Join(causes, "; ")
}

// explainRules says what rules keep a VM from hosts.
func (s *placementTable) explainRules(vm int, rules []verdict) string {
	name := func(j int) string { return "host " + s.f.p.Hosts[j].Name }
	i := slices.IndexFunc(rules, func(v verdict) bool { return v.other >= 0 })
	switch n := len(rules); {
	case n == 1 && i >= 0:
		return fmt.Sprintf("%s has %s, which it must be apart from", name(rules[i].host), s.f.name(rules[i].other))
	case n == 1:
		return fmt.Sprintf("its rules keep it from %s", name(rules[0].host))
	case i >= 0:
		return fmt.Sprintf("its rules keep it from %d hosts (as %s, which it must be apart from, on %s)", n, s.f.name(rules[i].other), name(rules[i].host))
	}
	return fmt.Sprintf("its rules keep it from %d hosts", len(rules))
}
