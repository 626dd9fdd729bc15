package migration

import (
	"cmp"
	"container/heap"
	"slices"
)

// The cheapest search expands the states in the order of the fewest bytes that a whole order
// through them can cost: the bytes spent, and one move for every VM that is not on its target. So
// the first state in which all VMs are on their targets is reached with the fewest bytes, staging
// hops counted.
const (
	maxStates = 3000 // looked at, beyond which the search gives up
	maxMoving = 14   // VMs that may be wrong for the search to begin
	fewMoving = 16   // VMs up to which one may make room even where no VM waits for its room yet
	maxRefuge = 3    // hosts besides those of the moves that VMs may wait on
)

// state is where the VMs of a cheapest search are.
type state struct {
	at     []int
	spent  float64
	rest   float64
	number int
	before *state
	by     op
}

type states []*state

func (s states) Len() int { return len(s) }
func (s states) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(s[a].spent+s[a].rest, s[b].spent+s[b].rest), cmp.Compare(s[a].rest, s[b].rest), cmp.Compare(s[a].number, s[b].number)) < 0
}
func (s states) Swap(a, b int) { s[a], s[b] = s[b], s[a] }
func (s *states) Push(x any)   { *s = append(*s, x.(*state)) }
func (s *states) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// frontier is the states of a search that were reached and not expanded yet, the most promising first.
type frontier struct {
	open  states
	spent map[string]float64 // by place: the fewest bytes with which it was reached
	count int                // states that were reached
	limit int                // of count, beyond which the search gives up
}

func newFrontier(begin *state, limit int) *frontier {
	return &frontier{open: states{begin}, spent: map[string]float64{place(begin.at): 0}, count: 1, limit: limit}
}

// next is the state to expand; nil: there is none left.
func (q *frontier) next() *state {
	for q.open.Len() > 0 {
		if s := heap.Pop(&q.open).(*state); s.spent <= q.spent[place(s.at)] {
			return s
		}
	}
	return nil
}

// reach adds a state unless its place was reached with as few bytes before. It is false if the search gives up.
func (q *frontier) reach(s *state) bool {
	at := place(s.at)
	if spent, ok := q.spent[at]; ok && spent <= s.spent {
		return true
	}
	s.number = q.count
	if q.count++; q.count > q.limit {
		return false
	}
	q.spent[at] = s.spent
	heap.Push(&q.open, s)
	return true
}

// cheapest is the order with the fewest bytes from where o is, if a bounded
// search finds it. o is changed.
func (o *order) cheapest() ([]op, bool) {
	if len(o.left) > maxMoving || len(o.used) >= 1<<16-1 {
		return nil, false
	}
	hosts := o.involved()
	vms := o.movable(hosts)
	home := make([]int, len(vms))
	for i, vm := range vms {
		home[i] = o.at[vm]
	}
	q := newFrontier(&state{at: home, rest: o.rest(vms, home)}, maxStates)
	for s := q.next(); s != nil; s = q.next() {
		o.restore(vms, s.at)
		if o.arrived(vms) {
			return s.ops(), true
		}
		blocked := o.blockedHosts(vms)
		for i, vm := range vms {
			mayStage := s.at[i] >= 0 && (len(vms) <= fewMoving || blocked[s.at[i]])
			for _, to := range hosts {
				staging := to != o.target[vm]
				if to == s.at[i] || staging && !(mayStage && o.refuge(vm, to)) || !staging && !o.fits(vm, to) {
					continue
				}
				at := slices.Clone(s.at)
				at[i] = to
				next := &state{at: at, spent: s.spent, rest: o.rest(vms, at), before: s, by: op{vm, s.at[i], to, staging}}
				if s.at[i] >= 0 {
					next.spent += o.f.bytes[vm]
				}
				if !q.reach(next) {
					return nil, false
				}
			}
		}
	}
	return nil, false
}

// movable are the VMs of those hosts that may move, and those that have no host yet.
func (o *order) movable(hosts []int) (vms []int) {
	for _, j := range hosts {
		for _, vm := range o.on[j] {
			if !o.f.pinned[vm] {
				vms = append(vms, vm)
			}
		}
	}
	for _, vm := range o.left {
		if o.at[vm] < 0 {
			vms = append(vms, vm)
		}
	}
	slices.Sort(vms)
	return vms
}

// involved is the hosts of the moves that are left, and some with the most
// memory free.
func (o *order) involved() []int {
	in := make([]bool, len(o.used))
	for _, vm := range o.left {
		in[o.target[vm]] = true
		if o.at[vm] >= 0 {
			in[o.at[vm]] = true
		}
	}
	var hosts, others []int
	for j := range in {
		if in[j] {
			hosts = append(hosts, j)
		} else {
			others = append(others, j)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(o.room[b]-o.used[b], o.room[a]-o.used[a]) })
	return append(hosts, others[:min(len(others), maxRefuge)]...)
}

// blockedHosts is the hosts that VMs belong to and cannot go to.
func (o *order) blockedHosts(vms []int) []bool {
	full := make([]bool, len(o.used))
	for _, vm := range vms {
		if t := o.target[vm]; o.at[vm] != t && !o.fits(vm, t) {
			full[t] = true
		}
	}
	return full
}

func (o *order) rest(vms, at []int) (bytes float64) {
	for i, vm := range vms {
		if at[i] >= 0 && at[i] != o.target[vm] {
			bytes += o.f.bytes[vm]
		}
	}
	return bytes
}

func (o *order) arrived(vms []int) bool {
	return !slices.ContainsFunc(vms, func(vm int) bool { return o.at[vm] != o.target[vm] })
}

// restore takes the VMs to where they are in a state.
func (o *order) restore(vms, at []int) {
	for i, vm := range vms {
		if from := o.at[vm]; from >= 0 && from != at[i] {
			o.used[from] -= o.f.of(vm).Memory
			o.on[from] = slices.DeleteFunc(o.on[from], func(x int) bool { return x == vm })
		}
	}
	for i, vm := range vms {
		if to := at[i]; to >= 0 && to != o.at[vm] {
			o.used[to] += o.f.of(vm).Memory
			o.on[to] = append(o.on[to], vm)
		}
		o.at[vm] = at[i]
	}
}

func place(at []int) string {
	b := make([]byte, 0, 2*len(at))
	for _, j := range at {
		b = append(b, byte(j+1), byte((j+1)>>8))
	}
	return string(b)
}

func (s *state) ops() []op {
	var ops []op
	for ; s.before != nil; s = s.before {
		ops = append(ops, s.by)
	}
	slices.Reverse(ops)
	return ops
}
