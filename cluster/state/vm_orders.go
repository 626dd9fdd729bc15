package state

import (
	"fmt"
	"slices"
	"strings"
)

// vmOrdersSince is the version of the format that brought orders to single VMs.
const vmOrdersSince = 2

// VMOrder is what a user asked of one VM alone. The zero value is nothing. A start of the VM ends it, as does any order to its
// whole VC.
type VMOrder struct {
	// StoppedBy names the user who asked that the VM stay stopped; "" = none did. Neither failures, nor hosts that come back, nor
	// changes of its VC's size start it. Its host keeps its memory: see KeepsMemory.
	StoppedBy string `json:"stoppedBy,omitempty"`
	// Restart: once it has stopped it starts again on the same host. Until then it is charged as if it ran.
	Restart bool `json:"restart,omitempty"`
	// Elsewhere, with Restart: the VM need not start on its own host. It is charged as a VM that stops. Then it starts on any host with
	// room, its own included. Elsewhere stays set while the VM is lost and waits for a host.
	Elsewhere bool  `json:"elsewhere,omitempty"`
	Reset     Reset `json:"reset,omitzero"`
}

// Reset is the last reset that was asked for of the present generation.
type Reset struct {
	ID    string     `json:"id,omitempty"` // that of its operation
	State ResetState `json:"state,omitempty"`
	Text  string     `json:"text,omitempty"` // why it failed
}

// ResetState says how far a reset is.
type ResetState string

// States of a reset. The last two are ends. A host that got the permit resets the VM once, or never: no second one is given.
const (
	ResetAsked     ResetState = "asked"
	ResetPermitted ResetState = "permitted"
	ResetDone      ResetState = "done"
	ResetFailed    ResetState = "failed"
)

// Pending says that the reset has not ended.
func (r Reset) Pending() bool { return r.State == ResetAsked || r.State == ResetPermitted }

// cancelled returns the reset as it is once the VM does not run any more.
func (r Reset) cancelled(why string) Reset {
	if r.Pending() {
		r.State, r.Text = ResetFailed, why
	}
	return r
}

// ToRun says whether the VM is to run where it is, or will be as soon as it has stopped.
func (v VM) ToRun() bool { return v.Goal == GoalRun || v.RestartsInPlace() }

// RestartsInPlace says whether the VM stops and then starts on the same host.
func (v VM) RestartsInPlace() bool { return v.Order.Restart && !v.Order.Elsewhere }

// KeepsMemory says whether the VM was stopped alone: it does not run, and its host keeps its memory free for it.
func (v VM) KeepsMemory() bool {
	return v.Order.StoppedBy != "" && v.Phase == Stopped && v.Goal == GoalStop && v.ChargedMemory > 0
}

// StoppedAlone returns how many of the VMs users have stopped one by one, and who: each name once, in order.
func StoppedAlone(vms []VM) (n int, by []string) {
	for _, vm := range vms {
		if vm.Order.StoppedBy != "" && vm.Goal == GoalStop {
			n++
			by = append(by, vm.Order.StoppedBy)
		}
	}
	slices.Sort(by)
	return n, slices.Compact(by)
}

// StoppedAloneText is "2 VMs stopped by ann, ben"; "" if none was.
func StoppedAloneText(n int, by []string) string {
	if n == 0 {
		return ""
	}
	return VMs(n) + " stopped by " + strings.Join(by, ", ")
}

// VMReset is a step of a reset: its permit, which goes into the log before the host is given it, or its end.
type VMReset struct {
	VM         string `json:"vm"` // id
	Generation uint64 `json:"generation"`
	ID         string `json:"id"`   // Reset.ID
	Host       string `json:"host"` // that asks for the permit, or reports
	Permit     bool   `json:"permit,omitempty"`
	Failed     bool   `json:"failed,omitempty"` // without Permit: the VM was not reset, or the outcome is not known
	Text       string `json:"text,omitempty"`
}

func (b *VMReset) valid() error { return check("VM", b.VM, "id", b.VM, "reset", b.ID, "host", b.Host) }

// ResetRefused says why a host may not reset a VM now; "" if it may.
func (v VM) ResetRefused(host string, generation uint64, id string) string {
	switch {
	case v.Generation != generation || v.Host != host:
		return fmt.Sprintf("generation %d does not run on host %s by the state", generation, host)
	case v.MovingTo != "":
		return "it is on its way to host " + v.MovingTo
	case v.Phase != Running || v.Goal != GoalRun:
		return fmt.Sprintf("it is %s", v.Phase)
	case v.Order.Reset.ID != id || v.Order.Reset.State != ResetAsked:
		return "this reset is not asked for any more"
	}
	return ""
}

