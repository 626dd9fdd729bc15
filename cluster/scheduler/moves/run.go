package moves

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// RunnerOptions are what the leader gives a Runner.
type RunnerOptions struct {
	Log *slog.Logger
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	Routes  func() Routes
	// Synced returns the log indexes up to which the desired state is in force on a host: what takes something from VMs, and all
	// of it.
	Synced func(host string) (shrunk, all uint64)
	// Replan plans again what is left of a plan.
	Replan func(ctx context.Context, s *state.Snapshot, env placement.Env, a *Replan) error
}

// Runner carries plans of moves out, in one term of a leader. The next term has its own.
type Runner struct {
	o  RunnerOptions
	on atomic.Bool // a plan is carried out

	// Of the control loop's goroutine alone.
	refused          map[string]refusal   // openings that were refused on apply, by plan and step
	unavailableSince map[string]time.Time // by host
}

// refusal is how often an opening was refused, and why it was last.
type refusal struct {
	times int
	why   string
}

// NewRunner begins a term in which no plan is known to run.
func NewRunner(o RunnerOptions) *Runner {
	return &Runner{o: o, refused: map[string]refusal{}, unavailableSince: map[string]time.Time{}}
}

// Running says whether a plan is carried out.
func (r *Runner) Running() bool { return r.on.Load() }

// Observe takes in which plans are carried out, and since when hosts are unavailable.
func (r *Runner) Observe(s *state.Snapshot, env placement.Env) {
	for host := range r.unavailableSince {
		if env.Unavailable[host] == "" {
			delete(r.unavailableSince, host)
		}
	}
	for host := range env.Unavailable {
		if _, known := r.unavailableSince[host]; !known {
			r.unavailableSince[host] = env.Now
		}
	}
	r.on.Store(len(s.RunningMovePlans()) > 0)
	if !r.on.Load() {
		clear(r.refused)
	}
}

// Step takes the next steps of running move plans, and of moves that are to end.
func (r *Runner) Step(ctx context.Context, s *state.Snapshot, env placement.Env) (bool, error) {
	key := func(plan string, step int) string { return fmt.Sprintf("%s/%d", plan, step) }
	actions := Next(s, Execution{Env: env, Routes: r.o.Routes(),
		SyncedUpTo:     func(host string) uint64 { shrunk, _ := r.o.Synced(host); return shrunk },
		Synced:         func(host string) uint64 { _, all := r.o.Synced(host); return all },
		UnavailableFor: func(host string) time.Duration { return env.Now.Sub(r.unavailableSince[host]) },
		Refused:        func(plan string, step int) (int, string) { x := r.refused[key(plan, step)]; return x.times, x.why },
	})
	acted := false
	for _, action := range actions {
		r.o.Log.Info("moves", "act", action.String())
		var err error
		switch {
		case action.Put != nil:
			old, _ := s.MovePlan(action.Put.Plan.ID)
			err = r.o.Propose(ctx, state.KindMovePlan, action.Put.Shorter(old))
		case action.Abort != nil:
			err = r.o.Propose(ctx, state.KindMigrationAbort, action.Abort)
		case action.Replan != nil:
			err = r.o.Replan(ctx, s, env, action.Replan)
		case action.Open != nil:
			err = r.o.Propose(ctx, state.KindMove, action.Open)
			if k := key(action.Open.Plan, action.Open.Step); errors.Is(err, state.ErrConflict) {
				r.refused[k] = refusal{r.refused[k].times + 1, err.Error()}
			}
		}
		switch {
		case err == nil:
			acted = true
		case !errors.Is(err, state.ErrConflict): // else the state moved on, and that wakes us
			return acted, err
		}
	}
	return acted, nil
}
