package allocator

import (
	"cmp"
	"math"
	"slices"
)

// arrangement is a placement of which the policy moves VMs that do not run yet, or that move anyway. The headroom of a host
// is the smaller of the shares of its CPU and its memory that the needs of its VMs leave. It is below 0 where they need more
// CPU than there is: so the hosts with the lowest yields come first in the order of headrooms.
//
// Many fields: it is a placement with its sums.
type arrangement struct {
	p      *Problem
	of     []int                        // [group]: its virtual cluster
	closed []bool                       // [host]: takes no VM, and its headroom does not count
	need   []float64                    // [group]: CPU of one VM that keeps the minimum yield
	rules  *board                       // nil: none
	route  func(mover, host int32) bool // whether it can be sent there; nil: all can be sent everywhere

	movers      []mover
	on          [][]int32   // [host]: movers there
	stay        [][]stayers // [host]
	slackCPU    []float64   // [host]: CPU beside what its VMs must have
	cpu, memory []float64   // [host]: beside what its VMs need; CPU may be below 0
	targets     []int32     // hosts that movers are on or may go to
	work        int         // pairs of hosts that may still be compared
}

// mover is a VM that the policy may put on another host.
type mover struct{ group, host int32 }

// stayers are VMs of a group that stay on a host.
type stayers struct {
	group int32
	n     int
}

// arrangeWork is the work of one arrangement, some milliseconds.
const arrangeWork = 300_000

func newArrangement(p *Problem, t tenancy, closed []bool, need []float64) *arrangement {
	n := len(p.Hosts)
	x := &arrangement{p: p, of: t.of, closed: closed, need: need, on: make([][]int32, n), stay: make([][]stayers, n),
		slackCPU: make([]float64, n), cpu: make([]float64, n), memory: make([]float64, n), work: arrangeWork}
	for j := range p.Hosts {
		h := &p.Hosts[j]
		x.slackCPU[j], x.cpu[j], x.memory[j] = h.CPU, h.CPU, h.Memory
	}
	return x
}

// keep adds VMs that stay where they are.
func (x *arrangement) keep(g, j, n int) {
	x.stay[j] = append(x.stay[j], stayers{int32(g), n})
	x.charge(g, j, float64(n))
}

// add adds a VM that may go elsewhere.
func (x *arrangement) add(g, j int) {
	x.movers = append(x.movers, mover{int32(g), -1})
	x.put(int32(len(x.movers)-1), int32(j))
}

func (x *arrangement) charge(g, j int, n float64) {
	q := &x.p.Groups[g]
	x.slackCPU[j] -= n * x.need[g]
	x.cpu[j] -= n * q.CPU
	x.memory[j] -= n * q.Memory
}

func (x *arrangement) put(v, j int32) {
	g := int(x.movers[v].group)
	x.movers[v].host = j
	x.on[j] = append(x.on[j], v)
	x.charge(g, int(j), 1)
	if x.rules != nil {
		x.rules.put(g, int(j))
	}
}

func (x *arrangement) take(v int32) {
	g, j := int(x.movers[v].group), x.movers[v].host
	at := slices.Index(x.on[j], v)
	x.on[j] = slices.Delete(x.on[j], at, at+1)
	x.movers[v].host = -1
	x.charge(g, int(j), -1)
	if x.rules != nil {
		x.rules.take(g, int(j))
	}
}

// headroom is that of a host with so much more CPU and memory in use.
func (x *arrangement) headroom(j int32, cpu, memory float64) float64 {
	h := &x.p.Hosts[j]
	return min(fraction(x.cpu[j]-cpu, h.CPU), fraction(x.memory[j]-memory, h.Memory))
}

// takes says whether a host takes a VM of group in, once one of group out has left it; -1: none has.
func (x *arrangement) takes(j int32, in, out int) bool {
	h := &x.p.Hosts[j]
	cpu, memory := x.slackCPU[j]-x.need[in], x.memory[j]-x.p.Groups[in].Memory
	if out >= 0 {
		cpu, memory = cpu+x.need[out], memory+x.p.Groups[out].Memory
	}
	return cpu >= -roundingSlack*h.CPU && memory >= -roundingSlack*h.Memory
}

// lawful says whether the rules let mover v go to host b, and u in return; u is -1 for none.
func (x *arrangement) lawful(v, u, b int32) bool {
	r := x.rules
	a, gv := int(x.movers[v].host), int(x.movers[v].group)
	to := int(b)
	if r == nil {
		return x.welcome(v, to) && (u < 0 || x.welcome(u, a))
	}
	free := func(v int32, from, to int) bool { return x.welcome(v, to) && r.spares(int(x.movers[v].group), from) }
	r.take(gv, a)
	defer r.put(gv, a)
	if u < 0 {
		return free(v, a, to)
	}
	gu := int(x.movers[u].group)
	r.take(gu, to)
	defer r.put(gu, to)
	return free(v, a, to) && free(u, to, a)
}

// welcome says whether the rules let a mover that is nowhere onto a host, and whether it can be sent there.
func (x *arrangement) welcome(v int32, j int) bool {
	if x.route != nil && !x.route(v, int32(j)) {
		return false
	}
	r, g := x.rules, int(x.movers[v].group)
	return r == nil || r.u.open(g, j, r.on[j]) && !r.u.lonely(g, r.on[j])
}

// alone says whether capacity and headroom alone decide which hosts a mover may be on.
func (x *arrangement) alone() bool { return x.rules == nil && x.route == nil }

// hosts is where each mover is.
func (x *arrangement) hosts() []int32 {
	at := make([]int32, len(x.movers))
	for v := range at {
		at[v] = x.movers[v].host
	}
	return at
}

// restore puts every mover where it was.
func (x *arrangement) restore(at []int32) {
	for v, j := range at {
		if now := x.movers[v].host; now != j {
			if now >= 0 {
				x.take(int32(v))
			}
			x.put(int32(v), j)
		}
	}
}

// moreTargets is how many hosts more than movers Spread looks at: those with the most headroom.
const moreTargets = 64

// aim chooses the targets.
func (x *arrangement) aim(policy Policy) {
	for j := range x.on {
		if !x.closed[j] {
			x.targets = append(x.targets, int32(j))
		}
	}
	if n := len(x.movers) + moreTargets; policy == Spread && len(x.targets) > n {
		free := make([]float64, len(x.on))
		for _, j := range x.targets {
			if free[j] = x.headroom(j, 0, 0); len(x.on[j]) > 0 {
				free[j] = math.Inf(1)
			}
		}
		slices.SortFunc(x.targets, func(i, k int32) int { return cmp.Or(cmp.Compare(free[k], free[i]), cmp.Compare(i, k)) })
		x.targets = x.targets[:n]
		slices.Sort(x.targets)
	}
}
