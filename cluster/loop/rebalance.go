package loop

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// budgetOf returns bytes in the terms of package migration; below 0: no bound.
func budgetOf(bytes int64) float64 {
	if bytes < 0 {
		return math.Inf(1)
	}
	return float64(bytes)
}

// Rebalance returns the plan of moves that raises the minimum yield, within a budget of bytes (-1: no bound). A plan without
// steps says that no move is worth it; its reason says why, with the figures. thrifty: of plans that bring nearly as much, take
// the one that moves least.
func Rebalance(f *Fleet, budget int64, minGain float64, thrifty bool) (state.MovePlan, error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return state.MovePlan{}, fmt.Errorf("re-balance: %w", err)
	}
	plan, not := Worth(pl, budgetOf(budget), minGain, thrifty)
	out := f.MovePlan(plan, state.MovesRebalance, budget)
	if not != "" {
		out.Steps, out.Bytes, out.Seconds, out.Reason = nil, 0, 0, not
		out.MinYieldAfter, out.AverageYieldAfter = out.MinYieldBefore, out.AverageYieldBefore
	}
	return out, nil
}

// Curve returns the minimum yield over the bytes moved.
func Curve(f *Fleet) ([]migration.Point, error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return nil, fmt.Errorf("the yields that bytes buy: %w", err)
	}
	return pl.Curve(), nil
}

// PlanRoom returns the plan of moves after which the VCs fit that the fleet has beside those that run, within a budget of bytes
// (-1: no bound). It has no steps if there is none within the budget. takes is how many bytes would be enough; +Inf: no number
// is known to be.
func PlanRoom(f *Fleet, budget int64) (plan state.MovePlan, takes float64, err error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return state.MovePlan{}, math.Inf(1), fmt.Errorf("make room: %w", err)
	}
	p := pl.Plan(budgetOf(budget))
	out := f.MovePlan(p, state.MovesRoom, budget)
	if takes = p.Takes; p.Feasible {
		takes = p.Bytes
		if all := pl.Plan(0); all.Feasible {
			takes = 0
		}
	}
	return out, takes, nil
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

// maxOver is how many times its predicted bytes a move may send at most: one that needs more will not end.
const maxOver = 4

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

// ReplanMoves returns a plan some moves of which did not happen, with moves that take their place: moves that have yet to begin
// are left out, and others that help are added, within what is left of the budget. instead is the plan for that. If it has no
// steps nothing else helps, and its reason says why.
func ReplanMoves(old state.MovePlan, instead state.MovePlan, why string) state.MovePlan {
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
		left -= beyond(m)
	}
	return max(0, left)
}

// beyond is what a migration may have sent, or may yet send, beyond what its plan's sum has, bytes.
func beyond(m state.Migration) int64 {
	switch {
	case m.State == state.MigrationRunning:
		return max(m.MaxBytes, m.BytesMoved)
	case !m.Reported: // what it reported is in the sum
		return max(0, m.MaxBytes-m.BytesMoved)
	}
	return 0
}

// StillValid says why a plan that was made earlier is not valid any more; "" = it is: its VMs are where they were, its hosts
// take VMs, and it raises the minimum yield.
func (f *Fleet) StillValid(p state.MovePlan) string {
	place := map[string]string{}
	for _, step := range p.Steps {
		vm, ok := f.s.VM(step.VM)
		at := f.Host(step.To)
		from, moves := place[step.VM]
		if !moves {
			from = vm.Host
		}
		switch {
		case !ok || vm.Goal != state.GoalRun || vm.Phase != state.Running:
			return "VM " + step.VMName + " does not run any more"
		case f.Pinned[step.VM] != "":
			return "VM " + step.VMName + " " + f.Pinned[step.VM]
		case from != step.From:
			return "VM " + step.VMName + " runs on host " + vm.Host + " now"
		case at < 0 || f.Hosts[at].Cordoned:
			return "host " + step.To + " takes no VMs now"
		}
		place[step.VM] = step.To
	}
	lowest := 1.0
	for i := range f.groups {
		lowest = min(lowest, f.groups[i].group.Yield())
	}
	_, with, err := f.Outcome(p)
	if err != nil {
		return err.Error()
	}
	if with < min(p.MinYieldAfter, 1)*(1-1e-6) && with <= lowest*(1+1e-6) {
		return fmt.Sprintf("the minimum yield would go from %.4f to %.4f", lowest, with)
	}
	return ""
}

// Outcome returns the minimum yield after a new division of the CPU: without the moves of a plan that have not begun, and with
// them.
func (f *Fleet) Outcome(p state.MovePlan) (without, with float64, err error) {
	place := map[string]int{}
	for _, step := range p.Steps {
		if at := f.Host(step.To); at >= 0 && !step.State.Ended() && step.State != state.StepMoving {
			place[step.VM] = at
		}
	}
	q := allocator.Problem{}
	for _, h := range f.Hosts {
		q.Hosts = append(q.Hosts, allocator.Host{Name: h.Name, CPU: h.CPU, Memory: allocator.GreatestNumber})
	}
	for _, g := range f.Groups {
		q.Groups = append(q.Groups, allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, CPU: g.CPU, Memory: g.Memory, Hosts: g.Hosts})
	}
	sol, err := allocator.Allocate(q)
	if err != nil {
		return 0, 0, fmt.Errorf("share CPU: %w", err)
	}
	without = sol.MinYield
	for i := range q.Groups {
		hosts := slices.Clone(q.Groups[i].Hosts)
		for k := range hosts {
			if at, moves := place[f.VM(i, k).ID]; moves {
				hosts[k] = at
			}
		}
		q.Groups[i].Hosts = hosts
	}
	if sol, err = allocator.Allocate(q); err != nil {
		return 0, 0, fmt.Errorf("share CPU: %w", err)
	}
	return without, sol.MinYield, nil
}

// Needs is the log index of the last change of what a VC needs.
func Needs(s *state.Snapshot) uint64 {
	last := uint64(0)
	s.EachVC(func(vc *state.VC) bool { last = max(last, vc.ModifyIndex); return true })
	return last
}
