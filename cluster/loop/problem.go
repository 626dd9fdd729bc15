package loop

import (
	"math"
	"slices"
	"sort"

	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// problem is the allocator's view of a snapshot, with the way back.
type problem struct {
	allocator.Problem
	hosts  []state.Host
	index  map[string]int // host name -> position
	groups []groupRef     // parallel to Problem.Groups
	// overhead is added to each VM's memory; hosts with less of it are
	// given the difference back.
	overhead int64
	// minMemory is how little memory a VM may have, bytes.
	minMemory int64
	// reserve is, per host, kept for memory that VMs may take back by themselves.
	reserve []allocator.Reserve[int64]
	// unavailable are hosts that take no new VM now though they are not cordoned, and why.
	unavailable map[string]string
	// expected are the targets of VMs that are about to move, by id: they count there as well.
	expected map[string]string
	// frozen is the least yield of the VCs whose shares cannot change now: see freeze.
	frozen float64
	// headroom for new VMs where needs are estimated, by host: see doubt. nil: what is left is room.
	headroom       []headroom
	margin         Margin
	aggressiveness map[string]bool // of estimates that are in it
	pools          Pools           // that hosts have
	lacking        [][]string      // parallel to groups: hosts without the pool of VMs that are to be placed. nil: see heed
}

type groupRef struct {
	vc    state.VC
	group state.Group
	// vms are parallel to Groups[i].Hosts; a VM to be placed has Host "". The last of them, from real on, are
	// VMs that are about to move, once more, at their targets.
	vms    []state.VM
	real   int
	frozen bool
}

// newProblem has every VM that is to run and takes CPU and memory, at its place. skip is the id of a VC that the caller adds in
// its new form.
//
// Hosts offer what they may use, less what stopping VMs still take, less memory charged beyond the targets, less the reserve
// for VMs that grow back.
//
// A VM that moves is charged to both hosts, and its whole group keeps its share: a cap cannot be changed meanwhile, and VMs of
// a group have equal ones. A VM that is about to move is charged to both hosts, too, but may be given another share first.
func newProblem(s *state.Snapshot, skip ...string) *problem {
	p := &problem{hosts: s.Hosts(), index: map[string]int{}, expected: s.Preparing(), frozen: 1}
	for i, h := range p.hosts {
		p.index[h.Name] = i
		p.overhead = max(p.overhead, h.VMOverhead)
	}
	if m, ok := s.Meta(); ok {
		p.minMemory = m.Settings.MinMemory
	}
	p.reserve = make([]allocator.Reserve[int64], len(p.hosts))
	for i, h := range p.hosts {
		free := h.Usable()
		p.Hosts = append(p.Hosts, allocator.Host{Name: h.Name, CPU: free.CPU, Memory: float64(free.Memory), Cordoned: h.Cordoned})
		for _, vm := range s.VMsOn(h.Name) {
			if vm.ConsumesResources() && vm.Phase == state.Stopping {
				p.take(i, vm, state.Group{})
			}
		}
		for _, vm := range s.VMsMovingTo(h.Name) { // counts here as well from the intent on
			if slices.Contains(skip, vm.VC) {
				continue // see add
			}
			vc, _ := s.VC(vm.VC)
			g, _ := vc.GroupOf(vm)
			p.take(i, vm, g)
		}
	}
	for _, vc := range s.VCs() {
		if slices.Contains(skip, vc.ID) {
			continue
		}
		p.addLive(s, vc)
	}
	return p
}

// take subtracts a VM that is no part of the problem from a host.
func (p *problem) take(at int, vm state.VM, g state.Group) {
	c := vm.ChargeOn(p.hosts[at], g)
	p.Hosts[at].CPU -= c.CPU
	p.Hosts[at].Memory -= float64(c.Memory)
	p.reserve[at].Add(c.Deficit)
}

// closedFor says why nothing may be decided for a host: it has not reported in this term, does not answer, or is lost. "" = it may.
func closedFor(h state.Host, unavailable map[string]string) string {
	if h.Lost.Proof != "" {
		return "is lost: " + h.Lost.Text
	}
	return unavailable[h.Name]
}

// shut takes hosts out for which nothing may be decided.
func (p *problem) shut(unavailable map[string]string) {
	p.unavailable = map[string]string{}
	for i, h := range p.hosts {
		if why := closedFor(h, unavailable); why != "" {
			p.unavailable[h.Name], p.Hosts[i].Cordoned, p.Hosts[i].Unavailable = why, true, true
		}
	}
}

// addLive adds the VMs of a VC that run or start, where they are.
func (p *problem) addLive(s *state.Snapshot, vc state.VC) {
	live := map[string][]state.VM{}
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Goal == state.GoalRun && vm.ConsumesResources() {
			live[vm.Group] = append(live[vm.Group], vm)
		}
	}
	// A VC that is below its minimum already (its host shrank) must not get
	// worse, but does not block the others either.
	floor := min(vc.MinYield, state.YieldOf(vc))
	for _, g := range vc.Groups {
		vms := live[g.Name]
		if len(vms) == 0 {
			continue
		}
		p.add(vc, g, vms, floor, false)
		if slices.ContainsFunc(vms, func(vm state.VM) bool { return vm.MovingTo != "" }) {
			p.freeze(len(p.Groups) - 1)
		}
	}
}

