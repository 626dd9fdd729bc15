package leader

import "evenkeel/cluster/state"

// DrainVM is a VM of a host that is being drained.
type DrainVM struct {
	VM, VC     string // names
	State      string // that of its step: waiting, preparing, moving, done, failed, skipped; or stays, stopping, comes, starting
	To         string
	Migration  string // id
	Bytes      int64  // predicted
	BytesMoved int64
	Rate       float64 // bytes per second, while it moves
	ETA        float64 // seconds; below 0: not known
	Text       string
}

// DrainView is how far the drain of a host is.
type DrainView struct {
	state.Drain
	BytesMoved int64
	VMs        []DrainVM
}

// DrainView returns how far the drain of a host is.
func (v *View) DrainView(h state.Host) DrainView {
	out := DrainView{Drain: h.Drain, BytesMoved: h.Drain.Moved}
	if h.Drain.State == "" {
		return out
	}
	rows := map[string]int{}
	for _, p := range v.MovePlans() {
		if p.Kind != state.MovesDrain || p.Host != h.Name || p.CreateIndex < h.Drain.Begun {
			continue
		}
		if p.ID == h.Drain.Plan {
			out.BytesMoved += p.BytesMoved
		}
		for _, step := range p.Steps {
			vc, _ := v.VC(step.VC)
			row := DrainVM{VM: step.VMName, VC: vc.Name, State: string(step.State), To: step.To, Migration: step.Migration, Bytes: step.Bytes, ETA: -1, Text: step.Text}
			if m, ok := v.Migration(step.Migration); ok && step.Migration != "" {
				row = row.moves(v.MigrationView(m))
				if m.State == state.MigrationRunning {
					out.BytesMoved += row.BytesMoved
				}
			}
			at, known := rows[step.VMName]
			if !known {
				at = len(out.VMs)
				rows[step.VMName] = at
				out.VMs = append(out.VMs, DrainVM{})
			}
			out.VMs[at] = row
		}
	}
	v.EachVMOn(h.Name, func(vm *state.VM) bool {
		if vm.ConsumesResources() {
			v.stays(&out, rows, h, *vm)
		}
		return true
	})
	return out
}

// moves adds what is known of a migration.
func (d DrainVM) moves(m MigrationView) DrainVM {
	d.BytesMoved = m.BytesMoved
	if m.Live == nil {
		return d
	}
	d.Rate, d.Text = m.Live.Rate, m.Live.Text
	if speed := m.Live.Rate - m.Live.Dirty; speed > 0 {
		d.ETA = float64(m.Live.Remaining) / speed
	}
	return d
}

// stays adds a VM of the host that no step moves now, or the reason of its last step for its being there still.
func (v *View) stays(out *DrainView, rows map[string]int, h state.Host, vm state.VM) {
	at, known := rows[vm.Name]
	if known {
		switch state.StepState(out.VMs[at].State) {
		case state.StepWaiting, state.StepPreparing, state.StepMoving:
			return
		}
	} else {
		vc, _ := v.VC(vm.VC)
		at = len(out.VMs)
		out.VMs = append(out.VMs, DrainVM{VM: vm.Name, VC: vc.Name, ETA: -1})
	}
	row := &out.VMs[at]
	switch {
	case vm.MovingTo == h.Name:
		row.State, row.Text = "comes", "on its way from host "+vm.Host
	case vm.MovingTo != "":
		row.State, row.To = string(state.StepMoving), vm.MovingTo
	case vm.Phase == state.Stopping:
		row.State, row.Text = "stopping", vm.Reason
	case vm.Phase == state.Starting:
		row.State = "starting"
	default:
		row.State, row.To = "stays", ""
		if v.blockers != nil {
			for _, b := range v.blockers(h.Name) {
				if b.ID == vm.ID {
					row.Text = b.Why
				}
			}
		}
	}
}
