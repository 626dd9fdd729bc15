package state

import "fmt"

// LeftoverStays says why the paused VM of that generation that a migration left on a host must not be destroyed; "" if it may be. It
// may be destroyed if it can never be resumed rightly: the VM ran elsewhere since, has ended, or is to start again. m is the running
// migration of the VM, the zero value if there is none. deleted: the VM is paused and no state was ever restored here, so a VM that the
// state does not know was deleted.
func LeftoverStays(vm VM, m Migration, known bool, host string, generation uint64, deleted bool) string {
	switch here := vm.Host == host; {
	case !known && deleted:
		return ""
	case !known:
		return "the state does not know it"
	case vm.Generation < generation:
		return fmt.Sprintf("it is of generation %d, and the state knows %d", generation, vm.Generation)
	case vm.Generation > generation: // the newer one was permitted only after proof that no older one runs
		return ""
	case vm.MovingTo == host && !here:
		switch {
		case m.Ready && m.Left > 0:
			return "it was handed over, and is to be resumed here"
		case m.Ready && (!m.Paused || m.SourceLost == 0):
			return "it may come in by the move that is open"
		}
		return "" // an older move left it: this source keeps the VM until Ready. Or the source is lost and may have run it since
	case vm.MovingTo != "" && here:
		switch {
		case !m.Ready:
			return "its move has not begun"
		case m.Paused && m.SourceLost == 0:
			return "it is to be resumed here, as it was not handed over"
		}
		return "" // the target reports that the VM arrived, or the VM is lost
	case vm.MovingTo != "" || vm.Phase == Running || vm.Phase == Stopping:
		if here {
			return "by the state it runs here"
		}
		return ""
	case vm.Phase == Starting:
		return "this very generation is to start"
	}
	return ""
}

// ResumeRefused says why a host may not resume a VM that a move left paused there; "" if it may. move is Migration.Open, 0 for a
// move that is closed. m is the running migration of the VM, the zero value if there is none.
// A move's source may resume the VM until it has reported that the VM left: only that report lets the target resume it.
func ResumeRefused(vm VM, m Migration, known bool, host string, generation, move uint64) string {
	switch {
	case !known || vm.Generation != generation || m.Open != move || vm.MovingTo != "" && !m.Paused:
		return fmt.Sprintf("move %d of generation %d is not open", move, generation)
	case vm.MovingTo == "" && (vm.Host != host || !vm.ConsumesResources() || vm.Phase == Starting):
		return "by the state it does not run here"
	case host == vm.Host && m.SourceLost == 0:
		return ""
	case host == vm.Host:
		return "it was proved gone from here"
	case host == vm.MovingTo && m.Left > 0:
		return ""
	case host == vm.MovingTo:
		return "its source has not said that it left"
	}
	return "it is neither the source nor the target of the move"
}

// vmReport applies a host's report to its VMs. A status for another host's VM, another generation, another move or an unknown
// VM is stale and changes nothing.
func (w *writer) vmReport(b *VMReport) error {
	if _, ok := w.read().Host(b.Host); !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	meta, _ := w.read().Meta()
	for _, st := range b.VMs {
		vm, ok := w.read().VM(st.VM)
		if !ok || vm.Generation != st.Generation {
			continue
		}
		switch {
		case vm.MovingTo != "": // either host may have it: what ended on one may run on the other
			w.moveStep(vm, b.Host, st, vm.Goal == GoalRun && !meta.RecoveryFreeze.On())
		case vm.Host == b.Host && st.Move == 0:
			w.step(vm, st)
		}
	}
	return nil
}

// moveStep applies a host's report of a VM that moves. mayPermit: see Migration.reported.
func (w *writer) moveStep(vm VM, host string, st VMStatus, mayPermit bool) {
	m, _ := w.read().MigrationOf(vm.ID)
	next, lost := m.reported(host, st, mayPermit, w.index)
	w.changeMigration(m, next)
	if lost && vm.ConsumesResources() {
		w.sourceLost(vm, host, st.Reason)
	}
}

// changeMigration writes a migration that is not as it was.
func (w *writer) changeMigration(old, next Migration) {
	if next != old {
		w.put(tMigrations, &next)
	}
}

func (w *writer) step(vm VM, st VMStatus) {
	old := vm
	if st.SourceLost && vm.Goal == GoalDelete {
		w.drop(tVMs, &vm)
		w.touch(vm.Host)
		w.event("vm-deleted", "vm", vm.Name, "deleted from host %s", vm.Host)
		w.sweep(vm.VC)
		return
	}
	if st.Phase == Lost {
		if vm.ConsumesResources() {
			w.markLost(vm, st.Reason)
		}
		return
	}
	g := w.cachedVC(vm.VC).SharedGroup(vm.Group)
	if g == nil {
		g = &Group{}
	}
	vm = vm.reported(st, g)
	if vm == old {
		return
	}
	if vm.Order.Restart && vm.Phase == Stopped {
		vm = w.startAgain(vm, g)
	}
	vm.ModifyIndex = w.index
	w.put(tVMs, &vm)
	if vm.ChargedMemory != old.ChargedMemory || vm.ConsumesResources() != old.ConsumesResources() || vm.Generation != old.Generation {
		w.touch(vm.Host)
	}
	if phase := vm.Phase; phase != old.Phase {
		w.runOf(vm)
		if vm.Order.Elsewhere {
			phase = Stopped // in order: it waits for its start
		}
		w.event("vm-"+string(phase), "vm", vm.Name, "%s on host %s%s", phase, vm.Host, because(vm.Reason))
	}
}
