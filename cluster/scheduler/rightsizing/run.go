package rightsizing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"evenkeel/cluster/state"
)

// Options of a Runner: what the leader gives it.
type Options struct {
	Period   time.Duration // of evaluations: the step of forecasts
	Now      func() time.Time
	Log      *slog.Logger
	Snapshot func() *state.Snapshot
	Leads    func() bool
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	// Unavailable are hosts for which nothing may be decided, and why.
	Unavailable func(*state.Snapshot) map[string]string
	// Measured is what hosts last measured of VMs, by id.
	Measured func(*state.Snapshot) map[string]VMObservation
	// MoveAway has VMs move away from a host that is short of memory, if others have room. The VMs of pinned, by id, stay.
	MoveAway func(ctx context.Context, short Shortage, pinned map[string]string) MovesAway
	// Evaluated takes in each result before its changes are proposed.
	Evaluated func(s *state.Snapshot, r Result, now time.Time)
}

// Runner evaluates needs in one term of a leader. The next term has its own.
type Runner struct {
	o     Options
	since time.Time     // the term began
	wake  chan struct{} // a VM is short of memory or CPU

	mu          sync.Mutex
	forecasts   map[string]forecastOf // by VM id
	evaluatedAt time.Time             // zero: not yet
	last        Result
	total       Stats
	hours       hours
}

// New begins a term with the hours that are in the log.
func New(o Options) *Runner {
	now, s := o.Now().UTC(), o.Snapshot()
	return &Runner{o: o, since: now, wake: make(chan struct{}, 1), forecasts: map[string]forecastOf{}, hours: newHours(s, now)}
}

// soon has needs evaluated before the period is over.
func (r *Runner) soon() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run evaluates the needs of VMs until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	x := Rightsizer{Period: r.o.Period}
	sooner := r.o.Period / wakesPerPeriod
	for timer := time.NewTimer(r.o.Period); ; {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-r.wake:
			timer.Stop()
		}
		if err := r.round(ctx, &x); err != nil && ctx.Err() == nil && r.o.Leads() && !errors.Is(err, state.ErrConflict) {
			r.o.Log.Warn("rightsizing", "error", err)
		}
		timer.Reset(sooner) // VMs that are short now are evaluated again no sooner
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			timer.Reset(r.o.Period - sooner)
		}
	}
}

// round evaluates needs once, and proposes the changes.
func (r *Runner) round(ctx context.Context, x *Rightsizer) error {
	if !r.o.Leads() {
		return nil
	}
	s := r.o.Snapshot()
	meta, ok := s.Meta()
	if !ok || meta.RecoveryFreeze.On() {
		return nil
	}
	in := r.observations(s)
	out := x.Evaluate(s, in)
	r.o.Evaluated(s, out, in.Now)
	var err error
	if !out.Command.Empty() {
		r.o.Log.Debug("rightsize", "needs", len(out.Command.Needs), "targets", len(out.Command.Targets), "text", out.Command.Text)
		err = r.o.Propose(ctx, state.KindRightsize, out.Command)
	}
	preempted := 0
	for _, p := range out.Evictions(func(short Shortage, pressed map[string]string) MovesAway { return r.o.MoveAway(ctx, short, pressed) }) {
		plan := Preempt(r.o.Snapshot(), p, r.o.Now().UTC())
		if plan == nil || err != nil {
			continue
		}
		r.o.Log.Info("preempt", "text", plan.Text)
		if err = r.o.Propose(ctx, state.KindPlan, plan); err == nil {
			preempted += len(plan.VMs)
		}
	}
	r.note(in.Now, s, out, preempted)
	return errors.Join(err, r.reportHours(ctx, in.Now))
}

// reportHours proposes the hours of rightsizing now and then.
func (r *Runner) reportHours(ctx context.Context, now time.Time) error {
	r.mu.Lock()
	unsaved := r.hours.unsaved(now, reportEvery*r.o.Period)
	r.mu.Unlock()
	if len(unsaved) == 0 {
		return nil
	}
	if err := r.o.Propose(ctx, state.KindRightsizingReport, state.RightsizingReport{Hours: unsaved}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hours.reported(now) // nothing was noted meanwhile: the goroutine that notes hours is the one that writes them
	return nil
}
