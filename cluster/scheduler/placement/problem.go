package placement

import (
	"math"
	"slices"
	"sort"

	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// Problem is the allocator's view of a snapshot, with the way back.
type Problem struct {
	allocator.Problem
	Rows []state.Host // parallel to Hosts
	Refs []GroupRef   // parallel to Groups
	// Unavailable are hosts that take no new VM now though they are not cordoned, and why.
	Unavailable map[string]string
	// FrozenYield is the least yield of the VCs whose shares cannot change now: see freeze.
	FrozenYield float64

	index map[string]int // host name -> position
	// overhead is added to each VM's memory; hosts with less of it are
	// given the difference back.
	overhead int64
	// minMemory is how little memory a VM may have, bytes.
	minMemory int64
	// reserve is, per host, kept for memory that VMs may take back by themselves.
	reserve []allocator.Reserve[int64]
	// expected are the targets of VMs that are about to move, by id: they count there as well.
	expected map[string]string
	pools    Pools            // that hosts have
	barred   []map[string]bar // parallel to Refs: why no VM of the group can be placed on a host, by host. nil: see Bar
}

// GroupRef is what a group of the allocator's problem is in the state.
type GroupRef struct {
	VC    state.VC
	Group state.Group
	// VMs are parallel to Groups[i].Hosts; a VM to be placed has Host "". VMs[real:] repeats those that are about
	// to move, with their targets as hosts.
	VMs  []state.VM
	real int
	// Frozen: the group's share cannot change now.
	Frozen bool
	// Granted is the yield that the VC's run was granted: see HonorGrants. 0: none.
	Granted float64
}

// Members returns the VMs of the group, each once.
func (r *GroupRef) Members() []state.VM { return r.VMs[:r.real] }

// NewProblem has every VM that is to run and takes CPU and memory, at its place. skip are the ids of VCs that the caller adds in
// their new form, with all VMs of them that stop: see ChargeStopping.
//
// Hosts offer what VMs of the cluster may use (Host.Usable), less what stopping VMs still take, less the memory of those that were
// stopped alone, less memory charged beyond the targets. SubtractReserves subtracts the reserves later.
//
// A VM that moves is charged to both hosts, and its whole group keeps its share: a cap cannot be changed meanwhile, and VMs of
// a group have equal ones. A VM that is about to move is charged to both hosts, too, but may be given another share first.
func NewProblem(s *state.Snapshot, skip ...string) *Problem {
	p := &Problem{Rows: s.Hosts(), index: map[string]int{}, expected: s.Preparing(), FrozenYield: 1}
	for i, h := range p.Rows {
		p.index[h.Name] = i
		p.overhead = max(p.overhead, h.VMOverhead)
	}
	m, _ := s.Meta()
	p.minMemory, p.Policy = m.Settings.MinMemory, PolicyOf(m.Settings)
	p.reserve = allocator.NewReserves[int64](len(p.Rows), !m.Settings.Rightsizing.Runs(state.StageReserve))
	for i, h := range p.Rows {
		free := h.Usable()
		p.Hosts = append(p.Hosts, allocator.Host{Name: h.Name, CPU: free.CPU, Memory: float64(free.Memory), Cordoned: h.Cordoned,
			EmptyCPU: free.CPU, EmptyMemory: float64(free.Memory)})
		for _, vm := range s.VMsOn(h.Name) {
			if vm.Phase == state.Stopping && !vm.RestartsInPlace() && !slices.Contains(skip, vm.VC) || vm.KeepsMemory() {
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
func (p *Problem) take(at int, vm state.VM, g state.Group) {
	c := vm.ChargeOn(p.Rows[at], g)
	p.Hosts[at].CPU -= c.CPU
	p.Hosts[at].Memory -= float64(c.Memory)
	p.reserve[at].Add(c.Deficit)
}

// ClosedFor says why nothing may be decided for a host: it has not reported in this term, does not answer, or is lost. "" = it may.
func ClosedFor(h state.Host, unavailable map[string]string) string {
	if h.Lost.Proof != "" {
		return "is lost: " + h.Lost.Text
	}
	return unavailable[h.Name]
}

// CloseHosts takes hosts out for which nothing may be decided.
func (p *Problem) CloseHosts(unavailable map[string]string) {
	p.Unavailable = map[string]string{}
	for i, h := range p.Rows {
		if why := ClosedFor(h, unavailable); why != "" {
			p.Unavailable[h.Name], p.Hosts[i].Cordoned, p.Hosts[i].Unavailable = why, true, true
		}
	}
}

// addLive adds the VMs of a VC that run or start, where they are.
func (p *Problem) addLive(s *state.Snapshot, vc state.VC) {
	live := map[string][]state.VM{}
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.ToRun() && vm.ConsumesResources() {
			live[vm.Group] = append(live[vm.Group], vm)
		}
	}
	// A VC that is below its minimum already (its host shrank) must not get
	// worse, but does not block the others either.
	floor := min(vc.MinYield, state.YieldOf(vc, s.VMsOf(vc.ID)))
	for _, g := range vc.Groups {
		vms := live[g.Name]
		if len(vms) == 0 {
			continue
		}
		p.add(vc, g, vms, floor, false)
		p.Refs[len(p.Refs)-1].Granted = s.GrantedYield(vc.ID, g)
		if slices.ContainsFunc(vms, func(vm state.VM) bool { return vm.MovingTo != "" || vm.RestartsInPlace() }) {
			p.freeze(len(p.Groups) - 1)
		}
	}
}

// freeze freezes the share of a group some VM of which moves, or shuts down to start again: it is subtracted from its hosts, and the group needs no CPU any
// more.
func (p *Problem) freeze(i int) {
	ref, g := &p.Refs[i], &p.Groups[i]
	ref.Frozen = true
	p.FrozenYield = min(p.FrozenYield, ref.Group.Yield())
	for k, at := range g.Hosts {
		if at >= 0 {
			p.Hosts[at].CPU -= max(ref.Group.Allocation, ref.VMs[k].Frozen)
		}
	}
	g.CPU, g.MinYield, g.RequiredYield = 0, 0, 0
}

// Release gives back the memory that a host keeps for a VM that was stopped alone, and that is to start.
func (p *Problem) Release(vm state.VM) {
	if at, ok := p.index[vm.Host]; ok && vm.KeepsMemory() {
		p.Hosts[at].Memory += float64(vm.ChargeOn(p.Rows[at], state.Group{}).Memory)
	}
}

// At is the position of a host.
func (p *Problem) At(host string) (at int, ok bool) {
	at, ok = p.index[host]
	return at, ok
}

// Reserve is what a host keeps for memory that VMs may take back by themselves, bytes.
func (p *Problem) Reserve(at int) int64 { return p.reserve[at].Bytes() }

// ChargeLeaving charges a VM that is to leave to its hosts: it keeps its memory and cap until it is gone.
func (p *Problem) ChargeLeaving(vm state.VM) {
	for _, name := range []string{vm.Host, vm.MovingTo} {
		if at, ok := p.index[name]; ok && vm.ConsumesResources() {
			p.take(at, vm, state.Group{})
		}
	}
}

// ChargeStopping charges the VMs of a VC that stop to their hosts, but for those in counted: these are in the problem already.
func (p *Problem) ChargeStopping(s *state.Snapshot, vc string, counted ...[]state.VM) {
	for _, vm := range s.VMsOf(vc) {
		same := func(of state.VM) bool { return of.ID == vm.ID }
		if vm.Phase == state.Stopping && !slices.ContainsFunc(counted, func(vms []state.VM) bool { return slices.ContainsFunc(vms, same) }) {
			p.ChargeLeaving(vm)
		}
	}
}

// AddRequested appends a group of a VC some VMs of which are to be placed. Needs that grow in place are checked too.
func (p *Problem) AddRequested(vc state.VC, g state.Group, vms []state.VM) {
	p.add(vc, g, vms, vc.MinYield, true)
	p.Groups[len(p.Groups)-1].Requested = true
}

// add appends a group. VMs with a Host stay there, the others are to be placed. VMs that are about to move are counted at their
// targets as well. If countMoving is set, so are those that move, and VMs that move, or stop to start again, keep their shares.
func (p *Problem) add(vc state.VC, g state.Group, vms []state.VM, floor float64, countMoving bool) {
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	real := len(vms)
	for _, vm := range vms[:real] {
		if (vm.MovingTo != "" || vm.Phase == state.Stopping) && countMoving && vm.ConsumesResources() {
			floor = max(floor, p.keepShare(vm, g))
		}
		to, coming := p.expected[vm.ID]
		if vm.MovingTo != "" && countMoving {
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
		c := vm.ChargeOn(p.Rows[at], g)
		if vm.Phase == state.Stopping {
			c = vm.Start(g).ChargeOn(p.Rows[at], g) // with the memory with which it starts again, as its row in the plan has it
		}
		p.Hosts[at].Memory -= float64(c.Memory - (g.Memory + p.overhead))
		if vm.ConsumesResources() {
			ag.MinMemory = max(ag.MinMemory, float64(vm.ChargedMemory)) // less is not free before the guest lets go
			p.reserve[at].Add(c.Deficit)
		}
	}
	p.Groups = append(p.Groups, ag)
	p.Refs = append(p.Refs, GroupRef{VC: vc, Group: g, VMs: vms, real: real})
}

// keepShare keeps the share of a VM that moves, or stops to start again, while its group may get another one: until it has arrived or
// stopped. It returns the yield that the group must have for that. What the VM has beyond its need, keepShare subtracts from its hosts.
func (p *Problem) keepShare(vm state.VM, g state.Group) float64 {
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

// minYieldOf is the lowest minimum yield of a group that is to run: that of the smallest share, or the group's present yield if that is
// lower.
func minYieldOf(g state.Group) float64 {
	y := min(1, capacity.MinCPU/g.Need())
	if g.Allocation > 0 {
		y = min(y, g.Yield())
	}
	return y
}

// SubtractReserves subtracts the reserves, once all groups are there. A host that is beyond its limits offers 0, not a negative amount.
func (p *Problem) SubtractReserves() {
	for i := range p.Hosts {
		p.Hosts[i].CPU, p.Hosts[i].Memory = max(0, p.Hosts[i].CPU), max(0, p.Hosts[i].Memory-float64(p.reserve[i].Bytes()))
	}
}

// ClampToUsage raises the memory of hosts that are beyond it already, in the model, to what their VMs use (foreign VMs came,
// the allowance was cut, guests took memory back). Otherwise sharing CPU among those VMs would fail, and so would a start
// elsewhere. Nothing more fits on such a host.
func (p *Problem) ClampToUsage() {
	p.SubtractReserves()
	charged := make([]float64, len(p.Hosts))
	for i, g := range p.Groups {
		for k, at := range g.Hosts {
			if at >= 0 && p.Refs[i].VMs[k].ConsumesResources() { // not those that are to start there
				charged[at] += g.Memory
			}
		}
	}
	for i := range p.Hosts {
		p.Hosts[i].Memory = max(p.Hosts[i].Memory, charged[i])
	}
}

// Allocations returns the allocations of a solution that differ from those in force, and the hosts that they affect. A rise of
// less than a millionth is left out: it is not worth a call to every host. A fall is never left out, or sums could exceed a
// limit.
func (p *Problem) Allocations(cpu []float64, hosts [][]int, except string) ([]state.Allocation, map[string]bool) {
	cpu = slices.Clone(cpu)
	for i, ref := range p.Refs {
		if need := ref.Group.Need(); math.Abs(cpu[i]-need) < rounding*need {
			cpu[i] = need
		}
	}
	p.distributeSurplus(cpu, hosts)
	var out []state.Allocation
	affected := map[string]bool{}
	for i, ref := range p.Refs {
		now := ref.Group.Allocation
		if ref.Frozen {
			continue
		}
		if ref.VC.ID != except && cpu[i] >= now && cpu[i] <= now*(1+LittleMore) {
			continue
		}
		out = append(out, state.Allocation{VC: ref.VC.ID, Group: ref.Group.Name, CPU: cpu[i]})
		for _, vm := range ref.VMs {
			if vm.Host != "" {
				affected[vm.Host] = true
			}
		}
	}
	return out, affected
}
