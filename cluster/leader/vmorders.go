package leader

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
)

// vmVerb is a change of one VM that a user asks for; its vm is as the state has it.
type vmVerb func(s *state.Snapshot, vc state.VC, vm state.VM) (admission.Answer, error)

// changeVM carries out a change of one VM, by its full name.
func (c *Service) changeVM(ctx context.Context, verb, name string, call Call, do vmVerb) (Result, error) {
	return c.change(ctx, verb, name, "VM", call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		vm, ok := s.VMNamed(name)
		if !ok {
			return admission.Answer{}, true, fmt.Errorf("VM %s: %w", name, ErrNotFound)
		}
		vc, _ := s.VC(vm.VC)
		switch {
		case vm.Goal == state.GoalDelete:
			return admission.Answer{}, true, &Busy{"VM " + name + " is being deleted"}
		case vc.Goal != state.GoalRun:
			return admission.Answer{}, true, &Busy{"virtual cluster " + vc.Name + " is to " + string(vc.Goal) + ": start it first"}
		case !vc.Admitted:
			return admission.Answer{}, true, &Busy{"virtual cluster " + vc.Name + " waits for room: none of its VMs is to run now"}
		case !global:
			return admission.Answer{}, false, nil
		}
		a, err := do(s, vc, vm)
		return a, false, err
	})
}

// aboutVM says in the operation of an answer's plan which VM it is about.
func aboutVM(a *admission.Answer) {
	op, vm := a.Plan.Operation, a.VM
	op.VM, op.VMName, op.Generation = vm.ID, vm.Name, vm.Generation
	switch op.Kind {
	case "restart":
		op.Generation++ // the one that runs then
	case "reset":
		for i := range a.Plan.VMs {
			a.Plan.VMs[i].Order.Reset.ID = op.ID
		}
	}
}

// StopVM stops one VM, and keeps it stopped: its memory stays charged to its host.
func (c *Service) StopVM(ctx context.Context, name string, call Call) (Result, error) {
	return c.changeVM(ctx, "stop", name, call, func(s *state.Snapshot, vc state.VC, vm state.VM) (admission.Answer, error) {
		return admission.StopVM(s, vc, vm, userOf(ctx)), nil
	})
}

// StartVM starts one VM that does not run, if there is room for it. *Refused: there is none.
func (c *Service) StartVM(ctx context.Context, name string, call Call) (Result, error) {
	return c.changeVM(ctx, "start", name, call, func(s *state.Snapshot, vc state.VC, vm state.VM) (admission.Answer, error) {
		switch {
		case vm.Phase == state.Stopping:
			return admission.Answer{}, &Busy{"VM " + name + " is still stopping; try again when it has"}
		case vm.ConsumesResources():
			return admission.Answer{}, &Busy{fmt.Sprintf("VM %s is %s already", name, vm.Phase)}
		}
		if err := s.CheckGrowth("start", &vc); err != nil {
			return admission.Answer{}, err
		}
		return admission.StartVM(s, vc, vm, c.current.Load().env()), nil
	})
}

// RestartVM stops one VM and starts it again on its host.
func (c *Service) RestartVM(ctx context.Context, name string, call Call) (Result, error) {
	return c.changeVM(ctx, "restart", name, call, func(s *state.Snapshot, vc state.VC, vm state.VM) (admission.Answer, error) {
		if err := inPlace(vm); err != nil {
			return admission.Answer{}, err
		}
		return admission.RestartVM(s, vc, vm, userOf(ctx)), nil
	})
}

// ResetVM has the guest of one VM boot again at once. Its host resets it once, or never.
func (c *Service) ResetVM(ctx context.Context, name string, call Call) (Result, error) {
	return c.changeVM(ctx, "reset", name, call, func(s *state.Snapshot, vc state.VC, vm state.VM) (admission.Answer, error) {
		if err := inPlace(vm); err != nil {
			return admission.Answer{}, err
		}
		if vm.Order.Reset.Pending() {
			return admission.Answer{}, &Busy{"VM " + name + " is being reset already; try again when it has been"}
		}
		return admission.ResetVM(s, vc, vm), nil
	})
}

// inPlace refuses what is done to a VM that runs, and does not move.
func inPlace(vm state.VM) error {
	switch {
	case vm.Phase != state.Running || vm.Goal != state.GoalRun:
		return &Busy{fmt.Sprintf("VM %s is %s: only one that runs can be restarted or reset", vm.Name, vm.Phase)}
	case vm.MovingTo != "":
		return &Busy{"VM " + vm.Name + " is on its way to another host; try again when it is there"}
	}
	return nil
}

// userOf names who asks: of a tenant with its name, as film/ann.
func userOf(ctx context.Context) string {
	a := audit.Of(ctx)
	switch name := a.Name; {
	case name == "" && a.ID == "":
		return "an operator"
	case name == "":
		return a.ID
	case a.Tenant != "":
		return a.Tenant + "/" + name
	default:
		return name
	}
}

// permitReset gives the permit for a reset, if the log takes it: it is given once.
func (t *term) permitReset(ctx context.Context, host string, ask agent.ResetAsk, p *agent.Permit) error {
	err := t.propose(ctx, state.KindVMReset, state.VMReset{VM: ask.VM, Generation: ask.Generation, ID: ask.ID, Host: host, Permit: true})
	switch {
	case err == nil:
		p.Resets = append(p.Resets, ask)
	case errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrNotFound):
		p.Refused = err.Error()
	default:
		return err
	}
	return nil
}

// recordResets records how resets ended.
func (c *Service) recordResets(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	for _, st := range r.Statuses {
		vm, ok := s.VM(st.VM)
		if st.Phase != agent.PhaseReset || !ok || vm.Order.Reset.ID != st.Reset || vm.Order.Reset.State != state.ResetPermitted {
			continue
		}
		body := state.VMReset{VM: st.VM, Generation: st.Generation, ID: st.Reset, Host: r.Host, Failed: st.Reason != "", Text: st.Reason}
		if err := c.propose(ctx, state.KindVMReset, body); err != nil && !errors.Is(err, state.ErrConflict) && !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return nil
}

// orderChange says what an order to one VM changes.
func orderChange(vm state.VM) (verb, text string) {
	switch {
	case vm.Order.Elsewhere:
		return "restart", fmt.Sprintf("stop %s on %s, and start it where there is room", vm.Name, vm.Host)
	case vm.Order.Restart:
		return "restart", fmt.Sprintf("stop %s on %s, and start it there again", vm.Name, vm.Host)
	case vm.Order.StoppedBy != "":
		return "stop", fmt.Sprintf("stop %s on %s, its memory there is kept", vm.Name, vm.Host)
	}
	return "reset", fmt.Sprintf("reset %s on %s", vm.Name, vm.Host)
}
