package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
)

// RebalanceRequest asks for a plan of moves that raises the minimum yield.
type RebalanceRequest struct {
	MaxBytes *int64 // most bytes that may be moved; nil: the cluster's default; -1: no bound
	By, Text string // the caller, and why
}

// MoveResult is a plan of moves that was made. Without steps no move is worth it, and the plan's reason says why.
type MoveResult struct {
	Plan      state.MovePlan
	Operation state.Operation // zero in a dry run
	DryRun    bool
	Replayed  bool // the answer to an idempotency key used before
	// Hosts of the move of one VM: its source and its target.
	Hosts []moves.HostYield
}

// CurvePoint is the minimum yield that a number of bytes buys.
type CurvePoint struct {
	Bytes    int64
	MinYield float64
}

// MigrationView is a migration with its progress, while it goes on.
type MigrationView struct {
	state.Migration
	Live *agent.MoveProgress // nil: its host has not reported
}

// MigrationView returns a migration with its progress.
func (v *View) MigrationView(m state.Migration) MigrationView {
	out := MigrationView{Migration: m}
	if m.State != state.MigrationRunning {
		return out
	}
	for _, p := range v.host(m.From).Moves {
		if p.Move == m.Open && p.VM == m.VM {
			out.Live = &p
			out.BytesMoved = max(out.BytesMoved, p.Bytes)
		}
	}
	return out
}

// before returns the newest state for a request about moves, or why this server cannot answer: it does not lead, or there is a recovery
// freeze.
func (c *Service) before(ctx context.Context, what string) (*state.Snapshot, error) {
	if err := c.o.Log.Linearize(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, ErrNoLeader, err)
	}
	s := c.o.State.Snapshot()
	if m, _ := s.Meta(); m.RecoveryFreeze.On() {
		return nil, fmt.Errorf("%s: %w", what, &FrozenError{Reason: m.RecoveryFreeze.Reason, Pending: m.RecoveryFreeze.Pending})
	}
	return s, nil
}

// beforePlan is before, for an answer that counts hosts as possible targets.
func (c *Service) beforePlan(ctx context.Context, what string) (*state.Snapshot, error) {
	s, err := c.before(ctx, what)
	if err == nil {
		err = c.current.Load().allReported(s, what)
	}
	return s, err
}

// replayMoves answers an idempotency key that was used before for a plan of moves.
func replayMoves(s *state.Snapshot, print string, call Call) (MoveResult, bool, error) {
	r, done, err := replay(s, print, call)
	if !done || err != nil {
		return MoveResult{}, false, err
	}
	plan, _ := s.MovePlan(r.Operation.MovePlan)
	return MoveResult{Plan: plan, Operation: r.Operation, Replayed: true}, true, nil
}

// Rebalance plans moves that raise the minimum yield, and has them carried out. It replaces a re-balance that is under way:
// moves under way end, those that have not begun are planned again.
func (c *Service) Rebalance(ctx context.Context, q RebalanceRequest, call Call) (MoveResult, error) {
	if err := checkReason("text", q.Text); err != nil {
		return MoveResult{}, err
	}
	if q.MaxBytes != nil && *q.MaxBytes < -1 {
		return MoveResult{}, &Invalid{Fields: []FieldError{{Field: "maxBytes", Text: "must be a number of bytes, or -1 for no bound", Value: *q.MaxBytes}}}
	}
	same := q
	same.By = sameBy
	print := fingerprint("rebalance", "", same)
	return c.movePlan(ctx, "rebalance", print, call, func(s *state.Snapshot) (state.MovePlanPut, error) {
		meta, _ := s.Meta()
		set := meta.Settings.Moves.WithDefaults()
		budget := set.Budget()
		if q.MaxBytes != nil {
			budget = *q.MaxBytes
		}
		var put state.MovePlanPut
		for _, p := range s.MovePlans() {
			if p.State == state.MovesRunning && p.Kind != state.MovesDrain || p.State == state.MovesProposed {
				put.Supersedes = append(put.Supersedes, p.ID)
			}
		}
		t := c.current.Load()
		f := moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{Supersedes: put.Supersedes, CopyStorage: set.CopyStorage})
		var err error
		if put.Plan, err = rebalance.Plan(f, budget, set.MinGain, false); err != nil {
			return put, err
		}
		put.Plan.By, put.Plan.Text = q.By, q.Text
		if len(put.Plan.Steps) == 0 {
			put.Plan.State, put.Supersedes = state.MovesDone, nil
		}
		return put, nil
	})
}

