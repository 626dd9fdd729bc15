package search

import "math"

// Model is what is to be placed. No call changes it.
type Model struct {
	CPU    []int64 // [host], > 0; in the unit of Weight
	Memory []int64 // [host], >= 0; in the unit of Size
	Weight []int64 // [vm], >= 0
	Size   []int64 // [vm], >= 0

	Rules *Rules // nil: any VM may run on any host
}

// Rules restrict where VMs may run. Every field may be nil.
type Rules struct {
	Allowed [][]uint64 // [vm]: bit set of hosts that it may run on; nil: all

	Class []int32 // [vm]: class, an index into Apart and With; needed for these
	// Apart is, per class, the bit set of classes that may not be on a host with
	// a VM of this class (its own: no two of them). It must be symmetric.
	Apart [][]uint64
	// With is, per class, sets of classes: of each set, some other VM must be on
	// the host of every VM of this class.
	With [][][]uint64

	Home   []int32 // [vm]: host where it is now, -1: none
	Cost   []int64 // [vm]: what it costs to run it elsewhere than at home
	Budget int64   // most that all this may cost; < 0: no limit
}

// unlimited is more than any sum of a model.
const unlimited = int64(1) << 61

func has(set []uint64, i int32) bool {
	return int(i>>6) < len(set) && set[i>>6]>>(uint(i)&63)&1 != 0
}

func (m *Model) allowed(vm, host int32) bool {
	r := m.Rules
	return r == nil || r.Allowed == nil || r.Allowed[vm] == nil || has(r.Allowed[vm], host)
}

func (m *Model) apart(a, b int32) bool {
	r := m.Rules
	return r != nil && r.Apart != nil && has(r.Apart[r.Class[a]], r.Class[b])
}

func (m *Model) withs(vm int32) [][]uint64 {
	if r := m.Rules; r != nil && r.With != nil {
		return r.With[r.Class[vm]]
	}
	return nil
}

func (m *Model) budgeted() bool { return m.Rules != nil && m.Rules.Home != nil && m.Rules.Budget >= 0 }

func (m *Model) cost(vm, host int32) int64 {
	r := m.Rules
	if r == nil || r.Home == nil || r.Home[vm] < 0 || r.Home[vm] == host {
		return 0
	}
	return r.Cost[vm]
}

// under is the most weight that a host may have for its level to be below t (below or at, if max).
func under(cpu int64, t float64, max bool) int64 {
	if math.IsInf(t, 1) {
		return unlimited
	}
	x := math.Floor(float64(cpu) * t)
	if x >= float64(unlimited) {
		return unlimited
	}
	w := int64(x) + 1
	for w >= 0 && (level(w, cpu) > t || !max && level(w, cpu) == t) {
		w--
	}
	return w
}

func level(weight, cpu int64) float64 { return float64(weight) / float64(cpu) }

// Check reports whether host, one per VM, is a placement of the model.
func (m *Model) Check(host []int32) bool {
	if len(host) != len(m.Weight) {
		return false
	}
	free := append([]int64(nil), m.Memory...)
	var on [][]int32
	if m.Rules != nil && m.Rules.Class != nil {
		on = make([][]int32, len(m.CPU))
	}
	spent := int64(0)
	for vm, j := range host {
		if j < 0 || int(j) >= len(free) || !m.allowed(int32(vm), j) {
			return false
		}
		free[j] -= m.Size[vm]
		if free[j] < 0 {
			return false
		}
		if on != nil {
			on[j] = append(on[j], int32(vm))
		}
		spent += m.cost(int32(vm), j)
	}
	if m.budgeted() && spent > m.Rules.Budget {
		return false
	}
	for _, vms := range on {
		for i, a := range vms {
			for _, b := range vms[:i] {
				if m.apart(a, b) || m.apart(b, a) {
					return false
				}
			}
		}
		if !m.accompanied(vms) {
			return false
		}
	}
	return true
}

// accompanied says whether every one of the VMs has on the host those it must be with.
func (m *Model) accompanied(vms []int32) bool {
	for _, a := range vms {
		for _, set := range m.withs(a) {
			found := false
			for _, b := range vms {
				if a != b && has(set, m.Rules.Class[b]) {
					found = true
					break
				}
			}
			if !found {
				return false
			}
		}
	}
	return true
}

// Level is the greatest level of the hosts under a placement.
func (m *Model) Level(host []int32) float64 {
	load := make([]int64, len(m.CPU))
	for vm, j := range host {
		load[j] += m.Weight[vm]
	}
	t := 0.0
	for j := range load {
		t = max(t, level(load[j], m.CPU[j]))
	}
	return t
}
