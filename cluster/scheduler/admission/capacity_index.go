package admission

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"evenkeel/cluster/capacity"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// CapacityIndex has the free capacity of each host, kept from one snapshot to the next. A request that its hosts can serve in
// full changes nothing for any other VC, so that with many hosts it is planned from the index alone (TryFastPath). Where every
// VM has all that it needs there is nothing to do (Steady). What the index says is checked again when the plan is applied.
//
// The zero value knows nothing. One goroutine at a time uses it.
type CapacityIndex struct {
	by      map[string]*hostCapacity
	list    []*hostCapacity // those of the last snapshot, by name
	epoch   uint64          // of it
	at      uint64          // its index
	removed uint64          // its TakenOut
	set     uint64          // its SettingsIndex: the reserves follow from the settings
}

type hostCapacity struct {
	host     string
	version  uint64          // of the host's row: all that a room follows from moves it
	ledger   capacity.Ledger // with the VMs that are expected
	free     state.Resources // of the ledger
	overhead int64           // bytes that a VM costs beyond its own memory
	minYield float64         // lowest yield of its VMs
	ruled    bool            // some of its VMs have rules, which a new one may break
	unfair   bool            // the shares of its VMs may have to change, or a VM waits to start again
	closed   bool
	inUse    bool            // it has VMs, or expects some
	reserved state.Resources // the most that the agenda has there at any moment; it may have ended meanwhile
	// What its VMs with estimated needs would take more if all of them needed what they declared: cores, bytes.
	declaredExcess state.Resources
}

// follow takes in which hosts changed.
func (r *CapacityIndex) follow(s *state.Snapshot) {
	if m, _ := s.Meta(); r.by == nil || r.epoch != m.Epoch || r.set != m.SettingsIndex || s.Index() < r.at { // another epoch is another log
		*r = CapacityIndex{by: map[string]*hostCapacity{}, epoch: m.Epoch, set: m.SettingsIndex}
	}
	came := false
	moved := map[string]bool{}
	var expected map[string][]string // VMs that are about to move there
	s.EachHostSince(r.at, func(h *state.Host) bool {
		old, known := r.by[h.Name]
		if known && old.version == h.Version {
			return true
		}
		if expected == nil {
			expected = map[string][]string{}
			for vm, to := range s.Preparing() {
				expected[to] = append(expected[to], vm)
			}
		}
		now := capacityOf(s, h, expected[h.Name])
		moved[h.Name] = true
		if known {
			*old = *now // the list has it, too
			return true
		}
		r.by[h.Name], came = now, true
		return true
	})
	if len(moved) > 0 {
		for host, peak := range placement.ReservedOn(s, moved) { // what is reserved on a host changes its version
			r.by[host].reserved = peak
		}
	}
	r.at = s.Index()
	if gone := s.TakenOut(); gone != r.removed {
		r.removed, came = gone, true
		for name := range r.by {
			if _, there := s.Host(name); !there {
				delete(r.by, name)
			}
		}
	}
	if came {
		r.list = r.list[:0]
		for _, name := range slices.Sorted(maps.Keys(r.by)) {
			r.list = append(r.list, r.by[name])
		}
	}
}

// Free returns what a host has left beside its reserve; below 0 if it is beyond its limits.
func (r *CapacityIndex) Free(s *state.Snapshot, host string) state.Resources {
	r.follow(s)
	if one := r.by[host]; one != nil {
		return one.free
	}
	return state.Resources{}
}

// capacityOf returns the free capacity of a host, on which some VMs are expected.
func capacityOf(s *state.Snapshot, h *state.Host, expected []string) *hostCapacity {
	one := &hostCapacity{host: h.Name, version: h.Version, ledger: s.LedgerOf(h.Name), overhead: h.VMOverhead, minYield: 1, closed: h.Cordoned || h.Lost.Proof != ""}
	s.EachVMOn(h.Name, func(vm *state.VM) bool {
		one.inUse = one.inUse || vm.ConsumesResources()
		vc, ok := s.SharedVC(vm.VC)
		if !ok {
			return true
		}
		g := vc.SharedGroup(vm.Group)
		if g == nil {
			g = &state.Group{}
		}
		one.ruled = one.ruled || !g.Affinity.Empty()
		if vm.ConsumesResources() && vm.Goal == state.GoalRun {
			one.minYield = min(one.minYield, g.Yield())
			if g.Estimated > 0 {
				one.declaredExcess.CPU += max(0, g.CPU-g.Allocation)
			}
			if vm.Target > 0 {
				one.declaredExcess.Memory += max(0, g.Memory-vm.CountedMemory(*g))
			}
			// An estimate may leave CPU that is to be distributed.
			one.unfair = one.unfair || g.Allocation > g.Need() || g.Need() > g.Allocation*(1+placement.LittleMore) || g.Estimated > 0
		}
		one.unfair = one.unfair || vm.Phase == state.Lost || vm.PreemptedAt > 0 && vm.Phase == state.Stopped
		return true
	})
	one.expect(s, h, expected)
	one.free = one.ledger.Free()
	return one
}

