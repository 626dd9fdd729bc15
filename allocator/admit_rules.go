package allocator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/allocator/search"
)

// ruling is what rules mean for the VMs that an admission places, beside those
// that stay. VMs that stay are taken as they are: what they require or prefer
// counts no more, what they avoid does.
type ruling struct {
	names   names
	groups  []Group
	hosts   []Host
	rules   *Rules
	byHost  [][]uint64  // [group]: hosts that its terms allow; nil: all
	apart   [][]uint64  // [group]: groups whose VMs may not be on a host with one of it
	with    [][]company // [group]: of each, another VM must be on the host
	present [][]uint64  // [host]: of the groups that matter, those with VMs that stay there

	company search.Rules // apart and with, by group
}

// company is a required term that names VMs.
type company struct {
	term   string
	groups []uint64
}

func in(set []uint64, i int) bool { return i>>6 < len(set) && set[i>>6]>>(i&63)&1 != 0 }

func put(set []uint64, i, size int) []uint64 {
	if set == nil {
		set = make([]uint64, (size+63)/64)
	}
	set[i>>6] |= 1 << (i & 63)
	return set
}

// check what a rule may look like, whatever it names.
func (r *Rules) check(p *Problem) error {
	if r == nil {
		return nil
	}
	if len(r.Affinity) > len(p.Groups) || len(r.Labels) > len(p.Groups) {
		return fmt.Errorf("rules for %d groups of %d", max(len(r.Affinity), len(r.Labels)), len(p.Groups))
	}
	for g, a := range r.Affinity {
		if a != nil && a.Spread != "" && a.Spread != "host" {
			return fmt.Errorf("group %s: affinity.spread: %q is not known (host is)", groupName(p.Groups, g), a.Spread)
		}
	}
	return nil
}

// rulingOf the rules for the groups of which VMs are to be placed, nil if no
// rule restricts any of these.
func rulingOf(p *Problem, r *Rules, fixed [][]load, unplaced []int) *ruling {
	if r == nil || !slices.ContainsFunc(r.Affinity, func(a *Affinity) bool { return a != nil }) {
		return nil
	}
	groups := len(p.Groups)
	u := &ruling{rules: r, names: r.names(p), groups: p.Groups, hosts: p.Hosts,
		byHost: make([][]uint64, groups), apart: make([][]uint64, groups), with: make([][]company, groups)}
	for g, rule := range r.Affinity {
		if rule == nil {
			continue
		}
		if rule.Spread != "" {
			u.apart[g] = put(u.apart[g], g, groups)
		}
		u.require(g, rule)
		u.avoid(g, rule)
	}
	var matter []uint64
	bound := false
	for g, n := range unplaced {
		if n == 0 {
			continue
		}
		bound = bound || u.byHost[g] != nil || u.apart[g] != nil || u.with[g] != nil
		for o := range groups {
			if in(u.apart[g], o) || slices.ContainsFunc(u.with[g], func(c company) bool { return in(c.groups, o) }) {
				matter = put(matter, o, groups)
			}
		}
	}
	if !bound {
		return nil
	}
	u.company = search.Rules{Apart: u.apart, With: make([][][]uint64, groups)}
	for g := range u.with {
		for _, c := range u.with[g] {
			u.company.With[g] = append(u.company.With[g], c.groups)
		}
	}
	u.present = make([][]uint64, len(p.Hosts))
	for g := range fixed {
		if in(matter, g) {
			for _, l := range fixed[g] {
				u.present[l.host] = put(u.present[l.host], g, groups)
			}
		}
	}
	return u
}

// avoid notes the terms that a group avoids: no host of them, and no group beside it.
func (u *ruling) avoid(g int, rule *Affinity) {
	for _, term := range rule.Avoid {
		m := u.meant(term)
		if m.hosts == nil {
			for o := range u.groups {
				if in(m.groups, o) {
					u.apart[g], u.apart[o] = put(u.apart[g], o, len(u.groups)), put(u.apart[o], g, len(u.groups))
				}
			}
			continue
		}
		if u.byHost[g] == nil {
			u.byHost[g] = fill(len(u.hosts))
		}
		for k := range m.hosts {
			u.byHost[g][k] &^= m.hosts[k]
		}
	}
}

