package moves

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Budget returns bytes in the terms of package migration; below 0: no bound.
func Budget(bytes int64) float64 {
	if bytes < 0 {
		return math.Inf(1)
	}
	return float64(bytes)
}

// MovePlan returns a plan of package migration in the form in which it is recorded: its moves, each with the moves for which it
// waits, and with its allotment. The plan has no id and no time yet, and no move of it has begun.
func (f *Fleet) MovePlan(p migration.Plan, kind state.MovePlanKind, budget int64) state.MovePlan {
	out := state.MovePlan{Kind: kind, State: state.MovesRunning, Basis: f.Basis, Budget: budget, Seconds: p.Seconds, Reason: p.Reason, Effort: f.Steps,
		MinYieldBefore: p.MinYieldBefore, MinYieldAfter: p.MinYieldAfter, AverageYieldBefore: p.AverageYieldBefore, AverageYieldAfter: p.AverageYieldAfter,
		UpperBound: p.UpperBound}
	if out.Effort == 0 {
		out.Effort = migration.DefaultSteps
	}
	at := make([]int, len(p.Steps)) // move of a step, -1: none
	before := make([]map[int]bool, len(p.Steps))
	for i, step := range p.Steps {
		at[i], before[i] = -1, map[int]bool{}
		for _, j := range step.After { // earlier ones, all of them
			if at[j] >= 0 {
				before[i][at[j]] = true
				continue
			}
			for k := range before[j] {
				before[i][k] = true
			}
		}
		if step.Kind != migration.Move {
			continue
		}
		vm, ref := f.VM(step.Group, step.VM), f.groups[step.Group]
		at[i] = len(out.Steps)
		row := state.MoveStep{VM: vm.ID, VMName: vm.Name, VC: vm.VC, Group: vm.Group, From: f.Hosts[step.From].Name, To: f.Hosts[step.To].Name,
			Bytes: int64(math.Ceil(step.Bytes)), CopyStorage: ref.copy, Staging: step.Staging, Reason: step.Reason, Begins: step.Begins, Seconds: step.Seconds, State: state.StepWaiting}
		for k := range before[i] {
			row.After = append(row.After, k)
		}
		slices.Sort(row.After)
		out.Steps = append(out.Steps, row)
		out.Bytes += row.Bytes
	}
	allot(out.Steps, budget)
	return out
}

// allot divides a budget among moves: to each what it is predicted to send, and of what is left a part in proportion, up to
// maxOver. The sum is never above the budget.
func allot(steps []state.MoveStep, budget int64) {
	sum := int64(0)
	for i := range steps {
		sum += steps[i].Bytes
	}
	for i := range steps {
		s := &steps[i]
		switch {
		case budget < 0:
			s.Allotment = -1
		case sum <= 0:
			s.Allotment = 0
		default:
			s.Allotment = min(maxOver*s.Bytes, int64(float64(s.Bytes)/float64(sum)*float64(budget)*(1-1e-12)))
		}
	}
}

// Replanned returns a plan some moves of which did not happen, with other moves in their place. Moves that have yet to begin are
// skipped; those of instead, which was planned within what is left of the budget, are added. If instead has no steps nothing else
// helps, and its reason says why.
func Replanned(old state.MovePlan, instead state.MovePlan, why string) state.MovePlan {
	out := old
	out.Tries++
	out.Failures = 0
	out.Steps = slices.Clone(old.Steps)
	for i := range out.Steps {
		switch s := &out.Steps[i]; s.State {
		case state.StepWaiting, state.StepPreparing:
			s.State, s.Text = state.StepSkipped, "planned again: "+why
		case state.StepFailed:
			out.Failures++
		}
	}
	first := len(out.Steps)
	for _, s := range instead.Steps {
		s.After = slices.Clone(s.After)
		for k := range s.After {
			s.After[k] += first
		}
		out.Steps = append(out.Steps, s)
	}
	out.MinYieldAfter, out.AverageYieldAfter, out.UpperBound = instead.MinYieldAfter, instead.AverageYieldAfter, instead.UpperBound
	out.Reason = fmt.Sprintf("planned again, since %s: %s", why, instead.Reason)
	return out
}

// Left is what a plan may still send: its budget, less what it sent, less what moves may have sent, or may yet send, whose
// sources have not reported. Bytes; -1: no bound.
func Left(s *state.Snapshot, p state.MovePlan) int64 {
	if p.Budget < 0 {
		return -1
	}
	left := p.Budget - p.BytesMoved
	for _, m := range s.MigrationsOf(p.ID) {
		left -= Unreported(m)
	}
	return max(0, left)
}

// Unreported is what a migration may have sent, or may yet send, in bytes, that its plan's BytesMoved does not count yet.
func Unreported(m state.Migration) int64 {
	switch {
	case m.State == state.MigrationRunning:
		return max(m.MaxBytes, m.BytesMoved)
	case !m.Reported: // what it reported is in the sum
		return max(0, m.MaxBytes-m.BytesMoved)
	}
	return 0
}

// Stop returns a change of the plan after which none of its moves begins any more. Those under way end.
func Stop(p state.MovePlan, why string) *state.MovePlanPut {
	version := p.ModifyIndex
	p.State, p.Reason = state.MovesStopped, why
	p.Steps = state.Skipped(p.Steps, why)
	return &state.MovePlanPut{Plan: p, Version: version}
}
