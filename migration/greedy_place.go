package migration

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/allocator"
)

// placementTable is which VMs are on which hosts, for VMs that are placed one after another while the others stay. It is
// quick enough to be used for every host of a large cluster.
type placementTable struct {
	f         *fleet
	open      []bool  // [host]: takes VMs
	at        []int   // [vm]: -1: nowhere
	home      []int   // [vm]: where it is until the moves are carried out, -1: nowhere
	homes     [][]int // [host]: VMs whose home it is
	on        [][]int
	used      []float64                    // memory
	need      []float64                    // CPU
	reserves  []allocator.Reserve[float64] // for all VMs whose home it is, and all that came
	floors    []float64                    // CPU that the VMs there must have
	minYields []float64                    // [group]: yield that its VMs must have
	floor     float64                      // greatest of minYields
	below     float64                      // least yield that a host may have if VMs come to it
	done      []seated                     // to be undone
}

// seated is one change of a VM's host.
type seated struct {
	vm, from int
}

// newPlacementTable is where VMs are now; hosts that are cordoned take none.
func newPlacementTable(f *fleet) *placementTable {
	n := len(f.p.Hosts)
	s := &placementTable{f: f, open: make([]bool, n), at: slices.Clone(f.home), on: make([][]int, n), used: slices.Clone(f.used), need: slices.Clone(f.need),
		floors: make([]float64, n), minYields: make([]float64, len(f.p.Groups))}
	for g := range s.minYields {
		s.minYields[g] = f.p.Groups[g].MinYield
		if f.p.Groups[g].Count > 0 && f.p.Groups[g].CPU > 0 {
			s.floor = max(s.floor, s.minYields[g])
		}
	}
	for j := range s.open {
		s.open[j] = !f.p.Hosts[j].Cordoned
	}
	for vm, j := range f.home {
		if j >= 0 {
			s.on[j] = append(s.on[j], vm)
			s.floors[j] += f.of(vm).CPU * s.minYields[f.group[vm]]
		}
	}
	s.carried()
	return s
}

// carried records that the moves so far are carried out: the home of each VM is its present host.
func (s *placementTable) carried() {
	n := len(s.open)
	s.home, s.homes, s.reserves, s.done = slices.Clone(s.at), make([][]int, n), allocator.NewReserves[float64](n, s.f.p.LargestOnly), s.done[:0]
	for vm, j := range s.home {
		if j >= 0 {
			s.homes[j] = append(s.homes[j], vm)
			s.reserves[j].Add(s.f.of(vm).Reclaimable)
		}
	}
}

// yield is the greatest yield that all VMs on a host can have while each keeps its floor; below 0: floors need too
// much.
func (s *placementTable) yield(j int) float64 { return s.yieldWith(j, nil) }

// yieldWith is yield with some VMs more.
func (s *placementTable) yieldWith(j int, vms []int) float64 {
	cpu, need, floors := s.f.p.Hosts[j].CPU, s.need[j], s.floors[j]
	for _, vm := range vms {
		need += s.f.of(vm).CPU
		floors += s.f.of(vm).CPU * s.minYields[s.f.group[vm]]
	}
	switch {
	case need <= cpu:
		return 1
	case floors > cpu*(1+1e-9):
		return -1
	case cpu/need >= s.floor:
		return cpu / need
	}
	// Those with the greatest floors have just these; the others share what is left.
	all := slices.Concat(s.on[j], vms)
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.minYields[s.f.group[b]], s.minYields[s.f.group[a]]), cmp.Compare(a, b))
	})
	for _, vm := range all {
		if need <= 0 || cpu/need >= s.minYields[s.f.group[vm]] {
			break
		}
		cpu -= s.f.of(vm).CPU * s.minYields[s.f.group[vm]]
		need -= s.f.of(vm).CPU
	}
	if need <= 0 {
		return 1
	}
	return max(0, min(1, cpu/need))
}

