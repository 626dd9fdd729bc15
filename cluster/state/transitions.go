package state

import "slices"

// Leaving returns the VM on its way to goal, g being its group: it keeps its cap and its memory until its host reports that it is gone.
func (v VM) Leaving(g Group, goal Goal) VM {
	v.Goal = goal
	switch v.Phase {
	case Starting, Running:
		v.Phase, v.Frozen = Stopping, max(v.Frozen, g.Allocation) // one that moves has what it had then
	}
	return v
}

// Declared returns the groups without their estimates.
func Declared(groups []Group) []Group {
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i].Estimated = 0
	}
	return groups
}