// require notes the required terms of a group: of the hosts one, of the others all.
func (u *ruling) require(g int, rule *Affinity) {
	var hosts []uint64
	for _, term := range rule.Require {
		m := u.meant(term)
		if m.hosts == nil {
			u.with[g] = append(u.with[g], company{term, m.groups})
			continue
		}
		if hosts == nil {
			hosts = make([]uint64, (len(u.hosts)+63)/64)
		}
		for k := range m.hosts {
			hosts[k] |= m.hosts[k]
		}
	}
	u.byHost[g] = hosts
}

// meant is what a term stands for. What is not there any more stands for nothing.
func (u *ruling) meant(term string) meant {
	m, _ := u.names.lookUp(term)
	if strings.HasPrefix(term, "host:") && m.hosts == nil {
		m = meant{hosts: []uint64{}}
	}
	return m
}

// open says whether the rules let a VM of the group onto the host beside VMs of
// the groups in on, company aside.
func (u *ruling) open(g, j int, on []uint64) bool {
	return (u.byHost[g] == nil || in(u.byHost[g], j)) && !search.Meet(u.apart[g], on)
}

// lonely says whether a VM of the group would miss company on a host with VMs of on.
func (u *ruling) lonely(g int, on []uint64) bool {
	for _, c := range u.with[g] {
		if !search.Meet(c.groups, on) {
			return true
		}
	}
	return false
}

// RefusalKind is what kind of rule keeps a VM from a host.
type RefusalKind int

const (
	NoRefusal   RefusalKind = iota // no rule does
	ByRequire                      // the host, or what is on it, is not what the VM requires
	ByAvoidHost                    // the VM avoids this host by its name
	ByAvoid                        // the VM avoids one that is there, or is avoided by it
	BySpread                       // another VM of its group is there
)

// Refusal is the rule that keeps a VM from a host.
type Refusal struct {
	Kind RefusalKind
	Term string // as it was written, such as "app=db"; several hosts that are required stand one after the other
}

// String returns the rule as "avoid app=db"; "" if there is none.
func (r Refusal) String() string {
	switch r.Kind {
	case ByRequire:
		return "require " + r.Term
	case ByAvoidHost, ByAvoid:
		return "avoid " + r.Term
	case BySpread:
		return "spread " + r.Term
	}
	return ""
}

// why says which rule keeps a VM of the group from the host, where VMs of the
// groups in on are.
func (u *ruling) why(g, j int, on []uint64) (rule Refusal, text string) {
	a := &Affinity{}
	if g < len(u.rules.Affinity) && u.rules.Affinity[g] != nil {
		a = u.rules.Affinity[g]
	}
	there := func(set []uint64) string {
		for o := range u.groups {
			if in(set, o) && in(on, o) {
				return groupName(u.groups, o)
			}
		}
		return ""
	}
	var hosts []string
	required := false
	for _, term := range a.Require {
		if m := u.meant(term); m.hosts != nil {
			hosts = append(hosts, term)
			required = required || in(m.hosts, j)
		}
	}
	if len(hosts) > 0 && !required {
		rule = Refusal{ByRequire, strings.Join(hosts, ", ")}
		if len(hosts) == 1 {
			return rule, rule.String() + ": this is another host"
		}
		return rule, rule.String() + ": this is none of them"
	}
	for _, term := range a.Avoid {
		if m := u.meant(term); m.hosts != nil {
			if in(m.hosts, j) {
				rule = Refusal{ByAvoidHost, term}
				return rule, rule.String() + ": this is the host"
			}
		} else if o := there(m.groups); o != "" {
			rule = Refusal{ByAvoid, term}
			return rule, fmt.Sprintf("%s: a VM of %s is on it", rule, o)
		}
	}
	if a.Spread != "" && in(on, g) {
		rule = Refusal{BySpread, "host"}
		return rule, rule.String() + ": a VM of the group is on it"
	}
	for o, other := range u.rules.Affinity {
		if other == nil || !in(on, o) {
			continue
		}
		for _, term := range other.Avoid {
			if in(u.meant(term).groups, g) {
				rule = Refusal{ByAvoid, term}
				return rule, fmt.Sprintf("%s: so says %s, a VM of which is on it", rule, groupName(u.groups, o))
			}
		}
	}
	for _, c := range u.with[g] {
		if there(c.groups) == "" {
			rule = Refusal{ByRequire, c.term}
			return rule, fmt.Sprintf("%s: no other VM that it names is on it", rule)
		}
	}
	return Refusal{}, ""
}

// deal is a placement of as many VMs as one pass of putting down finds.
type deal struct {
	cpu, memory []float64  // [host]: free
	on          [][]uint64 // [host]: groups
	here        []int      // [host]: new VMs
	left        []int      // [group]
	total       int        // sum of left
}

