package allocator

import (
	"slices"

	"evenkeel/allocator/search"
)

// maxPreferred bounds the moves that prefer looks at.
const maxPreferred = 1 << 20

// prefer moves single new VMs to where more of what their groups prefer is met, as
// far as every virtual cluster keeps the least yield reached. ok: something changed.
func (a *admission) prefer(loads [][]load, lowest float64) (better [][]load, ok bool) {
	if !a.hasPreferences() {
		return nil, false
	}
	p, r := a.p, a.rules
	a.needAt(lowest)
	b := newBoard(p, r, loads, a.need)
	fixed := make([]int, len(p.Hosts))
	tries := 0
	for range 4 {
		moved := false
		for g := range p.Groups {
			want := a.preferred(g)
			if len(want) == 0 {
				continue
			}
			clear(fixed)
			for _, l := range a.fixed[g] {
				fixed[l.host] = l.n
			}
			for from := range p.Hosts {
				for n := b.count(g, from) - fixed[from]; n > 0; n-- {
					b.take(g, from)
					at, limit := from, b.met(g, from, want)
					for j := range p.Hosts {
						if tries++; tries > maxPreferred || limit == len(want) {
							break
						}
						if j != from && !a.pk.closed[j] && b.met(g, j, want) > limit && b.takes(g, j) && b.spares(g, from) {
							at, limit = j, b.met(g, j, want)
						}
					}
					b.put(g, at)
					moved = moved || at != from
				}
			}
		}
		if !moved {
			break
		}
		ok = true
	}
	if !ok {
		return nil, false
	}
	return b.loads(), true
}

// preferred are the terms that a group with VMs to be placed prefers.
func (a *admission) preferred(g int) []string {
	if a.rules == nil || a.unplaced[g] == 0 || g >= len(a.rules.Affinity) || a.rules.Affinity[g] == nil {
		return nil
	}
	return a.rules.Affinity[g].Prefer
}

// hasPreferences says whether something is preferred.
func (a *admission) hasPreferences() bool {
	for g := range a.unplaced {
		if len(a.preferred(g)) > 0 {
			return true
		}
	}
	return false
}

// board is a placement of which single VMs are moved by the rules.
type board struct {
	p           *Problem
	u           *ruling
	need        []float64
	cpu, memory []float64     // [host]: free
	n           []map[int]int // [host]: VMs by group
	on          [][]uint64    // [host]: groups with VMs there
	requiring   []int         // groups with required company
}

func newBoard(p *Problem, r *Rules, loads [][]load, need []float64) *board {
	all := make([]int, len(p.Groups))
	for g := range all {
		all[g] = 1 // rulings for every group
	}
	b := &board{p: p, need: need, cpu: make([]float64, len(p.Hosts)), memory: make([]float64, len(p.Hosts)),
		n: make([]map[int]int, len(p.Hosts)), on: make([][]uint64, len(p.Hosts))}
	b.u = rulingOf(p, r, nil, all)
	if b.u == nil {
		none := len(p.Groups)
		b.u = &ruling{rules: r, names: r.names(p), groups: p.Groups, hosts: p.Hosts,
			byHost: make([][]uint64, none), apart: make([][]uint64, none), with: make([][]company, none)}
	}
	for g := range p.Groups {
		if len(b.u.with[g]) > 0 {
			b.requiring = append(b.requiring, g)
		}
	}
	for j := range p.Hosts {
		b.n[j], b.cpu[j], b.memory[j] = map[int]int{}, p.Hosts[j].CPU, p.Hosts[j].Memory
	}
	for g := range loads {
		for _, l := range loads[g] {
			for range l.n {
				b.put(g, l.host)
			}
		}
	}
	return b
}

func (b *board) count(g, j int) int { return b.n[j][g] }

func (b *board) put(g, j int) {
	b.n[j][g]++
	b.on[j] = put(b.on[j], g, len(b.p.Groups))
	b.cpu[j] -= b.need[g]
	b.memory[j] -= b.p.Groups[g].Memory
}

func (b *board) take(g, j int) {
	b.n[j][g]--
	if b.n[j][g] == 0 {
		b.on[j][g>>6] &^= 1 << (g & 63)
	}
	b.cpu[j] += b.need[g]
	b.memory[j] += b.p.Groups[g].Memory
}

// met is how many of the terms hold for a VM of the group on the host.
func (b *board) met(g, j int, terms []string) (n int) {
	for _, term := range terms {
		if m := b.u.meant(term); m.hosts != nil && in(m.hosts, j) || m.hosts == nil && search.Meet(m.groups, b.on[j]) {
			n++
		}
	}
	return n
}

// takes says whether a VM of the group may be put on the host.
func (b *board) takes(g, j int) bool {
	h := &b.p.Hosts[j]
	return b.cpu[j]-b.need[g] >= -roundingSlack*h.CPU && b.memory[j]-b.p.Groups[g].Memory >= -roundingSlack*h.Memory &&
		b.u.open(g, j, b.on[j]) && !b.u.lonely(g, b.on[j])
}

// spares says whether no VM on the host requires the one of the group that was taken away.
func (b *board) spares(g, j int) bool {
	for _, o := range b.requiring {
		n := b.count(o, j)
		if n == 0 {
			continue
		}
		for _, c := range b.u.with[o] {
			if in(c.groups, g) && !b.accompanied(o, j, c.groups) {
				return false
			}
		}
	}
	return true
}

// accompanied says whether each VM of group o on the host has another one of the groups there.
func (b *board) accompanied(o, j int, groups []uint64) bool {
	if in(groups, o) && b.count(o, j) > 1 {
		return true
	}
	for g := range b.p.Groups {
		if g != o && in(groups, g) && b.count(g, j) > 0 {
			return true
		}
	}
	return false
}

func (b *board) loads() [][]load {
	loads := make([][]load, len(b.p.Groups))
	for j := range b.n {
		for g, n := range b.n[j] {
			if n > 0 {
				loads[g] = append(loads[g], load{j, n})
			}
		}
	}
	return loads
}

// Broken is a rule that a placement does not keep.
type Broken struct {
	Group int // of Problem.Groups
	VM    int // of the group
	Host  int // where it is
	Rule  Refusal
	Text  string // the rule and what is in its way
}

// Broken lists what the rules are broken by, VM after VM: at most one rule of each.
// VMs without a host (-1) are passed over. hosts has one entry per VM of each group.
func (r *Rules) Broken(p Problem, hosts [][]int) []Broken {
	if p.Validate() != nil || r == nil || r.check(&p) != nil || len(hosts) != len(p.Groups) {
		return nil
	}
	placed := p
	placed.Groups = slices.Clone(p.Groups)
	for g := range placed.Groups {
		placed.Groups[g].Hosts = hosts[g]
	}
	if placed.Validate() != nil {
		return nil
	}
	loads, _ := countLoads(&placed)
	b := newBoard(&placed, r, loads, make([]float64, len(p.Groups)))
	var broken []Broken
	for g := range hosts {
		for vm, j := range hosts[g] {
			if j < 0 {
				continue
			}
			b.take(g, j)
			if rule, text := b.u.why(g, j, b.on[j]); rule.Kind != NoRefusal {
				broken = append(broken, Broken{g, vm, j, rule, text})
			}
			b.put(g, j)
		}
	}
	return broken
}
