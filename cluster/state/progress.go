package state

import (
	"fmt"
	"slices"
	"strconv"
)

// VCState is what users see of a VC as a whole.
type VCState string

// States of a VC.
const (
	VCQueued   VCState = "queued"
	VCStarting VCState = "starting"
	VCRunning  VCState = "running"
	VCStopping VCState = "stopping"
	VCStopped  VCState = "stopped"
	VCDegraded VCState = "degraded" // some VMs ended by themselves or were stopped alone, or its yield is below its minimum
	VCFailed   VCState = "failed"   // no VM of it runs and none will by itself
	VCDeleting VCState = "deleting"
)

// Count has the number of VMs in each phase.
type Count struct {
	Starting, Running, Stopping, Stopped, Failed, Lost int
}

// CountPhases counts the phases of VMs.
func CountPhases(vms []VM) Count {
	var c Count
	for i := range vms {
		c.add(vms[i].Phase)
	}
	return c
}

// CountVMs counts the phases of all VMs.
func (s *Snapshot) CountVMs() Count {
	var c Count
	s.EachVM(func(vm *VM) bool {
		c.add(vm.Phase)
		return true
	})
	return c
}

func (c *Count) add(p Phase) {
	switch p {
	case Starting:
		c.Starting++
	case Running:
		c.Running++
	case Stopping:
		c.Stopping++
	case Stopped:
		c.Stopped++
	case Failed:
		c.Failed++
	case Lost:
		c.Lost++
	}
}

// StateOf returns the state of a VC from its row and its VMs.
func StateOf(vc VC, vms []VM) VCState {
	c := CountPhases(vms)
	alone, _ := StoppedAlone(vms)
	for _, vm := range vms {
		switch {
		case !vm.shutDown(), vm.Order.StoppedBy != "":
		case vm.PreemptedAt > 0: // it starts again by itself
			c.Lost++
		default:
			c.Failed++
		}
	}
	switch {
	case vc.Goal == GoalDelete:
		return VCDeleting
	case vc.Goal == GoalStop && c.Starting+c.Running+c.Stopping > 0:
		return VCStopping
	case vc.Goal == GoalStop:
		return VCStopped
	case !vc.Admitted:
		return VCQueued
	case c.Failed > 0 && c.Starting+c.Running+c.Lost+alone == 0:
		return VCFailed
	case c.Starting > 0:
		return VCStarting
	case c.Failed+c.Lost+alone > 0 || YieldOf(vc, vms) < vc.MinYield*(1-1e-6):
		return VCDegraded
	}
	return VCRunning
}

// shutDown says whether the VM was stopped alone, as when its host was drained. It stays stopped until its VC is started.
func (v VM) shutDown() bool { return v.Phase == Stopped && v.Goal == GoalStop }

// Yield is that of each VM of the group: allocation / need, in [0, 1]; 1 for a need of 0.
func (g Group) Yield() float64 {
	need := g.Need()
	if need <= 0 {
		return 1
	}
	return min(1, g.Allocation/need)
}

// YieldOf returns the yield of a VC with these VMs: the lowest yield of its groups. Groups of which no VM takes resources, as when all of
// them were stopped alone, do not count: their allocation is the last that they had. Where nothing runs it is 1.
func YieldOf(vc VC, vms []VM) float64 {
	y := 1.0
	for _, g := range vc.Groups {
		if g.Count > 0 && g.Yield() < y && slices.ContainsFunc(vms, func(vm VM) bool { return vm.Group == g.Name && vm.ToRun() && vm.ConsumesResources() }) {
			y = g.Yield()
		}
	}
	return y
}

// OpState says how far an operation is.
type OpState string

// States of an operation.
const (
	OpPending    OpState = "pending"
	OpDone       OpState = "done"
	OpFailed     OpState = "failed"
	OpSuperseded OpState = "superseded" // a later request changed what is wanted
)

// Progress is the progress of an operation: Done of Total steps (VMs).
type Progress struct {
	State       OpState
	Done, Total int
	Text        string
}

// ProgressOf returns the progress of an operation. enacted returns the log index up to which a host's agent has put the desired
// state into force; 0 if the agent has not reported one yet.
func (s *Snapshot) ProgressOf(op Operation, enacted func(host string) uint64) Progress {
	switch {
	case op.MovePlan != "" || op.Host != "":
		return s.moveProgress(op)
	case op.VM != "":
		return s.vmProgress(op)
	}
	vc, ok := s.VC(op.VC)
	if !ok {
		if op.Kind == "delete" {
			return Progress{State: OpDone, Done: 1, Total: 1, Text: "deleted"}
		}
		return Progress{State: OpSuperseded, Text: "the virtual cluster was deleted"}
	}
	vms := s.VMsOf(vc.ID)
	c := CountPhases(vms)
	switch op.Kind {
	case "delete":
		return Progress{State: OpPending, Total: len(vms), Text: VMs(len(vms)) + " left"}
	case "stop":
		p := Progress{State: OpPending, Done: c.Stopped + c.Failed + c.Lost, Total: len(vms), Text: fmt.Sprintf("%d of %s stopped", c.Stopped+c.Failed+c.Lost, VMs(len(vms)))}
		switch {
		case vc.Goal != GoalStop:
			p.State, p.Text = OpSuperseded, "a later request wants it to "+string(vc.Goal)
		case p.Done == p.Total:
			p.State = OpDone
		}
		return p
	}
	return s.runProgress(op, vc, vms, enacted)
}

// VMs is "1 VM", "3 VMs".
func VMs(n int) string {
	if n == 1 {
		return "1 VM"
	}
	return strconv.Itoa(n) + " VMs"
}

// runProgress is the progress of an operation that ends in a VC that runs as asked: create, start, or a change of its spec.
func (s *Snapshot) runProgress(op Operation, vc VC, vms []VM, enacted func(string) uint64) Progress {
	c := CountPhases(vms)
	p := Progress{State: OpPending, Done: c.Running, Total: len(vms), Text: fmt.Sprintf("%d of %s running", c.Running, VMs(len(vms)))}
	switch {
	case vc.Goal == GoalDelete, vc.Goal == GoalStop && !ChangesSpec(op.Kind):
		p.State, p.Text = OpSuperseded, "a later request wants it to "+string(vc.Goal)
		return p
	case ChangesSpec(op.Kind) && s.changedSince(op):
		p.State, p.Text = OpSuperseded, "a later request changed what this one asked for: vcctl vc history "+vc.Name
		return p
	case vc.Goal == GoalStop:
		p.State, p.Text = OpDone, "holds from its next start"
		return p
	case !vc.Admitted:
		p.Text = "queued: " + vc.Decision.Summary
		return p
	}
	leaving := 0
	behind := ""
	alone, _ := StoppedAlone(vms)
	for _, vm := range vms {
		if vm.Goal == GoalDelete {
			leaving++
		} else if vm.Phase == Failed {
			on := ""
			if vm.Host != "" {
				on = " on host " + vm.Host
			}
			p.State, p.Text = OpFailed, fmt.Sprintf("VM %s%s: %s; once that is mended: vcctl vc start %s", vm.Name, on, vm.Reason, vc.Name)
			return p
		}
		if enacted(vm.Host) < op.Index {
			behind = vm.Host
		}
	}
	switch {
	case leaving > 0:
		p.Text = VMs(leaving) + " to go"
	case c.Running+alone < len(vms):
	case behind != "":
		p.Text = "waiting for host " + behind + " to enforce the new shares"
	default:
		p.State = OpDone
	}
	return p
}
