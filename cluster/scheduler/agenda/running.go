package agenda

import (
	"cmp"
	"fmt"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// charge is what a VM takes of a host's memory, and what it may take back by itself beyond that, bytes.
type charge struct{ memory, deficit int64 }

// running returns the VMs that run, by groups and hosts. residents are those of which the end is not known. passing are those that end
// within the horizon, with what hosts keep for what they may take back. A VM that moves, or is about to, is on both hosts.
func (x *planner) running() (residents []migration.Group, passing []*reservation.Accepted) {
	coming := x.s.Preparing()
	reserves := make([]passingReserve, len(x.names))
	x.s.EachVC(func(vc *state.VC) bool {
		until := x.endOf(vc)
		for gi := range vc.Groups {
			g := &vc.Groups[gi]
			at, order := map[charge][]int{}, []charge{} // hosts, by what a VM is charged there: VMs of a group may differ
			for _, vm := range x.s.VMsOf(vc.ID) {
				if vm.Group != g.Name || !vm.ConsumesResources() && !vm.KeepsMemory() {
					continue
				}
				to := coming[vm.ID]
				if to == vm.Host || to == vm.MovingTo {
					to = "" // it is charged there already
				}
				for _, host := range []string{vm.Host, vm.MovingTo, to} {
					if h, ok := x.hosts[host]; ok {
						due := vm.ChargeOn(state.Host{Name: host, VMOverhead: x.over[h]}, *g)
						c := charge{due.Memory, due.Deficit}
						if at[c] == nil {
							order = append(order, c)
						}
						at[c] = append(at[c], h)
					}
				}
			}
			for i, c := range order {
				name, hosts := fmt.Sprintf("%s/%s/%d", vc.ID, g.Name, i), at[c]
				n := 0
				if !until.IsZero() {
					n = max(1, int((until.Sub(x.origin)+x.step-1)/x.step))
				}
				for _, h := range hosts {
					reserves[h].add(c.deficit, n)
				}
				if n == 0 {
					residents = append(residents, migration.Group{Cluster: vc.ID, Name: name, Count: len(hosts), CPU: g.Need(), Memory: float64(c.memory),
						Reclaimable: float64(c.deficit), MinYield: min(vc.MinYield, 1), Hosts: hosts})
					continue
				}
				s := slot(name, 0, n, len(hosts), func(int) (float64, float64) { return g.Need() * min(vc.MinYield, 1), float64(c.memory) })
				passing = append(passing, &reservation.Accepted{Slot: s, Witness: reservation.Witness{Hosts: hosts}})
			}
		}
		return true
	})
	for h := range reserves {
		if kept := reserves[h].kept(); len(kept) > 0 {
			s := slot("reserve/"+x.names[h], 0, len(kept), 1, func(k int) (float64, float64) { return 0, float64(kept[k]) })
			passing = append(passing, &reservation.Accepted{Slot: s, Witness: reservation.Witness{Hosts: []int{h}}})
		}
	}
	return residents, passing
}

// passingReserve is what a host keeps because VMs that end may take memory back, beyond what it keeps for those that stay. A reserve is
// no sum: what it falls by when one VM ends depends on all of them.
type passingReserve struct {
	stay allocator.Reserve[int64]
	ends []passingDeficit
}

// passingDeficit is what a VM may take back that is there for so many steps, bytes.
type passingDeficit struct {
	deficit int64
	steps   int
}

// add a VM that may take back so much, and ends after so many steps; 0: it stays.
func (r *passingReserve) add(deficit int64, steps int) {
	if steps == 0 {
		r.stay.Add(deficit)
	} else if deficit > 0 {
		r.ends = append(r.ends, passingDeficit{deficit, steps})
	}
}

// kept is what is kept in each step until the last end, bytes.
func (r *passingReserve) kept() []int64 {
	if len(r.ends) == 0 {
		return nil
	}
	slices.SortFunc(r.ends, func(a, b passingDeficit) int { return cmp.Compare(b.steps, a.steps) })
	out := make([]int64, r.ends[0].steps)
	all := r.stay
	next := 0
	for k := len(out) - 1; k >= 0; k-- { // backwards, VMs come
		for ; next < len(r.ends) && r.ends[next].steps > k; next++ {
			all.Add(r.ends[next].deficit)
		}
		out[k] = all.Bytes() - r.stay.Bytes()
	}
	return out
}