// memory is what is left on a host if VMs come to it; below 0: the deficit.
func (s *placementTable) memory(j int, vms []int) float64 {
	used, reserves := s.used[j], s.reserves[j]
	for _, vm := range vms {
		used += s.f.of(vm).Memory
		if s.home[vm] != j {
			reserves.Add(s.f.of(vm).Reclaimable)
		}
	}
	room := s.f.p.Hosts[j].room(reserves)
	if fits(used, room) {
		return max(0, room-used)
	}
	return room - used
}

// apart is a VM on the host that one of these must be apart from; -1: none.
func (s *placementTable) apart(j int, vms []int) int {
	if s.f.p.Rules == nil {
		return -1
	}
	for _, vm := range vms {
		for _, o := range s.on[j] {
			if o != vm && s.f.rules.Apart(s.f.group[vm], s.f.group[o]) {
				return o
			}
		}
	}
	return -1
}

// kept says whether the rules of a host hold once VMs have come, those that need others beside them included.
func (s *placementTable) kept(j int, vms []int) bool {
	if !s.f.rules.Required() {
		return true
	}
	groups := make([]int, 0, len(s.on[j])+len(vms))
	for _, vm := range s.on[j] {
		groups = append(groups, s.f.group[vm])
	}
	for _, vm := range vms {
		groups = append(groups, s.f.group[vm])
	}
	return s.f.rules.Kept(j, groups)
}

// may says whether VMs may come to a host together.
func (s *placementTable) may(j int, vms []int) bool {
	if !s.open[j] || s.memory(j, vms) < 0 {
		return false
	}
	for i, vm := range vms {
		if s.home[vm] != j && !s.f.allowed(vm, j) {
			return false
		}
		for _, o := range vms[:i] {
			if s.f.rules.Apart(s.f.group[vm], s.f.group[o]) {
				return false
			}
		}
	}
	return s.apart(j, vms) < 0 && s.kept(j, vms)
}

func (s *placementTable) move(vm, to int) {
	s.done = append(s.done, seated{vm: vm, from: s.at[vm]})
	s.leave(vm)
	s.enter(vm, to)
}

func (s *placementTable) leave(vm int) {
	from := s.at[vm]
	if from < 0 {
		return
	}
	x := s.f.of(vm)
	if i := slices.Index(s.on[from], vm); i >= 0 {
		s.on[from] = slices.Delete(s.on[from], i, i+1)
	}
	s.used[from] -= x.Memory
	s.need[from] -= x.CPU
	s.floors[from] -= x.CPU * s.minYields[s.f.group[vm]]
	s.at[vm] = -1
	if x.Reclaimable == 0 || s.home[vm] == from {
		return
	}
	reserves := allocator.Reserve[float64]{LargestOnly: s.f.p.LargestOnly}
	for _, vm := range s.homes[from] {
		reserves.Add(s.f.of(vm).Reclaimable)
	}
	for _, vm := range s.on[from] {
		if s.home[vm] != from {
			reserves.Add(s.f.of(vm).Reclaimable)
		}
	}
	s.reserves[from] = reserves
}

func (s *placementTable) enter(vm, to int) {
	if s.at[vm] = to; to < 0 {
		return
	}
	x := s.f.of(vm)
	s.on[to] = append(s.on[to], vm)
	s.used[to] += x.Memory
	s.need[to] += x.CPU
	s.floors[to] += x.CPU * s.minYields[s.f.group[vm]]
	if s.home[vm] != to {
		s.reserves[to].Add(x.Reclaimable)
	}
}

// undo what was done since.
func (s *placementTable) undo(since int) {
	for i := len(s.done) - 1; i >= since; i-- {
		d := s.done[i]
		s.leave(d.vm)
		s.enter(d.vm, d.from)
	}
	s.done = s.done[:since]
}

// manner is how hosts are chosen for VMs.
type manner struct {
	byCPU bool // VMs that need most CPU first, else those with most memory
	tight bool // the host where least memory is left, else the one whose yield stays greatest
}

// manners are tried one after the other.
var manners = [...]manner{{false, false}, {true, false}, {false, true}}

