package leader

import (
	"context"
	"fmt"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
)

// MigrateRequest asks for the move of one VM that runs.
type MigrateRequest struct {
	To       string // host; "" = the best one
	MaxBytes *int64 // most bytes that it may send; nil or -1: no bound
	By, Text string // the caller, and why
}

// Unmovable says why a VM cannot move. Nothing was changed. It is a conflict.
type Unmovable struct {
	To      string // host; "" = any
	Blocker Blocker
}

// Error implements error.
func (e *Unmovable) Error() string {
	if e.To == "" {
		return fmt.Sprintf("VM %s cannot move: %s", e.Blocker.VM, e.Blocker.Why)
	}
	return fmt.Sprintf("VM %s cannot move to host %s: %s", e.Blocker.VM, e.To, e.Blocker.Why)
}

// Is makes it an ErrConflict.
func (e *Unmovable) Is(target error) bool { return target == ErrConflict }

// MigrateVM moves one VM, by its full name, as a plan of one move. Nothing keeps the VM there: later plans may move it again.
func (c *Service) MigrateVM(ctx context.Context, name string, q MigrateRequest, call Call) (MoveResult, error) {
	if err := checkReason("reason", q.Text); err != nil {
		return MoveResult{}, err
	}
	budget := int64(-1)
	if q.MaxBytes != nil {
		budget = *q.MaxBytes
	}
	same := q
	same.By = sameBy
	var hosts []moves.HostYield
	r, err := c.movePlan(ctx, "move", fingerprint("migrate", name, same), call, func(s *state.Snapshot) (state.MovePlanPut, error) {
		vm, ok := s.VMNamed(name)
		if !ok {
			return state.MovePlanPut{}, fmt.Errorf("VM %s: %w", name, ErrNotFound)
		}
		if _, ok := s.Host(q.To); q.To != "" && !ok {
			return state.MovePlanPut{}, fmt.Errorf("host %s: %w", q.To, ErrNotFound)
		}
		if vm.Goal != state.GoalRun || vm.Phase != state.Running {
			why := fmt.Sprintf("it is %s, and only a VM that runs is moved", vm.Phase)
			return state.MovePlanPut{}, &Unmovable{q.To, Blocker{ID: vm.ID, VM: name, Why: why}}
		}
		t := c.current.Load()
		meta, _ := s.Meta()
		f := moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{CopyStorage: meta.Settings.Moves.CopyStorage})
		one, err := moves.PlanOne(f, vm.ID, q.To, budget)
		switch {
		case err != nil:
			return state.MovePlanPut{}, err
		case one.Blocker != nil:
			return state.MovePlanPut{}, &Unmovable{q.To, *one.Blocker}
		}
		one.Plan.By, one.Plan.Text, hosts = q.By, q.Text, one.Hosts
		return state.MovePlanPut{Plan: one.Plan}, nil
	})
	if !r.Replayed {
		r.Hosts = hosts
	}
	return r, err
}
