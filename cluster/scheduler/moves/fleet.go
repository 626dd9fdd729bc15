package moves

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/migration"
)

// Observation is what the leader knows of hosts and VMs besides the state, for plans of moves. What is not known is left
// out.
type Observation struct {
	Use      map[string]Use                // by VM id
	Partners map[string]hypervisor.Partner // by host
	Routes   Routes
}

// Options say which VMs may move.
type Options struct {
	// MinResidency keeps VMs where they are that moved so short a time ago; 0: they may move on.
	MinResidency time.Duration
	// Supersedes are move plans that the new one takes the place of: their VMs may move.
	Supersedes []string
	// Pinned are VMs, by id, that stay where they are, and why.
	Pinned map[string]string
	// CopyStorage: VMs whose disks lie on one host may move with them.
	CopyStorage bool
	// Reserved is what hosts keep for others than those that run or wait, by their names.
	Reserved map[string]state.Resources
	// Steps bounds the work: see migration.Problem.
	Steps int64
}

// Fleet is a snapshot in the terms of package migration, with the way back. A VM that moves is placed at its target, and its
// memory is charged to both hosts; so is the memory of a VM that another plan is to move. A plan on the fleet moves neither.
type Fleet struct {
	migration.Problem
	Basis uint64 // log index of the snapshot

	pinned  map[string]pin // by VM id: those that cannot be moved now
	s       *state.Snapshot
	routes  Routes
	margin  *placement.MarginRules // nil: estimates count as they are
	index   map[string]int         // host name -> position in Problem.Hosts
	hosts   []state.Host
	reserve []allocator.Reserve[float64] // by host: for VMs that are no part of the problem there
	groups  []fleetGroup
}

// pin is why a VM cannot be moved now.
type pin struct {
	cause pinCause
	why   string
}

type pinCause int

const (
	byState  pinCause = iota // of the VM, its host or its plans: it passes
	byRoutes                 // its host cannot send VMs to any other
	byDisk                   // its disk lies on its host, and is not copied
	byTarget                 // a host on which others of its group run differs from its own
)

type fleetGroup struct {
	vc    state.VC
	group state.Group
	vms   []state.VM // parallel to Group.Hosts
	copy  bool       // their disks are copied
}

// NewFleet makes a fleet of a snapshot. more are VCs that do not run yet: their VMs have no host, or the one on which their
// disks lie.
func NewFleet(s *state.Snapshot, env placement.Env, see Observation, o Options, more ...state.VC) *Fleet {
	meta, _ := s.Meta()
	f := &builder{env: env, see: see, o: o, set: meta.Settings.Moves.WithDefaults(),
		Fleet: &Fleet{s: s, Basis: s.Index(), routes: see.Routes, pinned: map[string]pin{}, index: map[string]int{}, hosts: s.Hosts()}}
	f.LargestOnly = !meta.Settings.Rightsizing.Runs(state.StageReserve)
	f.reserve = allocator.NewReserves[float64](len(f.hosts), f.LargestOnly)
	f.Steps, f.Caps, f.Policy = o.Steps, []float64{}, placement.PolicyOf(meta.Settings)
	for i := range more { // VMs that run already count as where they would be admitted
		if f.margin == nil {
			f.margin = env.Margin.RulesFor(s, &more[i])
		}
	}
	f.Limits = migration.Limits{PerHost: f.set.PerHost, Total: f.set.Concurrent(len(f.hosts)), Bandwidth: float64(f.set.Link())}
	f.addHosts()
	f.addRunning()
	f.addWaiting(more)
	f.pinAll()
	f.setRules(see)
	if len(see.Routes) > 0 {
		f.NoRoute = func(from, to int) string { return see.Routes.Why(f.hosts[from].Name, f.hosts[to].Name) }
	}
	f.subtractReserves(o.Reserved)
	return f.Fleet
}

// builder is a fleet in the making, with what it is made of.
type builder struct {
	*Fleet
	env      placement.Env
	see      Observation
	o        Options
	set      state.MoveSettings
	overhead int64 // bytes that a VM costs beyond its own memory, the largest of all hosts
}

