package agent

import (
	"fmt"

	"evenkeel/hypervisor"
)

// moveStage is how far the open move of a VM is, for one of its two hosts. It is never stored: each round derives it from the
// desired state, the list of VMs and Past, so an agent that was restarted finds the stage at which the one before it was.
//
// Invariants, on which the safety of moves rests (docs/explanation/safety.md, section 1):
//
//   - While a move is open only its stage decides: the VM is neither started, stopped nor resized by the rest of Decide. What a
//     migration left behind is cleared away all the same, by a permit (leftover.go).
//   - One host resumes the VM. The target does so only once the log has the source's report that the VM left (Move.Left); the
//     source only where the VM is still here, which it then never reports as having left.
//   - The source hands over only after the target has reported that it has room (not Move.Wait), and with no larger share than
//     the target keeps for it.
//   - A host reports that the VM stayed, arrived or is lost only while no migration of it goes on from here.
//   - An instance of another generation is left as it is, at either host, but for leftovers.
type moveStage string

// Stages at the source, in the order in which a move takes them; then the ends that it may have.
const (
	sourceWaits     moveStage = "waits for room"   // the target has not reported yet that it has room
	sourceShrinks   moveStage = "shrinks"          // its share here is larger than the target keeps for it
	sourceHandsOver moveStage = "hands over"       // a permit is asked for, and the migration begins
	sourceSends     moveStage = "sends"            // the migration goes on
	sourceAborts    moveStage = "aborts"           // it goes on, and the leader wants it to end
	sourceLeft      moveStage = "left"             // the VM is not here; whether it was handed over is reported with that
	sourceStranded  moveStage = "stranded"         // the migration ended, and left the VM paused here
	sourceStays     moveStage = "stays"            // the VM runs here, and is not handed over
	sourceExcluded  moveStage = "another instance" // what is here is not the instance that moves
)

// Stages at the target, likewise.
const (
	targetObstructed  moveStage = "obstructed"  // what an earlier migration left here is in its way
	targetPrepares    moveStage = "prepares"    // other VMs shrink for it
	targetReady       moveStage = "ready"       // there is room, and it stays free until the VM is here
	targetExpects     moveStage = "expects"     // the VM may arrive at any moment
	targetStands      moveStage = "stands"      // it is here, and its source has not reported yet that it left
	targetResumes     moveStage = "resumes"     // it stands here paused, and its source reported that it left
	targetUnresumable moveStage = "unresumable" // it could not be resumed for too long
	targetArrived     moveStage = "arrived"     // it runs here
	targetLost        moveStage = "lost"        // neither host runs it
)

// absentOnBoth is why a VM with an open move is lost.
const absentOnBoth = "runs neither on the source nor on the target of its move"

// move handles a VM with an open move: it hands the VM over, or takes it in, and reports how the move ended.
func (d *decider) move(vm VM, now hypervisor.VM, runs bool) {
	if vm.Move.Incoming {
		d.atTarget(vm, d.targetStage(vm, now, runs))
		return
	}
	stage, why := d.sourceStage(vm, now, runs)
	d.atSource(vm, now, stage, why)
}

// sourceStage returns the stage of a move from here, and why the VM stays, if it does.
func (d *decider) sourceStage(vm VM, now hypervisor.VM, runs bool) (moveStage, string) {
	m := vm.Move
	switch {
	case d.past.Moving[vm.Spec.Identity.VM] && m.Abort != "":
		return sourceAborts, ""
	case d.past.Moving[vm.Spec.Identity.VM]:
		return sourceSends, ""
	case !runs:
		return sourceLeft, ""
	case now.Generation != vm.Spec.Generation:
		return sourceExcluded, ""
	case m.Paused && now.Leftover:
		return sourceStranded, ""
	case now.State == hypervisor.Incoming:
		return sourceExcluded, ""
	}
	if why := d.whyItStays(vm, now); why != "" {
		return sourceStays, why
	}
	switch {
	case m.Wait:
		return sourceWaits, ""
	case d.force(now)-vm.Spec.CPU.Cap > tiny:
		return sourceShrinks, ""
	}
	return sourceHandsOver, ""
}

