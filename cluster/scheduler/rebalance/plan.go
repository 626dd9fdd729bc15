package rebalance

import (
	"fmt"
	"math"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Plan returns the plan of moves that raises the minimum yield, within a budget of bytes (-1: no bound). A plan without
// steps says that no move is worth it; its reason says why, with the figures. thrifty: of plans that bring nearly as much, take
// the one that moves least.
func Plan(f *moves.Fleet, budget int64, minGain float64, thrifty bool) (state.MovePlan, error) {
	p := f.Problem
	p.Budget = moves.Budget(budget)
	pl, err := migration.New(p)
	if err != nil {
		return state.MovePlan{}, fmt.Errorf("re-balance: %w", err)
	}
	plan, not := Worth(pl, p.Budget, minGain, thrifty)
	out := f.MovePlan(plan, state.MovesRebalance, budget)
	if not != "" {
		out.Steps, out.Bytes, out.Seconds, out.Reason = nil, 0, 0, not
		out.MinYieldAfter, out.AverageYieldAfter = out.MinYieldBefore, out.AverageYieldBefore
	}
	return out, nil
}

// Curve returns the minimum yield over the bytes moved.
func Curve(f *moves.Fleet) ([]migration.Point, error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return nil, fmt.Errorf("the yields that bytes buy: %w", err)
	}
	return pl.Curve(), nil
}

// PlanRoom returns the plan of moves after which the VCs fit that the fleet has beside those that run, within a budget of bytes
// (-1: no bound). It has no steps if there is none within the budget. takes is how many bytes would be enough; +Inf: no number
// is known to be.
func PlanRoom(f *moves.Fleet, budget int64) (plan state.MovePlan, takes float64, err error) {
	pl, err := migration.New(f.Problem)
	if err != nil {
		return state.MovePlan{}, math.Inf(1), fmt.Errorf("make room: %w", err)
	}
	p := pl.Plan(moves.Budget(budget))
	out := f.MovePlan(p, state.MovesRoom, budget)
	if takes = p.Takes; p.Feasible {
		takes = p.Bytes
		if all := pl.Plan(0); all.Feasible {
			takes = 0
		}
	}
	return out, takes, nil
}

// Worth returns the plan to carry out of all that are possible within a budget of bytes: the best one; thrifty: of those that
// bring nearly all of the possible gain the one that moves least. not says why none is worth it, with the figures; "" = this
// one is.
func Worth(pl *migration.Planner, budget, minGain float64, thrifty bool) (plan migration.Plan, not string) {
	plan = pl.Plan(budget)
	switch gain := plan.MinYieldAfter - plan.MinYieldBefore; {
	case !plan.Feasible:
		return plan, plan.Reason
	case plan.Moves == 0:
		return plan, plan.Reason
	case gain < minGain*plan.MinYieldBefore:
		return plan, fmt.Sprintf("no beneficial move: %s of %s would bring the minimum yield from %.4f to %.4f, %.1f%% more, and less than %.0f%% is not worth it",
			migration.Counted(plan.Moves, "move"), bytesText(plan.Bytes), plan.MinYieldBefore, plan.MinYieldAfter, 100*gain/plan.MinYieldBefore, 100*minGain)
	case thrifty:
		enough := plan.MinYieldBefore + max(nearly*gain, minGain*plan.MinYieldBefore)
		if less := pl.Cheapest(enough); less.Feasible && less.Bytes < plan.Bytes {
			less.Reason = fmt.Sprintf("%s; %.4f would take %s", less.Reason, plan.MinYieldAfter, bytesText(plan.Bytes))
			plan = less
		}
	}
	return plan, ""
}

func bytesText(b float64) string { return fmt.Sprintf("%.1f GiB", b/(1<<30)) }
