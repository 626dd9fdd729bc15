package state

import (
	"fmt"
	"slices"
)

// Start returns the VM as it is once it may start; g is its group. A VM that takes resources already is only charged its balloon
// target, if that is more than before.
func (v VM) Start(g Group) VM {
	if v.ConsumesResources() {
		v.ChargedMemory = max(v.ChargedMemory, v.Due(g))
		return v
	}
	v.Goal, v.Phase, v.Reason, v.Order = GoalRun, Starting, "", VMOrder{}
	v.Generation++
	v.VCPUs, v.BootMemory, v.ChargedMemory, v.Frozen, v.Target, v.PreemptedAt = g.VCPUs, g.Memory, g.Memory, 0, 0, 0
	return v
}

// Leaving returns the VM on its way to goal; g is its group. The VM keeps its cap and its memory until its host reports that it is
// gone. The memory that a host keeps for a VM that was stopped alone becomes free.
func (v VM) Leaving(g Group, goal Goal) VM {
	v.Goal, v.Order = goal, VMOrder{Reset: v.Order.Reset.cancelled("the VM was to " + string(goal))}
	switch v.Phase {
	case Starting, Running:
		v.Phase, v.Frozen = Stopping, max(v.Frozen, g.Allocation) // a VM that moves may have the allocation of when its move opened
	case Stopped:
		v.ChargedMemory = 0
	}
	return v
}

// StopAlone returns the VM on its way to stay stopped, while the rest of its VC runs: see VMOrder.StoppedBy.
func (v VM) StopAlone(g Group, by string) VM {
	if first := v.Order.StoppedBy; first != "" {
		by = first
	}
	kept := v.ChargedMemory
	v = v.Leaving(g, GoalStop)
	v.ChargedMemory, v.Order.StoppedBy, v.PreemptedAt, v.Reason = kept, by, 0, "stopped by "+by
	if v.Phase == Failed || v.Phase == Lost {
		v.Phase = Stopped
	}
	return v
}

// Restarting returns the VM on its way to stop and to start again; g is its group. It starts on the same host, where it keeps its CPU
// and memory; with elsewhere, on any host that has room.
func (v VM) Restarting(g Group, why string, elsewhere bool) VM {
	v = v.Leaving(g, GoalStop)
	v.Order.Restart, v.Order.Elsewhere, v.Reason, v.PreemptedAt = true, elsewhere, why, 0
	if elsewhere {
		v.Target = 0
	}
	return v
}

// mayBecome says why a plan that was made on the state of the index basis may not put next in the place of the VM; nil if it may.
// While the VM takes resources a plan changes neither its host nor its generation. Within a generation a plan may move the phase on, such
// as to stopping, but never back: how far a start has come is known by reports of its host.
func (v VM) mayBecome(next VM, basis uint64) error {
	switch {
	case v.Generation > next.Generation:
		return fmt.Errorf("generation %d is older than %d: %w", next.Generation, v.Generation, ErrConflict)
	case v.ModifyIndex > basis:
		return fmt.Errorf("changed at index %d: %w", v.ModifyIndex, ErrConflict)
	case next.MovingTo != v.MovingTo:
		return fmt.Errorf("a plan opens and closes no move: %w", ErrConflict)
	case v.ConsumesResources() && (next.Host != v.Host || next.Generation != v.Generation):
		return fmt.Errorf("host %s still holds generation %d: %w", v.Host, v.Generation, ErrConflict)
	case next.Generation == v.Generation && next.Phase.rank() < v.Phase.rank():
		return fmt.Errorf("generation %d is %s already, not %s: %w", v.Generation, v.Phase, next.Phase, ErrConflict)
	case next.VC != v.VC || next.Group != v.Group || next.Task != v.Task:
		return fmt.Errorf("its id belongs to VM %s: %w", v.Name, ErrConflict)
	}
	return nil
}

// reported returns the VM after its host's report of this generation; g is its group. The phase moves forward only, with one exception:
// a VM that is to run and runs counts as running, whatever was reported before. lost handles the phase lost.
func (v VM) reported(st VMStatus, g *Group) VM {
	switch st.Phase {
	case Running:
		switch {
		case v.Phase == Starting:
			v.Phase, v.Reason = Running, ""
		case (v.Phase == Failed || v.Phase == Lost) && v.Goal == GoalRun:
			v.Phase, v.Reason = Running, ""
			v.ChargedMemory = max(v.ChargedMemory, v.due(g)) // its reported end had ended its charge
		}
	case Starting:
		if v.Phase != Starting {
			return v
		}
		v.Reason = st.Reason // why it does not start yet
	case Stopped, Failed:
		if v.Phase == Stopped || v.Phase == Failed || v.Phase == Lost {
			break
		}
		if v.Goal != GoalStop || v.Reason == "" { // else the reason says already why it was stopped
			v.Reason = st.Reason
		}
		v.Phase = st.Phase
		switch {
		case v.Goal == GoalRun:
			v.Phase = Failed // it ended without an order
		case v.Order.StoppedBy != "" || v.Order.Restart:
			v.Phase = Stopped
		}
		if v.Order.StoppedBy == "" {
			v.ChargedMemory = 0
		}
		v.Frozen, v.Target, v.Order.Reset = 0, 0, v.Order.Reset.cancelled("the VM ended first")
	}
	if st.ChargedMemory > 0 && v.ConsumesResources() {
		v.ChargedMemory = max(v.due(g), st.ChargedMemory)
	}
	return v
}

// lost returns the VM once it is proved that no host runs it any more. The leader starts it again if its goal is to run.
func (v VM) lost(why string) VM {
	v = v.withoutMove()
	v.ChargedMemory, v.Frozen, v.Target, v.Reason = 0, 0, 0, why
	v.Phase = Lost
	if v.Order.Restart {
		v.Goal = GoalRun
	}
	if v.Goal != GoalRun {
		v.Phase = Stopped
	}
	v.Order = VMOrder{StoppedBy: v.Order.StoppedBy, Elsewhere: v.Order.Elsewhere, Reset: v.Order.Reset.cancelled(why)}
	return v
}

// found returns the VM once a host has reported, after a restore or a recovery, that it runs that generation of it, g being its group. The
// most that it can have is charged.
func (v VM) found(host string, generation uint64, g Group) VM {
	v = v.withoutMove()
	v.Order.Reset = v.Order.Reset.cancelled("the cluster was restored: whether it was made is not known")
	if v.Order.Restart && generation != v.Generation { // it was restarted after the state was saved
		v.Order.Restart, v.Order.Elsewhere, v.Goal, v.Phase, v.Frozen = false, false, GoalRun, Running, 0
	}
	v.Host, v.Generation = host, generation
	v.ChargedMemory, v.BootMemory, v.VCPUs = max(v.ChargedMemory, g.Memory), max(v.BootMemory, g.Memory), max(v.VCPUs, g.VCPUs)
	if v.Phase != Stopping {
		v.Phase, v.Reason = Running, ""
		if v.Goal != GoalRun {
			v.Phase, v.Frozen = Stopping, g.Allocation
		}
	}
	return v
}

// withoutMove returns the VM without its move. A VM that stops keeps its cap.
func (v VM) withoutMove() VM {
	if v.MovingTo != "" && v.Phase != Stopping {
		v.Frozen = 0
	}
	v.MovingTo = ""
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