// movePlan makes a plan on a snapshot and records it; it plans again if the state had changed meanwhile.
func (c *Service) movePlan(ctx context.Context, verb, print string, call Call, make func(s *state.Snapshot) (state.MovePlanPut, error)) (MoveResult, error) {
	for n := 0; ; n++ {
		r, again, err := c.tryMovePlan(ctx, verb, print, call, make)
		if !again || n >= tries {
			return r, err
		}
	}
}

func (c *Service) tryMovePlan(ctx context.Context, verb, print string, call Call, make func(s *state.Snapshot) (state.MovePlanPut, error)) (MoveResult, bool, error) {
	if _, err := c.beforePlan(ctx, verb); err != nil {
		return MoveResult{}, false, err
	}
	planned, err := c.turn(ctx)
	if err != nil {
		return MoveResult{}, false, fmt.Errorf("%s: %w: %w", verb, ErrTimeout, err)
	}
	defer planned()
	if err := c.inflight.drained(ctx); err != nil {
		return MoveResult{}, false, fmt.Errorf("%s: %w: %w", verb, ErrTimeout, err)
	}
	s := c.o.State.Snapshot()
	if r, done, err := replayMoves(s, print, call); done || err != nil {
		return r, false, err
	}
	put, err := make(s)
	if err != nil {
		return MoveResult{}, false, fmt.Errorf("%s: %w", verb, err)
	}
	if call.DryRun {
		put.Plan.State = state.MovesProposed
		return MoveResult{Plan: put.Plan, DryRun: true}, false, nil
	}
	if put.Plan.ID == "" {
		put.Plan.ID = c.ids.next()
	}
	put.Operation = &state.Operation{ID: c.ids.next(), Kind: verb, Name: put.Plan.ID, At: c.o.Now().UTC(), MovePlan: put.Plan.ID}
	if call.IdempotencyKey != "" {
		put.Remembered = &state.Remembered{Key: call.IdempotencyKey, Fingerprint: print, Operation: put.Operation.ID}
	}
	if err := c.propose(ctx, state.KindMovePlan, put); err != nil {
		return MoveResult{}, errors.Is(err, state.ErrConflict), fmt.Errorf("%s: %w", verb, err)
	}
	after := c.o.State.Snapshot()
	r := MoveResult{}
	r.Plan, _ = after.MovePlan(put.Plan.ID)
	r.Operation, _ = after.Operation(put.Operation.ID)
	return r, false, nil
}

// Curve is the minimum yield over the bytes moved, as things are now.
func (c *Service) Curve(ctx context.Context) ([]CurvePoint, error) {
	s, err := c.beforePlan(ctx, "the curve of yield over bytes")
	if err != nil {
		return nil, err
	}
	meta, _ := s.Meta()
	t := c.current.Load()
	points, err := rebalance.Curve(moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{CopyStorage: meta.Settings.Moves.CopyStorage}))
	if err != nil {
		return nil, err
	}
	out := make([]CurvePoint, len(points))
	for i, p := range points {
		out[i] = CurvePoint{int64(p.Bytes), p.MinYield}
	}
	return out, nil
}

// ApplyPlan has a proposed plan carried out, if it is still valid.
func (c *Service) ApplyPlan(ctx context.Context, id string, call Call) (MoveResult, error) {
	return c.movePlan(ctx, "rebalance", fingerprint("apply", id, nil), call, func(s *state.Snapshot) (state.MovePlanPut, error) {
		p, ok := s.MovePlan(id)
		switch {
		case !ok:
			return state.MovePlanPut{}, fmt.Errorf("move plan %s: %w", id, ErrNotFound)
		case p.State != state.MovesProposed:
			return state.MovePlanPut{}, fmt.Errorf("move plan %s is %s: %w", id, p.State, ErrConflict)
		case call.IfMatch != 0 && call.IfMatch != p.ModifyIndex:
			return state.MovePlanPut{}, fmt.Errorf("move plan %s is at version %d, not %d: %w", id, p.ModifyIndex, call.IfMatch, ErrPrecondition)
		}
		put := state.MovePlanPut{Plan: p, Version: p.ModifyIndex}
		for _, other := range s.RunningMovePlans() {
			if other.Kind != state.MovesDrain {
				put.Supersedes = append(put.Supersedes, other.ID)
			}
		}
		meta, _ := s.Meta()
		t := c.current.Load()
		f := moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{Supersedes: append(slices.Clone(put.Supersedes), id), CopyStorage: meta.Settings.Moves.CopyStorage})
		if why := f.StillValid(p); why != "" {
			return put, fmt.Errorf("move plan %s was made on another state: %s; plan again: %w", id, why, ErrConflict)
		}
		put.Plan.State = state.MovesRunning
		return put, nil
	})
}

