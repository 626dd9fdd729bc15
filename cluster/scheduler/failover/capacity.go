package failover

import (
	"fmt"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// capacityEffort bounds the search for hosts of VMs: see migration.Problem.
const capacityEffort = 50_000_000

// CapacityRow says what happens in a cluster if one host fails.
type CapacityRow struct {
	Host     string
	Fits     bool // all its VMs find room on others
	MinYield float64
	Unplaced []string // names of VMs that would find none
	Text     string
}

// Capacity says for each host whether the others could run all its VMs if it failed (N+1), at which minimum yield, and
// which VMs would find no room and why. The text also says it for only those VMs that start again by themselves.
func Capacity(s *state.Snapshot, env placement.Env) ([]CapacityRow, error) {
	f := moves.NewFleet(s, env, moves.Observation{}, moves.Options{Steps: capacityEffort})
	all, err := migration.FailoverCapacity(f.Problem, nil)
	if err != nil {
		return nil, fmt.Errorf("room for the VMs of a host that dies: %w", err)
	}
	restarts := func(g, _ int) bool { return f.VC(g).Restartable() && !placement.KeepsPlace(s, f.Group(g)) }
	some, err := migration.FailoverCapacity(f.Problem, restarts)
	if err != nil {
		return nil, fmt.Errorf("room for the VMs of a host that dies: %w", err)
	}
	out := make([]CapacityRow, len(all))
	for j, d := range all {
		row := CapacityRow{Host: f.Hosts[j].Name, Fits: len(d.Unplaced) == 0, MinYield: d.MinYield}
		for _, u := range d.Unplaced {
			row.Unplaced = append(row.Unplaced, f.VM(u.Group, u.VM).Name)
		}
		switch n := len(d.Unplaced); {
		case d.VMs == 0:
			row.Text = "it runs no VM"
		case n == 0:
			row.Text = fmt.Sprintf("its %d VMs fit on the others", d.VMs)
		default:
			row.Text = fmt.Sprintf("%d of its %d VMs find no room: %s: %s", n, d.VMs, row.Unplaced[0], d.Unplaced[0].Why)
			row.MinYield = 0
		}
		switch again := some[j]; {
		case again.VMs == 0 || again.VMs == d.VMs:
		case len(again.Unplaced) == 0:
			row.Text += fmt.Sprintf("; the %d that start again by themselves do, at a minimum yield of %.3f", again.VMs, again.MinYield)
		default:
			row.Text += fmt.Sprintf("; of the %d that start again by themselves %d find none", again.VMs, len(again.Unplaced))
		}
		out[j] = row
	}
	return out, nil
}