// whyItStays says why a VM that runs here, and that no migration takes away, is not handed over; "" = it is to be.
func (d *decider) whyItStays(vm VM, now hypervisor.VM) string {
	m := vm.Move
	end, ended := d.past.Moved[vm.Spec.Identity.VM]
	switch {
	case ended && end.Error == "":
		return handedOverAndHere
	case ended:
		return end.Error
	case m.Abort != "":
		return m.Abort
	case vm.Want != WantRun: // else it would neither go nor stop
		return "it is to end, and was not handed over"
	case d.past.Waited[vm.Spec.Identity.VM]:
		return fmt.Sprintf("host %s did not say within %s that it has room for it", m.To, roomWithin)
	case m.Paused && now.State == hypervisor.Paused:
		return "it is paused here, by virsh suspend or an error of its disk, and would be resumed on host " + m.To + ": resume or stop it first"
	}
	return ""
}

// atSource does what the stage of a move from here asks for.
func (d *decider) atSource(vm VM, now hypervisor.VM, stage moveStage, why string) {
	id, name, m := vm.Spec.Identity.VM, vm.Spec.Label(), vm.Move
	switch stage {
	case sourceWaits:
		d.add(Blocked{id, name, "host " + m.To + " has no room for it yet", false})
	case sourceShrinks:
		d.add(SetCPU{id, name, now.CPU, vm.Spec.CPU})
		d.cpu -= d.force(now) - vm.Spec.CPU.Cap
	case sourceHandsOver:
		d.add(Migrate{vm.Spec, *m})
	case sourceSends, sourceExcluded:
	case sourceAborts:
		d.add(AbortMove{id, name, m.Open, m.Abort})
	case sourceLeft:
		d.reportMove(vm, PhaseLost, absentOnBoth) // of this host; the target reports its own side
	case sourceStranded:
		if d.past.Leftover[id] >= leftoverFor {
			d.add(Resume{id, name, vm.Spec.Generation, m.Open, vm.Spec.Leased, true})
		}
	case sourceStays:
		d.reportMove(vm, PhaseStayed, why)
	}
}

// targetStage returns the stage of a move to here.
func (d *decider) targetStage(vm VM, now hypervisor.VM, runs bool) moveStage {
	m, here := vm.Move, ours(vm, now, runs)
	if !runs && m.SourceLost {
		return targetLost
	}
	if m.Wait && (now.Leftover || here && now.State == hypervisor.Paused) {
		return targetObstructed
	}
	if m.Paused && runs {
		if stage := d.standingStage(vm, now); stage != "" {
			return stage
		}
	}
	switch {
	case here && now.State != hypervisor.Incoming:
		return targetArrived
	case m.Wait && d.fits:
		return targetReady
	case m.Wait:
		return targetPrepares
	}
	return targetExpects
}

// standingStage returns the stage of a move that leaves the VM paused here until it is resumed; "" = it is past that.
func (d *decider) standingStage(vm VM, now hypervisor.VM) moveStage {
	id, m := vm.Spec.Identity.VM, vm.Move
	paused := ours(vm, now, true) && now.State == hypervisor.Paused
	switch {
	case paused && m.Left && d.past.Unresumable[id]:
		return targetUnresumable
	case paused && m.Left && !d.past.Resumed[id]:
		return targetResumes
	case paused && !m.Left, !m.SourceLost:
		return targetStands
	}
	return ""
}

// atTarget does what the stage of a move to here asks for.
func (d *decider) atTarget(vm VM, stage moveStage) {
	id, name, m := vm.Spec.Identity.VM, vm.Spec.Label(), vm.Move
	switch stage {
	case targetObstructed:
		d.add(Blocked{id, name, "an earlier migration left it behind here", false})
	case targetPrepares:
		d.add(Blocked{id, name, "there is no room for it yet", false})
	case targetReady:
		d.reportMove(vm, PhaseRoom, "")
	case targetExpects, targetStands:
	case targetResumes:
		d.add(Resume{id, name, vm.Spec.Generation, m.Open, vm.Spec.Leased, false})
	case targetUnresumable: // it has ended: no host runs it, and none may until the agent has reported that
		d.add(Destroy{id, name})
	case targetArrived:
		d.reportMove(vm, PhaseArrived, "")
	case targetLost:
		d.reportMove(vm, PhaseLost, absentOnBoth)
	}
}

// reportMove reports on an open move, by its number and the last permit: no late report may decide another move or attempt.
func (d *decider) reportMove(vm VM, p Phase, reason string) {
	id, m := vm.Spec.Identity.VM, vm.Move
	end := d.past.Moved[id]
	d.add(ReportStatus{Status{VM: id, Generation: vm.Spec.Generation, Phase: p, Reason: reason, Move: m.Open, Permit: m.Permit, Bytes: end.Bytes, Downtime: end.Downtime,
		Resumes: p == PhaseRoom, Left: p == PhaseLost && d.handedOver(vm)}})
}
