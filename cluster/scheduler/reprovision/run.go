package reprovision

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/state"
)

// Options of a Runner: what the leader gives it.
type Options struct {
	Period   time.Duration // of evaluations
	Now      func() time.Time
	Log      *slog.Logger
	Snapshot func() *state.Snapshot
	Leads    func() bool
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	// Silent says that hosts have yet to report to this leader.
	Silent func(*state.Snapshot) bool
	// Samples are what hosts last measured of VMs, by id.
	Samples func(*state.Snapshot) map[string]Sample
	// Granted has CPU divided again.
	Granted func()
}

// Stats are counted since the server began to lead.
type Stats struct {
	Runs     int     // that go on
	Late     int     // of them
	Granted  float64 // cores beyond reservations, now
	Borrowed float64 // cores of reservations that others have, now

	Grants          int     // that began
	GrantedSeconds  float64 // core-seconds
	BorrowedSeconds float64 // core-seconds
}

// Runner evaluates the progress of runs in one term of a leader. The next term has its own.
type Runner struct {
	o      Options
	extras map[string]state.Extras // of runs that go on, newer than in the log
	last   time.Time               // evaluation; zero: none yet
	count  int                     // of evaluations

	mu    sync.Mutex
	stats Stats
}

// New begins a term.
func New(o Options) *Runner { return &Runner{o: o, extras: map[string]state.Extras{}} }

// Run evaluates until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	ticker := time.NewTicker(r.o.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := r.round(ctx); err != nil && ctx.Err() == nil && r.o.Leads() && !errors.Is(err, state.ErrConflict) {
			r.o.Log.Warn("re-provisioning", "error", err)
		}
	}
}

// round evaluates once, and proposes what changes.
func (r *Runner) round(ctx context.Context) error {
	s := r.o.Snapshot()
	if meta, ok := s.Meta(); !r.o.Leads() || !ok || meta.RecoveryFreeze.On() || !s.KeepsRuns() || r.o.Silent(s) {
		return nil
	}
	now := r.o.Now().UTC()
	if !s.HasAgenda() && len(r.extras) == 0 {
		r.note(Result{}, now)
		return nil
	}
	out := Evaluate(s, Observations{Now: now, Period: r.o.Period, Samples: r.o.Samples(s), Extras: r.extras})
	r.note(out, now)
	put := state.ReprovisionPut{Basis: s.Index(), Runs: append(out.Changed, r.unsaved(s, out)...)}
	put.Runs = put.Runs[:min(len(put.Runs), maxPut)]
	if len(put.Runs) == 0 {
		return nil
	}
	if err := r.o.Propose(ctx, state.KindReprovision, put); err != nil {
		return err
	}
	for _, g := range put.Runs {
		if !slices.ContainsFunc(out.Rows, func(row Row) bool { return row.Run.ID == g.Run }) { // it has ended, and the log has its extras
			delete(r.extras, g.Run)
		}
	}
	if len(out.Changed) > 0 {
		r.o.Granted()
	}
	return nil
}

// unsaved are the extras that are to be in the log: of runs that have ended, and of all others now and then.
func (r *Runner) unsaved(s *state.Snapshot, out Result) (all []state.RunGrant) {
	there := map[string]*Row{}
	for i := range out.Rows {
		there[out.Rows[i].Run.ID] = &out.Rows[i]
	}
	for _, id := range slices.Sorted(maps.Keys(r.extras)) {
		row := there[id]
		if row == nil {
			all = append(all, state.RunGrant{Run: id, Extras: r.extras[id]}) // it has ended, and has no grant any more
			continue
		}
		isChanged := func(g state.RunGrant) bool { return g.Run == id }
		if r.count%reportEvery == 0 && !slices.ContainsFunc(out.Changed, isChanged) {
			all = append(all, state.RunGrant{Run: id, Grant: row.Run.Grant, Extras: row.Extras})
		}
	}
	return all
}

// note takes in the result of an evaluation.
func (r *Runner) note(out Result, now time.Time) {
	r.count++
	over := 0.0
	if !r.last.IsZero() {
		over = min(maxAge, max(0, now.Sub(r.last))).Seconds()
	}
	r.last = now
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Runs, r.stats.Late, r.stats.Granted, r.stats.Borrowed = len(out.Rows), 0, out.Granted, out.Borrowed
	r.stats.BorrowedSeconds += out.Borrowed * over
	for _, row := range out.Rows {
		if row.Verdict.Late {
			r.stats.Late++
		}
		if g := row.Grant; g != nil && g.Extra > 0 {
			r.stats.GrantedSeconds += g.Extra * r.o.Period.Seconds()
			if old := row.Run.Grant; old == nil || old.Extra == 0 {
				r.stats.Grants++
			}
		}
		r.extras[row.Run.ID] = row.Extras
	}
}

// Stats returns the counts.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}