// addHosts adds all hosts, less what VMs take that stop, and the memory that is kept for those that were stopped alone.
func (f *builder) addHosts() {
	for i, h := range f.hosts {
		f.index[h.Name] = i
		f.overhead = max(f.overhead, h.VMOverhead)
	}
	for i, h := range f.hosts {
		free := h.Usable()
		why := placement.ClosedFor(h, f.env.Unavailable)
		f.Hosts = append(f.Hosts, migration.Host{Name: h.Name, CPU: free.CPU, Memory: float64(free.Memory), Cordoned: h.Cordoned || why != "", Unavailable: why})
		for _, vm := range f.s.VMsOn(h.Name) {
			if vm.ConsumesResources() && (vm.Phase == state.Stopping || vm.Goal != state.GoalRun) || vm.KeepsMemory() {
				vc, _ := f.s.VC(vm.VC)
				g, _ := vc.GroupOf(vm)
				f.take(i, vm.ChargeOn(h, g))
			}
		}
	}
}

// addRunning adds the VMs that run, with the caps that they have.
func (f *builder) addRunning() {
	for _, vc := range f.s.VCs() {
		live := map[string][]state.VM{}
		for _, vm := range f.s.VMsOf(vc.ID) {
			if vm.Goal == state.GoalRun && vm.ConsumesResources() && vm.Phase != state.Stopping {
				live[vm.Group] = append(live[vm.Group], vm)
			}
		}
		for _, g := range vc.Groups {
			if vms := live[g.Name]; len(vms) > 0 {
				f.add(vc, g, vms, min(vc.MinYield, state.YieldOf(vc, f.s.VMsOf(vc.ID))))
				f.Caps = append(f.Caps, g.Allocation)
			}
		}
	}
}

// addWaiting adds the VMs of VCs that do not run yet.
func (f *builder) addWaiting(more []state.VC) {
	env := f.env
	env.NewID = func() string { return "" } // no VM is made
	for _, vc := range more {
		wanted := map[string][]state.VM{}
		for _, vm := range placement.WantedVMs(f.s, vc, env) {
			wanted[vm.Group] = append(wanted[vm.Group], vm)
		}
		for _, g := range vc.Groups {
			if vms := wanted[g.Name]; len(vms) > 0 {
				f.add(vc, g, vms, vc.MinYield)
				f.Caps = append(f.Caps, 0)
			}
		}
	}
}

// pinAll pins the VMs that cannot be moved now.
func (f *builder) pinAll() {
	elsewhere := f.Pending(f.o.Supersedes)
	moved := map[string]time.Time{}
	for _, m := range f.s.Migrations() {
		if m.State == state.MigrationDone {
			moved[m.VM] = m.EndedAt
		}
	}
	for i := range f.groups {
		for k, vm := range f.groups[i].vms {
			to, expected := elsewhere[vm.ID]
			if expected && vm.ConsumesResources() && vm.MovingTo == "" {
				f.keepRoom(i, vm, to)
			}
			if p := f.whyPinned(i, vm, to, moved[vm.ID]); p.why != "" {
				f.pin(i, k, p)
			}
		}
	}
}

// whyPinned says why a VM of a group cannot be moved now. to is the host to which another plan moves it, "" if none does; moved
// is when it moved last.
func (f *builder) whyPinned(i int, vm state.VM, to string, moved time.Time) pin {
	switch {
	case !vm.ConsumesResources():
		return pin{why: "does not run yet"}
	case vm.MovingTo != "":
		return pin{why: "is on its way to host " + vm.MovingTo}
	case to != "":
		return pin{why: "is to move to host " + to + " by another plan"}
	case vm.Phase != state.Running:
		return pin{why: "is " + string(vm.Phase)}
	case f.o.Pinned[vm.ID] != "":
		return pin{why: f.o.Pinned[vm.ID]}
	case f.env.Unavailable[vm.Host] != "":
		return pin{why: "its host " + vm.Host + " " + f.env.Unavailable[vm.Host]}
	case f.routes.any(vm.Host) != "":
		return pin{byRoutes, f.routes.any(vm.Host)}
	case f.env.Now.Sub(moved) < f.o.MinResidency && !moved.After(f.env.Now): // the clock of a leader before this one may have been ahead
		return pin{why: fmt.Sprintf("moved %s ago", f.env.Now.Sub(moved).Round(time.Second))}
	}
	if g := f.groups[i].group; f.local(g) && !f.o.CopyStorage {
		return pin{byDisk, "its disk lies on its host: pool " + g.Disk.Pool + " is not shared, and disks are not copied (see moves.copyStorage of the cluster's settings)"}
	}
	return pin{}
}