// expect adds VMs that are about to move to the host. The host's version changes when a step that brings a VM begins to prepare, and
// when it ends.
func (one *hostCapacity) expect(s *state.Snapshot, h *state.Host, ids []string) {
	slices.Sort(ids) // the sum of floats must not depend on the order
	for _, id := range ids {
		vm, _ := s.VM(id)
		if vm.Host == one.host || vm.MovingTo == one.host || !vm.ConsumesResources() {
			continue
		}
		vc, _ := s.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		one.inUse = true
		one.ledger.Add(vm.ChargeOn(*h, g))
		if vm.Target > 0 {
			one.declaredExcess.Memory += max(0, g.Memory-vm.CountedMemory(g))
		}
		one.ruled = one.ruled || !g.Affinity.Empty()
	}
}

// TryFastPath answers a request for a new VC if hosts have all that its VMs need left, beside what every other VM has already.
// false: they have not, or only a full plan can say. No other place could serve the VC better, and no other VC's share changes:
// Reallocate distributes what has come free besides. TryFastPath passes over hosts for which shut is true; it does not read
// Env.Unavailable.
//
// Where needs are estimated it counts the VMs of a host with what they declared, whatever Env.Margin is. It keeps to the availability
// that hosts report. It leaves free what the agenda has reserved at any time; a full plan lets a VC that ends before
// the slot begins have that room.
//
// Each VM goes where most is left, so that many that come at once start side by side. With the placement pack it goes to a host
// with VMs if one of them takes it, else to the smallest.
func (r *CapacityIndex) TryFastPath(s *state.Snapshot, vc state.VC, env placement.Env, shut func(host string) bool) (Answer, bool) {
	r.follow(s)
	special := func(g state.Group) bool { return !g.Affinity.Empty() || g.CPU < capacity.MinCPU }
	if len(r.list) < minFastPathHosts || slices.ContainsFunc(vc.Groups, special) {
		return Answer{}, false
	}
	if _, claims := placement.Claim(s, &vc, env.Now); claims {
		return Answer{}, false // it starts on its witness
	}
	meta, _ := s.Meta()
	pack := meta.Settings.Placement == state.Pack
	lowest := 1.0
	for _, one := range r.list {
		lowest = min(lowest, one.minYield)
	}
	took := map[*hostCapacity]*state.Resources{}
	kept := env.KeptForHead(s, &vc)
	affected := map[string]bool{}
	vc.Goal, vc.Admitted = state.GoalRun, true
	plan := state.Plan{Basis: s.Index(), Verb: "created"}
	for _, vm := range placement.WantedVMs(s, vc, env) {
		if env.Lists != nil && len(env.Lists(vm)) > 0 {
			return Answer{}, false
		}
		g, _ := vc.GroupOf(vm)
		var best *hostCapacity
		highest := math.Inf(-1)
		for _, one := range r.list {
			if one.closed || one.ruled || env.Pools.Lacking(s, one.host, g) {
				continue
			}
			cpu, memory := one.free.CPU-one.declaredExcess.CPU-one.reserved.CPU-g.CPU, one.free.Memory-one.declaredExcess.Memory-one.reserved.Memory-g.Memory-one.overhead
			if r, is := kept[one.host]; is {
				cpu, memory = cpu-r.CPU, memory-r.Memory
			}
			if t := took[one]; t != nil {
				cpu, memory = cpu-t.CPU, memory-t.Memory
			}
			if cpu < 0 || memory < 0 {
				continue
			}
			left := min(cpu/one.ledger.Usable.CPU, float64(memory)/float64(one.ledger.Usable.Memory))
			if pack {
				left = one.packRank(left, took[one] != nil)
			}
			if left > highest && !shut(one.host) {
				best, highest = one, left
			}
		}
		if best == nil {
			return Answer{}, false
		}
		if took[best] == nil {
			took[best] = &state.Resources{}
		}
		took[best].CPU += g.CPU
		took[best].Memory += g.Memory + best.overhead
		if !env.HasAvailable(s, best.host, *took[best]) {
			return Answer{}, false
		}
		vm.Host = best.host
		affected[best.host] = true
		plan.VMs = append(plan.VMs, vm.Start(g))
	}
	for _, g := range vc.Groups {
		if g.Count > 0 {
			plan.Allocations = append(plan.Allocations, state.Allocation{VC: vc.ID, Group: g.Name, CPU: g.CPU})
		}
	}
	d := state.Decision{At: env.Now, Admitted: true, Summary: fitsText(lowest, 1) + "; placement " + string(cmp.Or(meta.Settings.Placement, state.Spread)), MinYield: lowest, UpperBound: 1, Basis: s.Index()}
	vc.Decision = d
	plan.VC, plan.AffectedHosts, plan.Text = &vc, placement.SortedNames(affected), d.Summary
	return recordRun(s, Answer{Plan: &plan, Decision: d}), true
}

// packRank orders hosts by what would be left, a share in [0, 1], for the placement pack: those with VMs, most left first, then
// the others, least left first. taken: the request has put VMs there.
func (one *hostCapacity) packRank(left float64, taken bool) float64 {
	if one.inUse || taken {
		return 1 + left
	}
	return -left
}

// Steady says that there is nothing to decide: no VC waits, nothing is lost, every VM that runs has all that it needs, and no
// host is beyond its limits. It is a quick look; false may be wrong.
func (r *CapacityIndex) Steady(s *state.Snapshot) bool {
	r.follow(s)
	for _, one := range r.list {
		if one.unfair || one.free.CPU < -placement.TooMuch*one.ledger.Usable.CPU {
			return false
		}
	}
	return !s.AnyQueued()
}
