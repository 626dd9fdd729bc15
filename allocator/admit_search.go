package allocator

import (
	"cmp"
	"slices"

	"evenkeel/allocator/search"
)

// Bounds of the search for one request. It places up to maxSought VMs, up to maxRuled where rules
// leave the request to the search alone, and up to maxTried where only advice depends on it. The
// steps keep it to some milliseconds.
const (
	maxSought   = 1024
	maxRuled    = 1 << 15
	maxTried    = 128
	soughtSteps = 400_000
	closerSteps = 50_000
	closerTries = 6
)

// seek places the VMs of the request where the packing has failed: any placement
// with every yield at its least, then, a few times, one with greater yields.
// It returns nil if it finds none. It does not depend on the order of the groups.
func (a *admission) seek() [][]load {
	tries := closerTries
	if a.ruled != nil {
		tries *= 2
	} else if a.asked > maxSought {
		return nil
	}
	if a.asked == 0 || a.asked > maxRuled {
		return nil
	}
	q := newQuest(a)
	a.needAt(0)
	loads := q.at(soughtSteps)
	if loads == nil {
		return nil
	}
	lo, hi := 0.0, 1.0
	if a.ruled != nil {
		a.needAt(1)
		if better := q.at(closerSteps); better != nil {
			return better
		}
	}
	for range tries {
		y := (lo + hi) / 2
		a.needAt(y)
		if better := q.at(closerSteps); better != nil {
			loads, lo = better, y
		} else {
			hi = y
		}
	}
	return loads
}

// quest is the model of what is left of the hosts for the VMs of a request.
type quest struct {
	a     *admission
	hosts []int // open ones
	group []int // [vm]; -1: stands for VMs that stay, as company
	host  []int32
	unit  float64
	m     search.Model
}

func newQuest(a *admission) *quest {
	q := &quest{a: a}
	memory := 0.0
	for j := range a.p.Hosts {
		if !a.pk.closed[j] {
			q.hosts = append(q.hosts, j)
			memory += a.p.Hosts[j].Memory
		}
	}
	order := make([]int, len(a.p.Groups))
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(x, y int) int {
		m, n := &a.p.Groups[x], &a.p.Groups[y]
		return cmp.Or(cmp.Compare(a.floor[y], a.floor[x]), cmp.Compare(n.CPU, m.CPU), cmp.Compare(n.Memory, m.Memory))
	})
	q.unit = powerUnder(0x1p59, memory)
	for _, g := range order {
		for range a.unplaced[g] {
			q.group = append(q.group, g)
			q.m.Size = append(q.m.Size, int64(min(a.p.Groups[g].Memory*q.unit, 0x1p60)))
		}
	}
	for _, j := range q.hosts {
		q.m.Memory = append(q.m.Memory, int64((max(0, a.pk.memory[j])+roundingSlack*a.p.Hosts[j].Memory)*q.unit))
	}
	if a.ruled != nil {
		q.rule()
	}
	q.m.CPU, q.m.Weight = make([]int64, len(q.hosts)), make([]int64, len(q.group))
	return q
}