// subtractReserves subtracts from the hosts their reserves, and what is reserved for others. A host beyond its limits has exactly what its
// VMs take, so that nothing else fits.
func (f *Fleet) subtractReserves(reserved map[string]state.Resources) {
	used, reserves := make([]float64, len(f.Hosts)), allocator.NewReserves[float64](len(f.Hosts), f.LargestOnly)
	owed := make([]float64, len(f.Hosts)) // CPU that the VMs there are sure of
	for _, q := range f.Groups {
		for _, j := range q.Hosts {
			if j >= 0 {
				used[j] += q.Memory
				owed[j] += q.MinYield * q.CPU
				reserves[j].Add(q.Reclaimable)
			}
		}
	}
	for j := range f.Hosts {
		h := &f.Hosts[j]
		h.Reserve = f.reserve[j].Bytes()
		if r, ok := reserved[h.Name]; ok {
			h.CPU, h.Memory = max(h.CPU-r.CPU, min(h.CPU, owed[j])), h.Memory-float64(r.Memory)
		}
		h.CPU, h.Memory = max(h.CPU, 1e-9), max(h.Memory, used[j]+reserves[j].Bytes()+h.Reserve, 1)
	}
}

// Pending returns the moves that plans under way have yet to begin: VM ids to their last targets.
func (f *Fleet) Pending(supersedes []string) map[string]string {
	out := map[string]string{}
	for _, p := range f.s.RunningMovePlans() {
		if slices.Contains(supersedes, p.ID) {
			continue
		}
		for _, step := range p.Steps {
			if !step.State.Ended() && step.State != state.StepMoving {
				out[step.VM] = step.To
			}
		}
	}
	return out
}

// add adds a group of VMs, on the hosts on which they are, or to which they are moving.
func (f *builder) add(vc state.VC, g state.Group, vms []state.VM, floor float64) {
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	memory := int64(0)
	for _, vm := range vms {
		if !vm.ConsumesResources() {
			memory = max(memory, g.Memory)
		} else {
			memory = max(memory, vm.CountedMemory(g), f.margin.Memory(&vc, g, vm))
		}
	}
	need := f.margin.CPU(&vc, g)
	if need > g.Need() {
		floor = min(floor, g.Allocation/need) // a VM need not get more than it has
	}
	ref := fleetGroup{vc: vc, group: g, vms: vms, copy: f.o.CopyStorage && f.local(g)}
	q := migration.Group{Cluster: vc.Name, Name: g.Name, Count: len(vms), CPU: need, Memory: float64(memory + f.overhead), MinYield: floor,
		Hosts: make([]int, len(vms)), Bytes: make([]float64, len(vms))}
	for k, vm := range vms {
		q.Hosts[k], q.Names = -1, append(q.Names, vm.Name)
		place := vm.Host
		if vm.MovingTo != "" {
			place = vm.MovingTo
		}
		at, ok := f.index[place]
		if !ok {
			continue
		}
		q.Hosts[k] = at
		if !vm.ConsumesResources() {
			continue // its disk is there
		}
		counts := vm
		if vm.Target > 0 { // the group's VMs differ: each counts as the largest, or more would seem free where one leaves
			counts.ChargedMemory = memory
		}
		c := counts.ChargeOn(f.hosts[at], g)
		f.Hosts[at].Memory -= float64(c.Memory - (memory + f.overhead))
		q.Reclaimable = max(q.Reclaimable, float64(c.Deficit)) // with q.Memory, at least what each VM has and may take back
		if from, ok := f.index[vm.Host]; ok && from != at {
			c := counts.ChargeOn(f.hosts[from], g)
			c.CPU = 0 // it gets its share at its target
			f.take(from, c)
		}
		q.Bytes[k] = float64(moveBytes(g, vm, f.see.Use[vm.ID], f.diskBytes(ref), float64(f.set.Link())))
	}
	f.Groups = append(f.Groups, q)
	f.groups = append(f.groups, ref)
}

// keepRoom keeps memory for a VM that another plan moves.
func (f *Fleet) keepRoom(i int, vm state.VM, to string) {
	if at, ok := f.index[to]; ok {
		f.take(at, vm.ChargeOn(f.hosts[at], f.groups[i].group))
	}
}

// take subtracts what is no part of the problem from a host.
func (f *Fleet) take(at int, c capacity.Charge) {
	f.Hosts[at].CPU -= c.CPU
	f.Hosts[at].Memory -= float64(c.Memory)
	f.reserve[at].Add(float64(c.Deficit))
}