// freeze freezes the share of a group some VM of which moves: it is subtracted from its hosts, and the group needs no CPU any
// more.
func (p *problem) freeze(i int) {
	ref, g := &p.groups[i], &p.Groups[i]
	ref.frozen = true
	p.frozen = min(p.frozen, ref.group.Yield())
	for k, at := range g.Hosts {
		if at >= 0 {
			p.Hosts[at].CPU -= max(ref.group.Allocation, ref.vms[k].Frozen)
		}
	}
	g.CPU, g.MinYield, g.RequiredYield = 0, 0, 0
}

// add appends a group. VMs with a Host stay there, the others are to be placed. VMs that are about to move are counted at their
// targets as well; twice: so are those that move.
func (p *problem) add(vc state.VC, g state.Group, vms []state.VM, floor float64, twice bool) {
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	real := len(vms)
	for _, vm := range vms[:real] {
		if vm.MovingTo != "" && twice && vm.ConsumesResources() {
			floor = max(floor, p.keepShare(vm, g))
		}
		to, coming := p.expected[vm.ID]
		if vm.MovingTo != "" && twice {
			to, coming = vm.MovingTo, true
		}
		if _, there := p.index[to]; coming && there && vm.Host != "" && vm.Host != to && vm.ConsumesResources() {
			vm.Host = to
			vms = append(vms, vm)
		}
	}
	ag := allocator.Group{Cluster: vc.Name, Name: g.Name, Count: len(vms), CPU: g.Need(),
		Memory: float64(g.Memory + p.overhead), MinYield: max(floor, minYieldOf(g)), RequiredYield: minYieldOf(g),
		Overhead: float64(p.overhead), MinMemory: float64(p.minMemory), Hosts: make([]int, len(vms))}
	for i, vm := range vms {
		ag.Hosts[i] = -1
		if vm.Host == "" {
			continue
		}
		at, ok := p.index[vm.Host]
		if !ok {
			continue
		}
		ag.Hosts[i] = at
		c := vm.ChargeOn(p.hosts[at], g)
		p.Hosts[at].Memory -= float64(c.Memory - (g.Memory + p.overhead))
		if vm.ConsumesResources() {
			ag.MinMemory = max(ag.MinMemory, float64(vm.ChargedMemory)) // less is not free before the guest lets go
			p.reserve[at].Add(c.Deficit)
		}
	}
	p.Groups = append(p.Groups, ag)
	p.groups = append(p.groups, groupRef{vc: vc, group: g, vms: vms, real: real})
}

// keepShare handles a VM that moves, and whose group may be given another share: the VM keeps its share until it has arrived.
// It returns the yield below which the group's share would be less than that.
func (p *problem) keepShare(vm state.VM, g state.Group) float64 {
	need := g.Need()
	if vm.Frozen <= need {
		if need <= 0 {
			return 0
		}
		return vm.Frozen / need
	}
	for _, name := range []string{vm.Host, vm.MovingTo} { // more than it needs from now on
		if at, ok := p.index[name]; ok {
			p.Hosts[at].CPU -= vm.Frozen - need
		}
	}
	return 1
}

// minYieldOf is the minimum yield of a group that is to run: that of the least share, but no more than it has if its host has
// nothing left to give.
func minYieldOf(g state.Group) float64 {
	y := min(1, capacity.MinCPU/g.Need())
	if g.Allocation > 0 {
		y = min(y, g.Yield())
	}
	return y
}

// finish subtracts the reserves, once all groups are there. A host that is beyond its limits already has nothing to offer, not
// less.
func (p *problem) finish() {
	for i := range p.Hosts {
		p.Hosts[i].CPU, p.Hosts[i].Memory = max(0, p.Hosts[i].CPU), max(0, p.Hosts[i].Memory-float64(p.reserve[i].Bytes()))
	}
}

// clampToUsage raises the memory of hosts that are beyond it already, in the model, to what their VMs use (foreign VMs came,
// the allowance was cut, guests took memory back). Otherwise sharing CPU among those VMs would fail, and so would a start
// elsewhere. Nothing more fits on such a host.
func (p *problem) clampToUsage() {
	p.finish()
	charged := make([]float64, len(p.Hosts))
	for i, g := range p.Groups {
		for k, at := range g.Hosts {
			if at >= 0 && p.groups[i].vms[k].ConsumesResources() { // not those that are to start there
				charged[at] += g.Memory
			}
		}
	}
	for i := range p.Hosts {
		p.Hosts[i].Memory = max(p.Hosts[i].Memory, charged[i])
	}
}

// allocations returns the allocations of a solution that differ from those in force, and the hosts that they affect. A rise of
// less than a millionth is left out: it is not worth a call to every host. A fall is never left out, or sums could exceed a
// limit.
func (p *problem) allocations(cpu []float64, hosts [][]int, except string) ([]state.Allocation, map[string]bool) {
	cpu = slices.Clone(cpu)
	for i, ref := range p.groups {
		if need := ref.group.Need(); math.Abs(cpu[i]-need) < rounding*need {
			cpu[i] = need
		}
	}
	p.distributeSurplus(cpu, hosts)
	var out []state.Allocation
	affected := map[string]bool{}
	for i, ref := range p.groups {
		now := ref.group.Allocation
		if ref.frozen {
			continue
		}
		if ref.vc.ID != except && cpu[i] >= now && cpu[i] <= now*(1+littleMore) {
			continue
		}
		out = append(out, state.Allocation{VC: ref.vc.ID, Group: ref.group.Name, CPU: cpu[i]})
		for _, vm := range ref.vms {
			if vm.Host != "" {
				affected[vm.Host] = true
			}
		}
	}
	return out, affected
}

// rounding is how far a share may be from the full need, relative, and still count as it. It is far below the rounding of sums
// over a host.
const rounding = 1e-12

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
