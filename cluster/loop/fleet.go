package loop

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/migration"
)

// FleetObservation is what the leader knows of hosts and VMs besides the state, for plans of moves. What is not known is left
// out.
type FleetObservation struct {
	Use      map[string]Use                // by VM id
	Partners map[string]hypervisor.Partner // by host
	Routes   Routes
}

// FleetOptions say which VMs may move.
type FleetOptions struct {
	// MinResidency keeps VMs where they are that moved so short a time ago; 0: they may move on.
	MinResidency time.Duration
	// Supersedes are move plans that the new one takes the place of: their VMs may move.
	Supersedes []string
	// Pinned are VMs, by id, that stay where they are, and why.
	Pinned map[string]string
	// CopyStorage: VMs whose disks lie on one host may move with them.
	CopyStorage bool
	// Steps bounds the work: see migration.Problem.
	Steps int64
}

// Fleet is a snapshot in the terms of package migration, with the way back. A VM that moves is placed at its target, and its
// memory is charged to both hosts; so is the memory of a VM that another plan is to move. A plan on the fleet moves neither.
type Fleet struct {
	migration.Problem
	Basis uint64 // log index of the snapshot
	// Pinned says of VMs, by id, why they cannot be moved now.
	Pinned map[string]string

	s       *state.Snapshot
	routes  Routes
	margin  *marginRules   // nil: estimates count as they are
	index   map[string]int // host name -> position in Problem.Hosts
	hosts   []state.Host
	reserve []allocator.Reserve[float64] // by host: for VMs that are no part of the problem there
	groups  []fleetGroup
}

type fleetGroup struct {
	vc    state.VC
	group state.Group
	vms   []state.VM // parallel to Group.Hosts
	copy  bool       // their disks are copied
}

// NewFleet makes a fleet of a snapshot. more are VCs that do not run yet: their VMs have no host, or the one on which their
// disks lie.
func NewFleet(s *state.Snapshot, env Env, see FleetObservation, o FleetOptions, more ...state.VC) *Fleet {
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	f := &Fleet{s: s, Basis: s.Index(), routes: see.Routes, Pinned: map[string]string{}, index: map[string]int{}, hosts: s.Hosts()}
	f.reserve = make([]allocator.Reserve[float64], len(f.hosts))
	f.Steps = o.Steps
	for i := range more { // VMs that run already count as where they would be admitted
		if rightsizing, is := sharesEstimates(s, &more[i]); is && f.margin == nil {
			f.margin = &marginRules{rightsizing, env.Margin}
		}
	}
	f.Limits = migration.Limits{PerHost: set.PerHost, Total: set.Concurrent(len(f.hosts)), Bandwidth: float64(set.Link())}
	overhead := int64(0)
	for i, h := range f.hosts {
		f.index[h.Name] = i
		overhead = max(overhead, h.VMOverhead)
	}
	for i, h := range f.hosts {
		free := h.Usable()
		why := closedFor(h, env.Unavailable)
		f.Hosts = append(f.Hosts, migration.Host{Name: h.Name, CPU: free.CPU, Memory: float64(free.Memory), Cordoned: h.Cordoned || why != "", Unavailable: why})
		for _, vm := range s.VMsOn(h.Name) {
			if vm.ConsumesResources() && (vm.Phase == state.Stopping || vm.Goal != state.GoalRun) {
				vc, _ := s.VC(vm.VC)
				g, _ := vc.GroupOf(vm)
				f.take(i, vm.ChargeOn(h, g))
			}
		}
	}
	elsewhere := f.others(o.Supersedes)
	moved := map[string]time.Time{}
	for _, m := range s.Migrations() {
		if m.State == state.MigrationDone {
			moved[m.VM] = m.EndedAt
		}
	}
	for _, vc := range s.VCs() {
		live := map[string][]state.VM{}
		for _, vm := range s.VMsOf(vc.ID) {
			if vm.Goal == state.GoalRun && vm.ConsumesResources() && vm.Phase != state.Stopping {
				live[vm.Group] = append(live[vm.Group], vm)
			}
		}
		for _, g := range vc.Groups {
			if vms := live[g.Name]; len(vms) > 0 {
				f.add(vc, g, vms, min(vc.MinYield, state.YieldOf(vc)), overhead, see, o, set)
			}
		}
	}
	f.Caps = make([]float64, len(f.Groups), len(f.Groups)+len(more))
	for i := range f.groups {
		f.Caps[i] = f.groups[i].group.Allocation
	}
	for _, vc := range more {
		env := env
		env.NewID = func() string { return "" }
		wanted := map[string][]state.VM{}
		for _, vm := range wantedVMs(s, vc, env) {
			wanted[vm.Group] = append(wanted[vm.Group], vm)
		}
		for _, g := range vc.Groups {
			if vms := wanted[g.Name]; len(vms) > 0 {
				f.add(vc, g, vms, vc.MinYield, overhead, see, o, set)
				f.Caps = append(f.Caps, 0)
			}
		}
	}
	for i := range f.groups {
		for k, vm := range f.groups[i].vms {
			why := ""
			switch to, expected := elsewhere[vm.ID]; {
			case !vm.ConsumesResources():
				why = "does not run yet"
			case vm.MovingTo != "":
				why = "is on its way to host " + vm.MovingTo
			case expected:
				why = "is to move to host " + to + " by another plan"
				f.keepRoom(i, vm, to)
			case vm.Phase != state.Running:
				why = "is " + string(vm.Phase)
			case o.Pinned[vm.ID] != "":
				why = o.Pinned[vm.ID]
			case env.Unavailable[vm.Host] != "":
				why = "its host " + vm.Host + " " + env.Unavailable[vm.Host]
			case see.Routes.any(vm.Host) != "":
				why = see.Routes.any(vm.Host)
			case o.MinResidency > 0 && env.Now.Sub(moved[vm.ID]) < o.MinResidency:
				why = fmt.Sprintf("moved %s ago", env.Now.Sub(moved[vm.ID]).Round(time.Second))
			default:
				why = f.stuck(i, o)
			}
			if why != "" {
				f.pin(i, k, why)
			}
		}
	}
	f.setRules(see)
	if len(see.Routes) > 0 {
		f.NoRoute = func(from, to int) string { return see.Routes.Why(f.hosts[from].Name, f.hosts[to].Name) }
	}
	f.subtractReserves()
	return f
}