func (f *Fleet) pin(i, k int, p pin) {
	if !slices.Contains(f.Groups[i].Pinned, k) {
		f.Groups[i].Pinned = append(f.Groups[i].Pinned, k)
	}
	f.pinned[f.groups[i].vms[k].ID] = p
}

// local says whether each disk of the group's VMs lies on one host.
func (f *Fleet) local(g state.Group) bool {
	m, _ := f.s.Meta()
	return placement.HasDisk(f.s, g) && !slices.Contains(m.Settings.SharedPools, g.Disk.Pool)
}

// diskBytes is how many bytes copying the disk of one VM may take.
func (f *Fleet) diskBytes(ref fleetGroup) int64 {
	if !ref.copy {
		return 0
	}
	img, _ := f.s.Image(ref.group.Image)
	return max(ref.group.Disk.Size, img.DiskSize, img.Size)
}

// VM returns a VM of a group, by its number there.
func (f *Fleet) VM(group, vm int) state.VM { return f.groups[group].vms[vm] }

// VC returns the VC of a group.
func (f *Fleet) VC(group int) state.VC { return f.groups[group].vc }

// Group returns a group as the state has it.
func (f *Fleet) Group(group int) state.Group { return f.groups[group].group }

// AddHost adds a host that the state does not have. false: there is one of that name.
func (f *Fleet) AddHost(name string, usable state.Resources) bool {
	if f.Host(name) >= 0 {
		return false
	}
	f.index[name] = len(f.Hosts)
	f.Hosts = append(f.Hosts, migration.Host{Name: name, CPU: usable.CPU, Memory: float64(usable.Memory)})
	f.hosts = append(f.hosts, state.Host{Name: name, Allowance: usable})
	return true
}

// KeepFree asks that so many bytes of a host be free beside what is free there now: plans free them. false: there is no such host.
func (f *Fleet) KeepFree(at int, bytes float64) bool {
	if at < 0 || at >= len(f.Hosts) {
		return false
	}
	h := &f.Hosts[at]
	reserve := allocator.Reserve[float64]{LargestOnly: f.LargestOnly}
	free := h.Memory - h.Reserve
	for _, q := range f.Groups {
		for _, j := range q.Hosts {
			if j == at {
				free -= q.Memory
				reserve.Add(q.Reclaimable)
			}
		}
	}
	free = max(0, free-reserve.Bytes())
	h.Cordoned = h.Unavailable != "" // the group that stands for the bytes must fit on a cordoned host, too
	if f.Rules == nil {
		f.Rules = &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(f.groups)), Affinity: make([]*allocator.Affinity, len(f.groups))}
	}
	f.Groups = append(f.Groups, migration.Group{Name: "memory of host " + h.Name, Count: 1, CPU: capacity.MinCPU, Memory: bytes + free, Hosts: []int{-1}, Bytes: []float64{0}})
	f.groups = append(f.groups, fleetGroup{vms: []state.VM{{}}})
	f.Caps = append(f.Caps, 0)
	f.Rules.Labels = append(f.Rules.Labels, nil)
	f.Rules.Affinity = append(f.Rules.Affinity, &allocator.Affinity{Require: []string{"host:" + h.Name}})
	return true
}

// SetNeed replaces the CPU that each VM of a group needs, cores. Its VC is to have its minimum yield of that.
func (f *Fleet) SetNeed(group int, cpu float64) {
	ref := &f.groups[group]
	f.Groups[group].CPU, ref.group.CPU, ref.group.Estimated = cpu, cpu, 0
	f.Groups[group].MinYield = ref.vc.MinYield
}

// Host returns the position of the host of that name, -1 if there is none.
func (f *Fleet) Host(name string) int {
	if at, ok := f.index[name]; ok {
		return at
	}
	return -1
}

