package rebalance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// RunnerOptions are what the leader gives a Runner.
type RunnerOptions struct {
	Log   *slog.Logger
	Now   func() time.Time
	NewID func() string
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	Env     func() placement.Env
	// Observation is what agents reported of VMs, and of what their hosts need to take VMs over.
	Observation func(*state.Snapshot) moves.Observation
	// Silent names the hosts that owe this leader a report, as a text; "": there are none.
	Silent func(*state.Snapshot) string
	// Queue returns the VCs that wait, in the order in which they are tried.
	Queue func(*state.Snapshot) []state.VC
	// Slots returns the slots that begin soon and for which no hosts have room, in the order in which they are tried.
	Slots func(*state.Snapshot, time.Time) []placement.Slot
}

// Runner plans moves that raise the minimum yield or make room for VCs that wait, in one term of a leader. The next
// term has its own. One goroutine uses it: the control loop's.
type Runner struct {
	o           RunnerOptions
	seen        Trigger
	evaluatedAt time.Time         // whether moves would help
	wake        time.Time         // when that is due again though nothing changes; zero: never
	weighed     map[string]uint64 // plans that were found to help still, and the last change of needs at that time
	tried       map[string]uint64 // VCs and occurrences that room was looked for, and the placement index at that time
	slotsAt     time.Time         // when room was looked for for slots
}

// NewRunner begins a term.
func NewRunner(o RunnerOptions) *Runner {
	return &Runner{o: o, weighed: map[string]uint64{}, tried: map[string]uint64{}}
}

// Due returns when Balance is due again though nothing changes; zero: never. A time that has passed is returned once: the evaluation
// that follows sets the next.
func (r *Runner) Due(now time.Time) time.Time {
	at := r.wake
	if !at.After(now) {
		r.wake = time.Time{}
	}
	return at
}

// Weigh evaluates running re-balances again where needs have changed since: one whose remaining moves do not help any more is
// planned again.
func (r *Runner) Weigh(ctx context.Context, s *state.Snapshot, env placement.Env) (bool, error) {
	if len(s.RunningMovePlans()) == 0 {
		clear(r.weighed)
		return false, nil
	}
	needs := moves.Needs(s)
	meta, _ := s.Meta()
	for _, p := range s.RunningMovePlans() {
		begin := func(st state.MoveStep) bool { return st.State == state.StepWaiting || st.State == state.StepPreparing }
		if p.Kind != state.MovesRebalance || len(env.Awaited) > 0 || needs <= max(p.Basis, r.weighed[p.ID]) || meta.RecoveryFreeze.On() || !slices.ContainsFunc(p.Steps, begin) {
			continue
		}
		f := moves.NewFleet(s, env, r.o.Observation(s), moves.Options{Supersedes: []string{p.ID}, CopyStorage: meta.Settings.Moves.CopyStorage})
		without, with, err := f.Outcome(p)
		if err != nil {
			return false, err
		}
		if r.weighed[p.ID] = needs; with > without*(1+1e-6) {
			continue
		}
		why := fmt.Sprintf("needs have changed: the moves to come would bring the minimum yield from %.4f to %.4f", without, with)
		err = r.Replan(ctx, s, env, &moves.Replan{Plan: p, Why: why})
		if errors.Is(err, state.ErrConflict) {
			delete(r.weighed, p.ID)
			return false, nil
		}
		return err == nil, err
	}
	return false, nil
}

// Replan plans again what is left of a plan some moves of which did not happen. If nothing helps any more, the plan has failed. It is
// stopped instead if no move failed, or if silent hosts could take VMs. For a drain silent hosts make no difference: the drain goes on
// with another plan.
func (r *Runner) Replan(ctx context.Context, s *state.Snapshot, env placement.Env, a *moves.Replan) error {
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	o := moves.Options{Supersedes: []string{a.Plan.ID}, Pinned: a.Pinned, CopyStorage: set.CopyStorage}
	left := moves.Left(s, a.Plan)
	var instead state.MovePlan
	var err error
	switch a.Plan.Kind {
	case state.MovesRebalance:
		instead, err = Plan(moves.NewFleet(s, env, r.o.Observation(s), o), left, set.MinGain, false)
	case state.MovesRoom:
		if vc, ok := s.VC(a.Plan.VC); a.Plan.Occurrence != "" {
			instead.Reason = "where its hosts lack room still, the agenda plans again"
		} else if ok && vc.Goal == state.GoalRun && !vc.Admitted {
			instead, _, err = PlanRoom(moves.NewFleet(s, env, r.o.Observation(s), o, vc), left)
		} else {
			instead.Reason = "no VM waits for the room any more"
		}
	case state.MovesMemory:
		instead.Reason = "where memory is short still, rightsizing plans again"
	case state.MovesOne:
		instead.Reason = "it was one move that a user asked for: ask again"
	default:
		instead.Reason = "the caller that asked for it has to continue it"
	}
	if err != nil {
		instead.Reason = err.Error()
	}
	silent := r.o.Silent(s)
	if silent != "" && len(instead.Steps) == 0 && a.Plan.Kind != state.MovesDrain {
		instead.Reason += "; not counted: " + silent + ", not heard of since this server leads"
	}
	next := moves.Replanned(a.Plan, instead, a.Why)
	failed := next.Failures > a.Plan.Failures
	if !failed {
		next.Tries = a.Plan.Tries // no move failed: this is not a try
	}
	switch {
	case len(instead.Steps) > 0:
	case failed && (silent == "" || a.Plan.Kind == state.MovesDrain): // a drain goes on with another plan
		next.State = state.MovesFailed
	default:
		next.State = state.MovesStopped
	}
	return r.o.Propose(ctx, state.KindMovePlan, state.MovePlanPut{Plan: next, Version: a.Plan.ModifyIndex})
}

