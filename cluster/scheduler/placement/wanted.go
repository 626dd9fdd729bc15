package placement

import (
	"fmt"
	"slices"
	"sort"

	"evenkeel/cluster/state"
)

// WantedVMs returns the VMs that vc is to have: of its present ones those with the lowest numbers, and new ones under the
// lowest numbers that are free. A number is free once the VM that had it is gone from its host. A VM that is to be placed has
// Host "". VMs that were stopped alone are left out, unless env says that they start as well.
func WantedVMs(s *state.Snapshot, vc state.VC, env Env) []state.VM {
	var out []state.VM
	for _, g := range vc.Groups {
		kept, used := keptVMs(s, vc, g)
		for _, vm := range kept {
			if vm.Order.StoppedBy != "" && vm.Goal == state.GoalStop {
				if !env.StartStopped || vm.ConsumesResources() { // one that still stops leaves
					continue
				}
				vm.Order, vm.ChargedMemory = state.VMOrder{}, 0 // see Problem.Release
			}
			if !vm.ConsumesResources() && !KeepsPlace(s, g) {
				vm.Host = "" // nothing binds it to the host it was on
			}
			out = append(out, vm)
		}
		task := 0
		for range g.Count - len(kept) {
			for used[task] {
				task++
			}
			out = append(out, state.VM{ID: env.NewID(), VC: vc.ID, Group: g.Name, Task: task,
				Name: fmt.Sprintf("%s-%s-%d", vc.Name, g.Name, task), Goal: state.GoalRun})
			task++
		}
	}
	return out
}

// keptVMs returns the VMs of a group that stay, by number, and the numbers that any VM of the group still has.
func keptVMs(s *state.Snapshot, vc state.VC, g state.Group) (vms []state.VM, used map[int]bool) {
	used = map[int]bool{}
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Group != g.Name {
			continue
		}
		used[vm.Task] = true
		if vm.Goal != state.GoalDelete {
			vms = append(vms, vm)
		}
	}
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	return vms[:min(len(vms), g.Count)], used
}

// KeepsPlace says whether the group's VMs must start where they ran: a disk that outlives the run lies on one host, unless its
// pool is shared.
func KeepsPlace(s *state.Snapshot, g state.Group) bool {
	img, _ := s.Image(g.Image)
	if m, _ := s.Meta(); slices.Contains(m.Settings.SharedPools, g.Disk.Pool) {
		return false
	}
	return !g.Disk.Ephemeral && (g.Disk.Size > 0 || img.Kind == state.DiskImage)
}

// VMsToRemove returns the VMs of vc beyond its counts, on their way out.
func VMsToRemove(s *state.Snapshot, vc state.VC) []state.VM {
	stay := map[string]bool{}
	for _, g := range vc.Groups {
		vms, _ := keptVMs(s, vc, g)
		for _, vm := range vms {
			stay[vm.ID] = true
		}
	}
	old, _ := s.VC(vc.ID)
	var out []state.VM
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Goal != state.GoalDelete && !stay[vm.ID] {
			g, _ := old.GroupOf(vm)
			out = append(out, vm.Leaving(g, state.GoalDelete))
		}
	}
	return out
}

// WithoutEstimates returns the VC without the estimates of groups some VMs of which are to start: the need of a new VM is not known.
func WithoutEstimates(vc state.VC, vms []state.VM) state.VC {
	groups := slices.Clone(vc.Groups)
	for _, vm := range vms {
		for i := range groups {
			if groups[i].Name == vm.Group && !vm.ConsumesResources() {
				groups[i].Estimated = 0
			}
		}
	}
	vc.Groups = groups
	return vc
}

// Changed drops the rows that have not changed.
func Changed(s *state.Snapshot, vms []state.VM) []state.VM {
	var out []state.VM
	for _, vm := range vms {
		if old, ok := s.VM(vm.ID); !ok || old != vm {
			out = append(out, vm)
		}
	}
	return out
}

// SortedNames returns the names of a set in order; never nil.
func SortedNames(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