// setRules takes over the affinity of all groups, and bars hosts that cannot run a VM as its present host does.
func (f *Fleet) setRules(see Observation) {
	r := &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(f.groups)), Affinity: make([]*allocator.Affinity, len(f.groups))}
	there := map[string]bool{}
	for name := range f.index {
		there["host:"+name] = true
	}
	for _, ref := range f.groups {
		there["vc:"+ref.vc.Name] = true
	}
	any, classes := false, f.classes(see)
	for i, ref := range f.groups {
		a := allocator.Affinity{Spread: ref.group.Affinity.Spread, Require: placement.KnownTerms(there, ref.group.Affinity.Require), Prefer: placement.KnownTerms(there, ref.group.Affinity.Prefer),
			Avoid: placement.KnownTerms(there, ref.group.Affinity.Avoid)}
		for _, host := range f.barred(i, see, classes) {
			if term := "host:" + host; !slices.Contains(a.Avoid, term) {
				a.Avoid = append(a.Avoid, term)
			}
		}
		r.Labels[i] = ref.group.Labels
		if a.Spread != "" || len(a.Require)+len(a.Prefer)+len(a.Avoid) > 0 {
			r.Affinity[i], any = &a, true
		}
	}
	if any {
		f.Rules = r
	}
}

// barred returns the hosts to which VMs of a group cannot move from where they are. Rules are for whole groups, so a VM that cannot go
// to a host of others of its group is pinned where it is. of are the classes of all hosts.
func (f *Fleet) barred(i int, see Observation, of hostClasses) []string {
	g := f.groups[i].group
	home, from := map[string]bool{}, map[int]bool{}
	for _, vm := range f.groups[i].vms {
		home[vm.Host] = true
		if class, known := of.class[vm.Host]; known && vm.ConsumesResources() {
			from[class] = true
		}
	}
	bad := map[[2]int]bool{} // from a host of a class to another one of a class
	for a := range from {
		for b := range of.one {
			if f.unlike(see, of.one[a], of.one[b], g) != "" {
				bad[[2]int{a, b}] = true
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	set, homes := map[string]bool{}, []string(nil)
	for _, h := range f.hosts {
		class, known := of.class[h.Name]
		switch {
		case home[h.Name]:
			homes = append(homes, h.Name)
		case known:
			for a := range from {
				if bad[[2]int{a, class}] {
					set[h.Name] = true
				}
			}
		}
	}
	for k, vm := range f.groups[i].vms {
		for _, to := range homes {
			if !vm.ConsumesResources() || to == vm.Host {
				continue
			}
			if why := f.unlike(see, vm.Host, to, g); why != "" {
				f.pin(i, k, pin{byTarget, why})
			}
		}
	}
	return placement.SortedNames(set)
}

// hostClasses group hosts that do not differ in what matters to a VM, as far as is known. With many hosts, comparing all pairs of them
// took longer than all else.
type hostClasses struct {
	class map[string]int // by host; hosts of which nothing is known have none
	one   []string       // a host of each class
}

func (f *Fleet) classes(see Observation) hostClasses {
	out, seen := hostClasses{class: map[string]int{}}, map[string]int{}
	for _, h := range f.hosts {
		p, known := see.Partners[h.Name]
		if !known {
			continue
		}
		key := fmt.Sprintf("%q %v %q %v %q %q %v", p.Networks, p.Networks == nil, p.Pools, p.Pools == nil, p.CPUModel, p.Machines, p.KVM)
		class, there := seen[key]
		if !there {
			class = len(out.one)
			seen[key], out.one = class, append(out.one, h.Name)
		}
		out.class[h.Name] = class
	}
	return out
}

// unlike says what a host lacks that a VM of a group has on another; "" = nothing, as far as is known.
func (f *Fleet) unlike(see Observation, from, to string, g state.Group) string {
	a, okA := see.Partners[from]
	b, okB := see.Partners[to]
	if !okA || !okB {
		return ""
	}
	if !slices.Contains(b.Networks, g.Network) && g.Network != "" && b.Networks != nil {
		return fmt.Sprintf("host %s has no network %s", to, g.Network)
	}
	if b.Pools != nil && (placement.Pools{to: b.Pools}).Lacking(f.s, to, g) {
		return fmt.Sprintf("host %s has no storage pool %s", to, g.Disk.Pool)
	}
	switch {
	case a.KVM != b.KVM:
		return fmt.Sprintf("hosts %s and %s do not both virtualize by hardware", from, to)
	case a.CPUModel != "" && b.CPUModel != "" && a.CPUModel != b.CPUModel:
		return fmt.Sprintf("guests see a CPU %q on host %s and %q on host %s", a.CPUModel, from, b.CPUModel, to)
	case len(a.Machines) > 0 && len(b.Machines) > 0 && !slices.Contains(b.Machines, a.Machines[0]):
		return fmt.Sprintf("host %s does not know machines of type %s", to, a.Machines[0])
	}
	return ""
}