func (w *writer) vmReset(b *VMReset) error {
	vm, ok := w.read().VM(b.VM)
	if !ok {
		return fmt.Errorf("reset of VM %s: %w", b.VM, ErrNotFound)
	}
	meta, _ := w.read().Meta()
	r := &vm.Order.Reset
	switch {
	case !b.Permit && (r.ID != b.ID || r.State != ResetPermitted || vm.Generation != b.Generation):
		return fmt.Errorf("reset of VM %s: it has ended: %w", vm.Name, ErrConflict)
	case !b.Permit && b.Failed:
		*r = r.cancelled(b.Text)
		w.event("vm-reset-failed", "vm", vm.Name, "was not reset%s", because(b.Text))
	case !b.Permit:
		r.State = ResetDone
		w.event("vm-reset", "vm", vm.Name, "was reset on host %s", b.Host)
	case meta.RecoveryFreeze.On():
		return fmt.Errorf("reset of VM %s: held after a %s: %w", vm.Name, meta.RecoveryFreeze.Reason, ErrConflict)
	default:
		if why := vm.ResetRefused(b.Host, b.Generation, b.ID); why != "" {
			return fmt.Errorf("reset of VM %s: %s: %w", vm.Name, why, ErrConflict)
		}
		r.State = ResetPermitted
	}
	vm.ModifyIndex = w.index
	w.put(tVMs, &vm)
	return nil
}

// startAgain returns a VM that is reported to have stopped and is to be restarted. It starts again on its host. If it is to start
// elsewhere, or its host has no room any more, it becomes lost: it waits for a place on any host. The state still has the VM's row of
// before the report.
func (w *writer) startAgain(vm VM, g *Group) VM {
	vc := w.cachedVC(vm.VC)
	if vc == nil || vc.Goal != GoalRun || !vc.Admitted {
		vm.Order.Restart, vm.Order.Elsewhere = false, false // it starts with its VC
		return vm
	}
	if vm.Order.Elsewhere {
		return vm.lost(vm.Reason)
	}
	before := w.ledgerOf(vm.Host).Load
	next := vm.Start(*g)
	next.ModifyIndex = w.index
	w.put(tVMs, &next)
	if err := w.checkLimits(vm.Host, before); err != nil {
		vm.Order.Elsewhere = true
		return vm.lost("it was to be restarted, and there is no room for it now")
	}
	return next
}

// hasVMOrders says whether the plan has what came with orders to single VMs.
func (p Plan) hasVMOrders() bool {
	return p.Operation != nil && p.Operation.VM != "" || slices.ContainsFunc(p.VMs, func(vm VM) bool { return vm.Order != VMOrder{} })
}

// hasVMOrders says whether the state has what came with orders to single VMs.
func (s *Snapshot) hasVMOrders() (found bool) {
	s.EachVM(func(vm *VM) bool { found = vm.Order != VMOrder{}; return !found })
	each(s, func(op *Operation) bool { found = found || op.VM != ""; return !found }, tOps, "id")
	return found
}

// vmProgress is the progress of an operation on one VM.
func (s *Snapshot) vmProgress(op Operation) Progress {
	p := Progress{State: OpPending, Total: 1}
	end := func(as OpState, text string) Progress {
		if p.State, p.Text = as, text; as == OpDone {
			p.Done = 1
		}
		return p
	}
	vm, ok := s.VM(op.VM)
	switch {
	case !ok:
		return end(OpSuperseded, "the VM is gone")
	case op.Kind == "reset" && vm.Order.Reset.ID != op.ID:
		return end(OpSuperseded, "the VM was started again, or another reset was asked for")
	case op.Kind == "reset" && vm.Order.Reset.State == ResetDone:
		return end(OpDone, "reset")
	case op.Kind == "reset" && vm.Order.Reset.State == ResetFailed:
		return end(OpFailed, vm.Order.Reset.Text)
	case op.Kind == "reset":
		return end(OpPending, "its host is to reset it")
	case op.Kind == "stop" && vm.Goal == GoalRun:
		return end(OpSuperseded, "a later request wants it to run")
	case op.Kind == "stop" && vm.ConsumesResources():
		return end(OpPending, "it is shutting down")
	case op.Kind == "stop":
		return end(OpDone, "stopped")
	case vm.Order.Restart && vm.Generation < op.Generation:
		return end(OpPending, "it is shutting down, to start again")
	case !vm.ToRun():
		return end(OpSuperseded, "a later request wants it to "+string(vm.Goal))
	case vm.Phase == Lost:
		return end(OpPending, "it waits to be started: "+vm.Reason)
	case vm.Generation < op.Generation:
		return end(OpSuperseded, "it was not started again: "+vm.Reason)
	case vm.Phase == Failed:
		return end(OpFailed, vm.Reason)
	case vm.Phase == Running:
		return end(OpDone, "running")
	}
	return end(OpPending, strings.TrimSuffix("it is starting: "+vm.Reason, ": "))
}
