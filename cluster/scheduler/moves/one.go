package moves

import (
	"fmt"

	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// One is the move of one VM that a user asks for.
type One struct {
	Plan  state.MovePlan // one step; none where the VM cannot move
	Hosts []HostYield    // the source, then the target
	// Blocker says why the VM cannot move; nil: it can.
	Blocker *Blocker
}

// HostYield is the least yield of the VMs on a host before and after a plan; 1 where there are none.
type HostYield struct {
	Host          string
	Before, After float64
}

// PlanOne plans the move of one VM that runs to a host; "" = to the best one. Nothing else moves, and nothing keeps the VM there
// afterwards.
func PlanOne(f *Fleet, id, to string, budget int64) (One, error) {
	group, k := f.find(id)
	if group < 0 {
		return One{}, fmt.Errorf("move VM %s: it does not run: %w", id, state.ErrConflict)
	}
	target := migration.AnyHost
	if to != "" {
		if target = f.Host(to); target < 0 {
			return One{}, fmt.Errorf("host %s: %w", to, state.ErrNotFound)
		}
	}
	m, err := migration.MoveOne(f.Problem, group, k, target)
	if err != nil {
		return One{}, err
	}
	vm, blocker := f.VM(group, k), migration.Blocker{Group: group, VM: k, Why: m.Reason, Advice: m.Advice}
	switch {
	case to != "" && vm.Host == to && vm.MovingTo == "":
		blocker.Why, blocker.Advice = "it runs there already", nil
	case m.Feasible && budget >= 0 && m.Bytes > float64(budget):
		blocker.Why = fmt.Sprintf("its move is predicted to send %d MiB, and at most %d MiB are allowed", int64(m.Bytes)>>20, budget>>20)
		blocker.Advice = []migration.Advice{migration.Advice(fmt.Sprintf("allow %d MiB", int64(m.Bytes)>>20+1))}
	case m.Feasible:
		out := One{Plan: f.MovePlan(m.Plan, state.MovesOne, budget)}
		for _, j := range []int{f.Host(vm.Host), m.To} {
			out.Hosts = append(out.Hosts, HostYield{f.Hosts[j].Name, m.Before[j], m.After[j]})
		}
		return out, nil
	}
	b := f.Blockers([]migration.Blocker{blocker})[0]
	if to != "" && vm.Host == to && vm.MovingTo == "" {
		b.Why, b.Advice = blocker.Why, nil
	}
	return One{Blocker: &b}, nil
}

// find returns the group of a VM and its number there; -1: it does not run.
func (f *Fleet) find(id string) (group, vm int) {
	for i := range f.groups {
		for k := range f.groups[i].vms {
			if f.groups[i].vms[k].ID == id {
				return i, k
			}
		}
	}
	return -1, 0
}