// MakeRoom plans moves for a VC that waits in the queue and would fit after them, within the cluster's budget. Admission then
// starts it as any other. If there is none it plans moves for a slot of periodic work.
func (r *Runner) MakeRoom(ctx context.Context, s *state.Snapshot) (bool, error) {
	set, env, may := r.mayMakeRoom(s)
	if !may {
		return false, nil
	}
	at := s.PlacementIndex()
	for i, vc := range r.o.Queue(s) {
		if i == maxRoomTries {
			break
		}
		recent := recentPlans(s, env.Now, set.CoolDown.Duration(), func(p *state.MovePlan) bool { return p.VC == vc.ID })
		if r.tried[vc.ID] == at || recent >= maxRoomPlans {
			continue
		}
		r.tried[vc.ID] = at
		plan, _, err := PlanRoom(moves.NewFleet(s, env, r.o.Observation(s), moves.Options{CopyStorage: set.CopyStorage}, vc), set.Budget())
		if err != nil || len(plan.Steps) == 0 {
			continue
		}
		plan.ID, plan.VC, plan.By = r.o.NewID(), vc.ID, "queue"
		plan.Text = "virtual cluster " + vc.Name + " waits for room"
		r.o.Log.Info("plan of moves", "kind", plan.Kind, "vc", vc.Name, "moves", len(plan.Steps), "bytes", plan.Bytes)
		return r.put(ctx, s, plan)
	}
	return r.MakeSlotRoom(ctx, s)
}

// mayMakeRoom says whether moves that make room may be planned: the cluster makes moves by itself, none are under way, and all hosts have
// reported, as others may have the room.
func (r *Runner) mayMakeRoom(s *state.Snapshot) (set state.MoveSettings, env placement.Env, may bool) {
	meta, _ := s.Meta()
	set = meta.Settings.Moves.WithDefaults()
	if set.Mode != state.MovesAuto || len(s.RunningMovePlans()) > 0 {
		return set, env, false
	}
	env = r.o.Env()
	return set, env, len(env.Awaited) == 0
}

// MakeSlotRoom plans moves for the slot of an occurrence that begins soon, within the cluster's budget. From then on the hosts keep the
// room for the slot: VCs that wait do not get what the moves free.
func (r *Runner) MakeSlotRoom(ctx context.Context, s *state.Snapshot) (bool, error) {
	now := r.o.Now()
	if since := now.Sub(r.slotsAt); since >= 0 && since < slotsEvery || !s.HasAgenda() {
		return false, nil
	}
	if r.o.Slots == nil || !s.MovesForSlots() {
		return false, nil
	}
	set, env, may := r.mayMakeRoom(s)
	if !may {
		return false, nil
	}
	at := s.PlacementIndex()
	r.slotsAt = now
	for _, slot := range r.o.Slots(s, env.Now) {
		o := slot.Occurrence
		recent := recentPlans(s, env.Now, set.CoolDown.Duration(), func(p *state.MovePlan) bool { return p.Occurrence == o.ID })
		if r.tried[o.ID] == at || recent >= maxRoomPlans {
			continue
		}
		r.tried[o.ID] = at
		f := moves.NewFleet(s, env, r.o.Observation(s), moves.Options{CopyStorage: set.CopyStorage, Reserved: slot.Reserved}, slot.VC)
		plan, hosts, err := PlanSlot(f, &slot, set.Budget())
		if err != nil || len(plan.Steps) == 0 {
			continue
		}
		plan.ID, plan.Occurrence, plan.By = r.o.NewID(), o.ID, "agenda"
		plan.Text = fmt.Sprintf("no hosts have room for the run of job %s at %s", o.Job, o.Start.Format(time.RFC3339))
		o.Hosts, o.Text = hosts, fmt.Sprintf("%s to make room for it: move plan %s", migration.Counted(len(plan.Steps), "move"), plan.ID)
		r.o.Log.Info("plan of moves", "kind", plan.Kind, "occurrence", o.ID, "moves", len(plan.Steps), "bytes", plan.Bytes)
		err = r.o.Propose(ctx, state.KindAgenda, state.AgendaPut{Basis: s.Index(), Occurrences: []state.Occurrence{o}})
		if errors.Is(err, state.ErrConflict) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("make room for occurrence %s: %w", o.ID, err)
		}
		return r.put(ctx, s, plan)
	}
	return false, nil
}