// putDown places VMs by the rules, group after group: groups with fewer required terms first, since
// others may require them, then the largest. It fills one host after another with as many VMs as
// each takes. pk must have begun with the needs. fullest: hosts with the least room left come
// first.
func (u *ruling) putDown(pk *packer, need []float64, unplaced []int, fullest bool) deal {
	d := deal{cpu: slices.Clone(pk.freeCPU), memory: slices.Clone(pk.freeMemory), here: make([]int, len(u.hosts)),
		on: make([][]uint64, len(u.hosts)), left: slices.Clone(unplaced)}
	for j := range d.on {
		d.on[j] = slices.Clone(u.present[j])
	}
	var order []int
	size := make([]float64, len(need))
	var cpu, memory float64
	for j := range u.hosts {
		cpu, memory = max(cpu, u.hosts[j].CPU), max(memory, u.hosts[j].Memory)
	}
	for g, n := range unplaced {
		if n > 0 {
			order = append(order, g)
			size[g] = max(fraction(need[g], cpu), fraction(u.groups[g].Memory, memory))
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(len(u.with[x]), len(u.with[y])), cmp.Compare(size[y], size[x]))
	})
	hosts, room := make([]int, len(u.hosts)), make([]float64, len(u.hosts))
	for _, g := range order {
		for j := range hosts {
			hosts[j] = j
			room[j] = min(fraction(d.cpu[j], cpu), fraction(d.memory[j], memory))
		}
		slices.SortStableFunc(hosts, func(x, y int) int {
			if fullest {
				x, y = y, x
			}
			return cmp.Compare(room[y], room[x])
		})
		for _, j := range hosts {
			if d.left[g] == 0 {
				break
			}
			if pk.closed[j] || !u.open(g, j, d.on[j]) || u.lonely(g, d.on[j]) && !d.begin(u, g, j, need) {
				continue
			}
			n := min(d.left[g], times(d.cpu[j]+roundingSlack*u.hosts[j].CPU, need[g]), times(d.memory[j]+roundingSlack*u.hosts[j].Memory, u.groups[g].Memory))
			if in(u.apart[g], g) {
				n = min(n, 1)
				if in(d.on[j], g) {
					n = 0
				}
			}
			// The last one of VMs that require each other would be alone on the next host.
			if n == d.left[g]-1 && n > 1 && len(u.with[g]) > 0 && !u.lonely(g, put(nil, g, len(u.groups))) {
				n--
			}
			if n > 0 {
				d.put(u, g, j, n, need)
			}
		}
	}
	for _, n := range d.left {
		d.total += n
	}
	return d
}

// begin places one VM of the group on the host together with the VMs without which it would miss company there, and
// reports whether it did. More VMs of the group may then follow.
func (d *deal) begin(u *ruling, g, j int, need []float64) bool {
	party, _ := search.Party(int32(g), d.on[j], func(c int32) int { return d.left[c] }, &u.company, func(party []int32) bool { //nolint:gosec // MaxVMs bounds groups
		cpu, memory := d.cpu[j]+roundingSlack*u.hosts[j].CPU, d.memory[j]+roundingSlack*u.hosts[j].Memory
		for _, c := range party {
			cpu, memory = cpu-need[c], memory-u.groups[c].Memory
		}
		last := int(party[len(party)-1])
		return cpu >= 0 && memory >= 0 && (u.byHost[last] == nil || in(u.byHost[last], j))
	})
	for _, c := range party {
		d.put(u, int(c), j, 1, need)
	}
	return party != nil
}

// put places n VMs of a group.
func (d *deal) put(u *ruling, g, j, n int, need []float64) {
	d.cpu[j] -= float64(n) * need[g]
	d.memory[j] -= float64(n) * u.groups[g].Memory
	d.left[g] -= n
	d.here[j] += n
	d.on[j] = put(d.on[j], g, len(u.groups))
}

// times is how many times size fits into room.
func times(room, size float64) int {
	switch {
	case room < 0:
		return 0
	case size <= 0 || room/size >= MaxVMs:
		return MaxVMs
	}
	return int(math.Floor(room / size))
}

// placeMaximal is the better of the two ways of putting down.
func (u *ruling) placeMaximal(pk *packer, need []float64, unplaced []int) deal {
	d := u.putDown(pk, need, unplaced, false)
	if d.total > 0 {
		if o := u.putDown(pk, need, unplaced, true); o.total < d.total {
			return o
		}
	}
	return d
}
