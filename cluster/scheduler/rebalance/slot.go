package rebalance

import (
	"fmt"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// PlanSlot returns the plan of moves after which hosts have room for a slot that the fleet has as a VC beside those that run, within a
// budget of bytes (-1: no bound), and the hosts of its VMs, group by group. It has no steps if there is none.
func PlanSlot(f *moves.Fleet, slot *placement.Slot, budget int64) (plan state.MovePlan, hosts []string, err error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return plan, nil, fmt.Errorf("make room for occurrence %s: %w", slot.Occurrence.ID, err)
	}
	p := pl.Plan(moves.Budget(budget))
	plan = f.MovePlan(p, state.MovesRoom, budget)
	if !p.Feasible || len(plan.Steps) == 0 {
		plan.Steps = nil
		return plan, nil, nil
	}
	for i := range f.Groups {
		if f.VC(i).ID != slot.VC.ID {
			continue
		}
		for _, at := range p.Hosts[i] {
			hosts = append(hosts, f.Hosts[at].Name)
		}
	}
	return plan, hosts, nil
}