// subtractReserves subtracts the reserves from the hosts. A host beyond its limits has exactly what its VMs take, so that
// nothing else fits.
func (f *Fleet) subtractReserves() {
	used, reserves := make([]float64, len(f.Hosts)), make([]allocator.Reserve[float64], len(f.Hosts))
	for _, q := range f.Groups {
		for _, j := range q.Hosts {
			if j >= 0 {
				used[j] += q.Memory
				reserves[j].Add(q.Reclaimable)
			}
		}
	}
	for j := range f.Hosts {
		h := &f.Hosts[j]
		h.Reserve = f.reserve[j].Bytes()
		h.CPU, h.Memory = max(h.CPU, 1e-9), max(h.Memory, used[j]+reserves[j].Bytes()+h.Reserve, 1)
	}
}

// others returns the moves that plans under way have yet to begin: VM ids to their last targets.
func (f *Fleet) others(supersedes []string) map[string]string {
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
func (f *Fleet) add(vc state.VC, g state.Group, vms []state.VM, floor float64, overhead int64, see FleetObservation, o FleetOptions, set state.MoveSettings) {
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	memory := int64(0)
	for _, vm := range vms {
		if !vm.ConsumesResources() {
			memory = max(memory, g.Memory)
		} else {
			memory = max(memory, vm.CountedMemory(g), f.margin.memory(&vc, g, vm))
		}
	}
	need := f.margin.cpu(&vc, g)
	if need > g.Need() {
		floor = min(floor, g.Allocation/need) // what it has is enough
	}
	ref := fleetGroup{vc: vc, group: g, vms: vms, copy: o.CopyStorage && f.local(g)}
	q := migration.Group{Cluster: vc.Name, Name: g.Name, Count: len(vms), CPU: need, Memory: float64(memory + overhead), MinYield: floor,
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
		f.Hosts[at].Memory -= float64(c.Memory - (memory + overhead))
		q.Reclaimable = max(q.Reclaimable, float64(c.Deficit)) // beyond what it counts as: the two together are no less than what it has and takes back
		if from, ok := f.index[vm.Host]; ok && from != at {
			c := counts.ChargeOn(f.hosts[from], g)
			c.CPU = 0 // the plan gives each VM its share where it comes to be
			f.take(from, c)
		}
		q.Bytes[k] = float64(moveBytes(g, vm, see.Use[vm.ID], f.diskBytes(ref), float64(set.Link())))
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

func (f *Fleet) pin(i, k int, why string) {
	if !slices.Contains(f.Groups[i].Pinned, k) {
		f.Groups[i].Pinned = append(f.Groups[i].Pinned, k)
	}
	f.Pinned[f.groups[i].vms[k].ID] = why
}

// local says whether each disk of the group's VMs lies on one host.
func (f *Fleet) local(g state.Group) bool {
	m, _ := f.s.Meta()
	return hasDisk(f.s, g) && !slices.Contains(m.Settings.SharedPools, g.Disk.Pool)
}

// diskBytes is how many bytes copying the disk of one VM may take.
func (f *Fleet) diskBytes(ref fleetGroup) int64 {
	if !ref.copy {
		return 0
	}
	img, _ := f.s.Image(ref.group.Image)
	return max(ref.group.Disk.Size, img.DiskSize, img.Size)
}

// stuck says why no VM of a group can be moved anywhere.
func (f *Fleet) stuck(i int, o FleetOptions) string {
	if g := f.groups[i].group; f.local(g) && !o.CopyStorage {
		return "its disk lies on its host: pool " + g.Disk.Pool + " is not shared, and disks are not copied (see moves.copyStorage of the cluster's settings)"
	}
	return ""
}

// VM returns a VM of a group, by its number there.
func (f *Fleet) VM(group, vm int) state.VM { return f.groups[group].vms[vm] }

// VC returns the VC of a group.
func (f *Fleet) VC(group int) state.VC { return f.groups[group].vc }

// Host returns the position of the host of that name, -1 if there is none.
func (f *Fleet) Host(name string) int {
	if at, ok := f.index[name]; ok {
		return at
	}
	return -1
}

// setRules takes over the affinity of all groups, and bars hosts that cannot run a VM as its present host does.
func (f *Fleet) setRules(see FleetObservation) {
	r := &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(f.groups)), Affinity: make([]*allocator.Affinity, len(f.groups))}
	there := map[string]bool{}
	for name := range f.index {
		there["host:"+name] = true
	}
	for _, ref := range f.groups {
		there["vc:"+ref.vc.Name] = true
	}
	known := func(terms []string) []string {
		return slices.DeleteFunc(slices.Clone(terms), func(t string) bool {
			return !there[t] && (strings.HasPrefix(t, "host:") || strings.HasPrefix(t, "vc:"))
		})
	}
	any := false
	for i, ref := range f.groups {
		a := allocator.Affinity{Spread: ref.group.Affinity.Spread, Require: known(ref.group.Affinity.Require), Prefer: known(ref.group.Affinity.Prefer),
			Avoid: known(ref.group.Affinity.Avoid)}
		for _, host := range f.barred(i, see) {
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

// barred returns the hosts to which VMs of a group cannot move from where they are. Rules hold for groups: a VM that cannot go
// where others of its group run stays where it is.
func (f *Fleet) barred(i int, see FleetObservation) []string {
	if len(see.Partners) < 2 { // no two hosts can be compared: among many VMs and hosts that takes longer than all else
		return nil
	}
	home := map[string]bool{}
	for _, vm := range f.groups[i].vms {
		home[vm.Host] = true
	}
	set := map[string]bool{}
	for k, vm := range f.groups[i].vms {
		if !vm.ConsumesResources() {
			continue
		}
		for _, h := range f.hosts {
			why := ""
			if h.Name != vm.Host {
				why = f.unlike(see, vm.Host, h.Name, f.groups[i].group)
			}
			switch {
			case why == "":
			case home[h.Name]:
				f.pin(i, k, why)
			default:
				set[h.Name] = true
			}
		}
	}
	return sorted(set)
}

// unlike says what a host lacks that a VM of a group has on another; "" = nothing, as far as is known.
func (f *Fleet) unlike(see FleetObservation, from, to string, g state.Group) string {
	a, okA := see.Partners[from]
	b, okB := see.Partners[to]
	if !okA || !okB {
		return ""
	}
	if !slices.Contains(b.Networks, g.Network) && g.Network != "" && b.Networks != nil {
		return fmt.Sprintf("host %s has no network %s", to, g.Network)
	}
	if b.Pools != nil && (Pools{to: b.Pools}).lacking(f.s, to, g) {
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