// StopPlan begins no further move of a plan. Those under way end.
func (c *Service) StopPlan(ctx context.Context, id, by string) (state.MovePlan, error) {
	for n := 0; ; n++ {
		if err := c.o.Log.Linearize(ctx); err != nil {
			return state.MovePlan{}, fmt.Errorf("stop move plan %s: %w: %w", id, ErrNoLeader, err)
		}
		p, ok := c.o.State.Snapshot().MovePlan(id)
		switch {
		case !ok:
			return p, fmt.Errorf("move plan %s: %w", id, ErrNotFound)
		case p.State == state.MovesStopped:
			return p, nil
		case p.State.Ended():
			return p, fmt.Errorf("move plan %s is %s: %w", id, p.State, ErrConflict)
		}
		p.State, p.Reason = state.MovesStopped, "stopped by "+orOperator(by)
		p.Steps = state.Skipped(p.Steps, p.Reason)
		err := c.propose(ctx, state.KindMovePlan, state.MovePlanPut{Plan: p, Version: p.ModifyIndex})
		if err == nil {
			p, _ = c.o.State.Snapshot().MovePlan(id)
			return p, nil
		}
		if !errors.Is(err, state.ErrConflict) || n >= tries {
			return p, fmt.Errorf("stop move plan %s: %w", id, err)
		}
	}
}

func orOperator(by string) string {
	if by == "" {
		return "request"
	}
	return by
}

// AbortMigration orders the source to give a move up. The VM runs on where it is; only the hosts' reports say where that is.
func (c *Service) AbortMigration(ctx context.Context, id, by string) (state.Migration, error) {
	if err := c.o.Log.Linearize(ctx); err != nil {
		return state.Migration{}, fmt.Errorf("abort migration %s: %w: %w", id, ErrNoLeader, err)
	}
	if err := c.propose(ctx, state.KindMigrationAbort, state.MigrationAbort{ID: id, Reason: "asked for by " + orOperator(by)}); err != nil {
		return state.Migration{}, fmt.Errorf("abort migration %s: %w", id, err)
	}
	m, _ := c.o.State.Snapshot().Migration(id)
	return m, nil
}

// Settings changes the cluster's settings: patch is given a copy of those in force. It may be called more than once.
func (c *Service) Settings(ctx context.Context, patch func(*state.Settings) error, call Call) (state.Settings, error) {
	for n := 0; ; n++ {
		if err := c.o.Log.Linearize(ctx); err != nil {
			return state.Settings{}, fmt.Errorf("settings: %w: %w", ErrNoLeader, err)
		}
		meta, ok := c.o.State.Snapshot().Meta()
		if !ok {
			return state.Settings{}, fmt.Errorf("settings: %w", ErrNotFound)
		}
		if call.IfMatch != 0 && call.IfMatch != meta.SettingsIndex {
			return meta.Settings, fmt.Errorf("settings are at version %d, not %d: %w", meta.SettingsIndex, call.IfMatch, ErrPrecondition)
		}
		set := meta.Settings
		set.SharedPools, set.Rightsizing.DisabledStages = slices.Clone(set.SharedPools), slices.Clone(set.Rightsizing.DisabledStages)
		if err := patch(&set); err != nil {
			return meta.Settings, err
		}
		body := state.SettingsPut{Settings: set, Version: meta.SettingsIndex}
		if err := body.Check(); err != nil {
			return meta.Settings, &Invalid{Fields: []FieldError{{Field: "settings", Text: err.Error()}}}
		}
		if call.DryRun {
			return set, nil
		}
		err := c.propose(ctx, state.KindSettings, body)
		if err == nil {
			return set, nil
		}
		if !errors.Is(err, state.ErrConflict) || n >= tries {
			return meta.Settings, fmt.Errorf("settings: %w", err)
		}
	}
}

func checkReason(field, text string) error {
	if len(text) > 500 {
		return &Invalid{Fields: []FieldError{{Field: field, Text: "must be at most 500 characters"}}}
	}
	return nil
}
