package migration

import (
	"cmp"
	"fmt"
	"slices"
)

// Blocker is a VM that cannot leave its host while those that leave do, and why.
type Blocker struct {
	Group, VM int
	Host      int
	Cause     Cause
	Why       string   // in words
	Advice    []Advice // changes that would let it leave, the smallest first

	// Proved: it cannot leave beside those that leave, whatever is moved within the rules and floors. If not, no order of
	// moves was found, as Why says within how many steps, or the budget does not allow one.
	Proved bool
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
			e.stuck[vm], e.why[vm] = left, e.last
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
		if b.Proved = c == pinned; c == left {
			e.explain(&b, vm, at, out.Bytes)
			e.prove(&b, e.why[vm])
		}
		out.Blockers = append(out.Blockers, b)
	}
}

// prove adds to what is said of a VM that stays why no order of moves lets it leave, or how far one was looked for.
func (e *emptying) prove(b *Blocker, known finding) {
	switch {
	case known.proof != "":
		b.Proved = true
		b.Why += "; no order of moves changes that: " + known.proof
	case b.Cause != ByBudget:
		b.Why += fmt.Sprintf("; no order of moves that changes it was found within %d steps, which proves nothing", known.steps)
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
		b.Why = "there is room for it only once others have moved, or without others that leave"
		b.Advice = append([]Advice{Advice(fmt.Sprintf("free %s on any other host for a while", size(e.f.of(vm).Memory)))}, e.f.lastly(vm)...)
	}
}
