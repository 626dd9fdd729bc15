package state

import "slices"

// Start returns the VM as it is once it may start, g being its group. Of one that takes resources already only the memory target changes.
func (v VM) Start(g Group) VM {
	if v.ConsumesResources() {
		v.ChargedMemory = max(v.ChargedMemory, v.Due(g))
		return v
	}
	v.Goal, v.Phase, v.Reason = GoalRun, Starting, ""
	v.Generation++
	v.VCPUs, v.BootMemory, v.ChargedMemory, v.Frozen, v.Target, v.PreemptedAt = g.VCPUs, g.Memory, g.Memory, 0, 0, 0
	return v
}

// Leaving returns the VM on its way to goal, g being its group: it keeps its cap and its memory until its host reports that it is gone.
func (v VM) Leaving(g Group, goal Goal) VM {
	v.Goal = goal
	switch v.Phase {
	case Starting, Running:
		v.Phase, v.Frozen = Stopping, max(v.Frozen, g.Allocation) // one that moves has what it had then
	}
	return v
}

// withoutMove returns the VM without its move. A VM that stops keeps its cap.
func (v VM) withoutMove() VM {
	if v.Move != 0 && v.Phase != Stopping {
		v.Frozen = 0
	}
	v.MovingTo, v.SourceLost, v.Move, v.Ready, v.Permit, v.Paused, v.Left = "", "", 0, false, 0, false, false
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