// place gives hosts to VMs that have none: to all of them or to none. lowest is the least yield of the hosts that got a VM. If
// not all can be placed, stuck is the first that could not.
func (s *placementTable) place(vms []int, m manner) (lowest float64, stuck []int) {
	begin := len(s.done)
	units := s.units(vms)
	slices.SortStableFunc(units, func(a, b []int) int {
		x, y := s.sum(a), s.sum(b)
		if m.byCPU {
			return cmp.Or(cmp.Compare(y.cpu, x.cpu), cmp.Compare(y.memory, x.memory))
		}
		return cmp.Or(cmp.Compare(y.memory, x.memory), cmp.Compare(y.cpu, x.cpu))
	})
	lowest = 1
	for _, unit := range units {
		to, y := s.hostFor(unit, m)
		if to < 0 {
			s.undo(begin)
			return 0, unit
		}
		for _, vm := range unit {
			s.move(vm, to)
		}
		lowest = min(lowest, y)
	}
	return lowest, nil
}

// any places VMs in the manner that keeps the yield greatest.
func (s *placementTable) any(vms []int) (lowest float64, stuck []int) {
	begin, best := len(s.done), -1
	for i, m := range manners {
		y, none := s.place(vms, m)
		if none != nil {
			if stuck == nil {
				stuck = none
			}
			continue
		}
		s.undo(begin)
		if best < 0 || y > lowest {
			best, lowest = i, y
		}
		if y >= 1 {
			break
		}
	}
	if best < 0 {
		return 0, stuck
	}
	lowest, _ = s.place(vms, manners[best])
	return lowest, nil
}

// hostFor is the host for VMs that stay together, -1: none, and its yield with them.
func (s *placementTable) hostFor(unit []int, m manner) (host int, yield float64) {
	host, best, second := -1, math.Inf(-1), 0.0
	w := s.sum(unit)
	for j := range s.open {
		if !s.open[j] || s.used[j]+w.memory > s.f.p.Hosts[j].Memory*(1+1e-12) || !s.may(j, unit) {
			continue
		}
		y := s.yieldWith(j, unit)
		if y < 0 || y < s.below {
			continue
		}
		worth, other := y, -(s.need[j]+w.cpu)/s.f.p.Hosts[j].CPU
		if m.tight {
			worth, other = -s.memory(j, unit), y
		}
		if host < 0 || worth > best || worth == best && other > second {
			host, best, second, yield = j, worth, other, y
		}
	}
	return host, yield
}

type sum struct{ cpu, memory float64 }

func (s *placementTable) sum(vms []int) (x sum) {
	for _, vm := range vms {
		x.cpu += s.f.of(vm).CPU
		x.memory += s.f.of(vm).Memory
	}
	return x
}

// units are sets of VMs that have to be placed together, because one requires the other on its host. A VM that requires
// another is joined to the first that fulfils the rule.
func (s *placementTable) units(vms []int) [][]int {
	units := make([][]int, 0, len(vms))
	if !s.f.rules.Required() {
		for _, vm := range vms {
			units = append(units, []int{vm})
		}
		return units
	}
	root := map[int]int{}
	var find func(vm int) int
	find = func(vm int) int {
		if r, ok := root[vm]; ok && r != vm {
			return find(r)
		}
		return vm
	}
	for _, vm := range vms {
		if j := s.home[vm]; j < 0 || s.f.rules.Kept(j, []int{s.f.group[vm]}) {
			continue
		}
		for _, o := range vms {
			if o != vm && s.f.rules.Kept(s.home[vm], []int{s.f.group[vm], s.f.group[o]}) {
				root[find(vm)] = find(o)
				break
			}
		}
	}
	at := map[int]int{}
	for _, vm := range vms {
		r := find(vm)
		i, ok := at[r]
		if !ok {
			i = len(units)
			at[r] = i
			units = append(units, nil)
		}
		units[i] = append(units[i], vm)
	}
	return units
}