// rule puts the rules into the model. VMs that stay are not in it: what they bar is
// taken out of the hosts that are allowed, and where they are company, a VM of no
// size stands for them.
func (q *quest) rule() {
	u := q.a.ruled
	r := &search.Rules{Budget: -1}
	class := make([]int32, len(u.groups))
	var groups []int // [class]
	var allowed [][]uint64
	for g, n := range q.a.unplaced {
		if n == 0 {
			continue
		}
		class[g] = int32(len(groups))
		groups = append(groups, g)
		set := make([]uint64, (len(q.hosts)+63)/64)
		for i, j := range q.hosts {
			if u.open(g, j, u.present[j]) {
				set[i>>6] |= 1 << (i & 63)
			}
		}
		allowed = append(allowed, set)
	}
	for _, g := range q.group {
		r.Class = append(r.Class, class[g])
		r.Allowed = append(r.Allowed, allowed[class[g]])
	}
	classes := len(groups)
	r.Apart = make([][]uint64, classes)
	if slices.ContainsFunc(groups, func(g int) bool { return len(u.with[g]) > 0 }) {
		r.With = make([][][]uint64, classes)
	}
	stands := map[string]int32{} // class that stands for those a term names
	for c, g := range groups {
		for d, o := range groups {
			if in(u.apart[g], o) {
				r.Apart[c] = put(r.Apart[c], d, classes)
			}
		}
		for _, term := range u.with[g] {
			var set []uint64
			for d, o := range groups {
				if in(term.groups, o) {
					set = put(set, d, classes)
				}
			}
			stand, known := stands[term.term]
			if !known {
				stand = -1
				for i, j := range q.hosts {
					if !search.Meet(term.groups, u.present[j]) {
						continue
					}
					if stand < 0 {
						stand = int32(len(r.Apart))
						r.Apart, r.With = append(r.Apart, nil), append(r.With, nil)
					}
					q.group, q.m.Size = append(q.group, -1), append(q.m.Size, 0)
					r.Class = append(r.Class, stand)
					r.Allowed = append(r.Allowed, put(nil, i, len(q.hosts)))
				}
				stands[term.term] = stand
			}
			if stand >= 0 {
				more := make([]uint64, max(len(set), int(stand>>6)+1))
				copy(more, set)
				set = put(more, int(stand), 0)
			}
			r.With[c] = append(r.With[c], set)
		}
	}
	q.m.Rules = r
}

// start returns the placement to begin with: the one found last. Where VMs must be with others and that one is too
// full, a placement dealt for the present needs is better: the search itself moves such VMs only where it packs few
// VMs again.
func (q *quest) start() []int32 {
	if q.host == nil || q.m.Rules == nil || q.m.Rules.With == nil || q.m.Level(q.host) <= 1 {
		return q.host
	}
	if dealt := search.Deal(&q.m); dealt != nil && q.m.Level(dealt) < q.m.Level(q.host) {
		return dealt
	}
	return q.host
}

// at looks for a placement in which every VM has the need that the admission
// has set. It begins with the one it found last.
func (q *quest) at(steps int64) [][]load {
	a := q.a
	if len(q.hosts) == 0 || !a.pk.begin(a.need) {
		return nil
	}
	total, capacity := 0.0, 0.0
	for _, j := range q.hosts {
		total += max(0, a.pk.freeCPU[j])
		capacity += a.p.Hosts[j].CPU
	}
	want, memory := 0.0, 0.0
	for _, g := range q.group {
		if g < 0 {
			continue
		}
		want += a.need[g]
		memory += a.p.Groups[g].Memory * q.unit
	}
	if want > total+provedSlack*capacity || memory > 0x1p60 {
		return nil
	}
	scale := powerUnder(0x1p52, max(capacity, want))
	for i, j := range q.hosts {
		q.m.CPU[i] = max(1, int64((max(0, a.pk.freeCPU[j])+roundingSlack*a.p.Hosts[j].CPU)*scale))
	}
	for vm, g := range q.group {
		if g >= 0 {
			q.m.Weight[vm] = int64(a.need[g] * scale)
		}
	}
	r := search.Minimize(&q.m, search.Options{Steps: steps, Goal: 1, Prove: true, Start: q.start()})
	if r.Host == nil || r.Level > 1 {
		return nil
	}
	q.host = r.Host
	n := make([][]load, len(a.p.Groups))
	for vm, i := range r.Host {
		g, j := q.group[vm], q.hosts[i]
		if g < 0 {
			continue
		}
		at := slices.IndexFunc(n[g], func(l load) bool { return l.host == j })
		if at < 0 {
			at = len(n[g])
			n[g] = append(n[g], load{j, 0})
		}
		n[g][at].n++
	}
	for g, fixed := range a.fixed {
		for _, l := range fixed {
			if at := slices.IndexFunc(n[g], func(o load) bool { return o.host == l.host }); at >= 0 {
				n[g][at].n += l.n
			} else {
				n[g] = append(n[g], l)
			}
		}
		slices.SortFunc(n[g], func(x, y load) int { return cmp.Compare(x.host, y.host) })
	}
	return n
}