// recentPlans counts the plans that made room for the same within a time. One made in the future, by the clock of a leader that was ahead,
// is none of them.
func recentPlans(s *state.Snapshot, now time.Time, within time.Duration, same func(*state.MovePlan) bool) (n int) {
	for _, p := range s.MovePlans() {
		if ago := now.Sub(p.CreatedAt); p.Kind == state.MovesRoom && same(&p) && ago >= 0 && ago < within {
			n++
		}
	}
	return n
}

// put records a plan of the loop. It replaces plans that no user applied.
func (r *Runner) put(ctx context.Context, s *state.Snapshot, plan state.MovePlan) (bool, error) {
	put := state.MovePlanPut{Plan: plan}
	for _, p := range s.MovePlans() {
		if p.State == state.MovesProposed {
			put.Supersedes = append(put.Supersedes, p.ID)
		}
	}
	err := r.o.Propose(ctx, state.KindMovePlan, put)
	if errors.Is(err, state.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// Balance plans moves that raise the minimum yield, if a plan is due.
func (r *Runner) Balance(ctx context.Context, s *state.Snapshot) (bool, error) {
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	now := r.o.Now()
	if next := r.evaluatedAt.Add(interval); now.Before(next) && !now.Before(r.evaluatedAt) { // a look costs, and the state changes often
		r.wake = next
		return false, nil
	}
	r.evaluatedAt, r.wake = now, time.Time{}
	if set.Mode == state.MovesOff {
		return false, nil
	}
	env := r.o.Env()
	if len(env.Awaited) > 0 { // a host that reports wakes the loop
		return false, nil
	}
	var v Verdict
	r.seen, v = r.seen.Due(PaceOf(meta.Settings.Moves), r.observe(s, env, set))
	r.wake = v.Next
	if !v.Evaluate {
		return false, nil
	}
	f := moves.NewFleet(s, env, r.o.Observation(s), moves.Options{MinResidency: set.MinResidency.Duration(), CopyStorage: set.CopyStorage})
	plan, err := Plan(f, set.Budget(), set.MinGain, true)
	if err != nil {
		return false, err
	}
	if len(plan.Steps) == 0 {
		r.o.Log.Debug("no plan of moves", "why", plan.Reason)
		return false, nil
	}
	plan.ID, plan.By, plan.Text = r.o.NewID(), "loop", v.Why
	if set.Mode == state.MovesPropose {
		plan.State = state.MovesProposed
	}
	r.o.Log.Info("plan of moves", "kind", plan.Kind, "state", plan.State, "moves", len(plan.Steps), "bytes", plan.Bytes, "text", plan.Reason)
	return r.put(ctx, s, plan)
}

// observe returns what decides whether moves are looked for. Where every VM has what it needs a quick look says so.
func (r *Runner) observe(s *state.Snapshot, env placement.Env, set state.MoveSettings) Observation {
	full := true
	s.EachVC(func(vc *state.VC) bool {
		full = vc.Goal != state.GoalRun || !vc.Admitted || !slices.ContainsFunc(vc.Groups, func(g state.Group) bool { return g.Count > 0 && g.Yield() < 1 })
		return full
	})
	if full {
		return Observation{Now: env.Now, MinYield: 1, Hosts: r.seen.Hosts}
	}
	in := Observe(s, env)
	for _, p := range s.MovePlans() {
		if p.Kind == state.MovesRebalance && p.State == state.MovesProposed && set.Mode == state.MovesPropose && env.Now.Sub(p.CreatedAt) < set.Period.Duration() && in.Busy == "" {
			in.Busy = "move plan " + p.ID + " waits to be applied"
		}
	}
	return in
}
