package agenda

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster/scheduler/placement"
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
	// Turn waits for the turn to make a plan; done ends it. Drained waits until no plan is in flight.
	Turn    func(ctx context.Context) (done func(), err error)
	Drained func(ctx context.Context) error
	// Unavailable are hosts for which nothing may be decided, and why.
	Unavailable func(*state.Snapshot) map[string]string
	// Pools that hosts have.
	Pools func() placement.Pools
	// Queue are the VCs that wait, in their order.
	Queue func(*state.Snapshot) []state.VC
	// Silent says that hosts have yet to report to this leader.
	Silent func(*state.Snapshot) bool
	// Samples are what hosts last measured of VMs, by id.
	Samples func(*state.Snapshot) map[string]Sample
	// Evaluated: time has passed, so that VCs that wait may start.
	Evaluated func()
}

// Runner records runs and keeps the agenda in one term of a leader. The next term has its own.
type Runner struct {
	o        Options
	wake     chan struct{}
	recorder recorder
	sampled  time.Time // when the last minute was recorded
	head     atomic.Pointer[placement.Head]
	begin    begun
}

// NewRunner begins a term.
func NewRunner(o Options) *Runner {
	return &Runner{o: o, wake: make(chan struct{}, 1), recorder: recorder{map[string]*state.RunUsage{}}}
}

// Soon has the agenda made again at once: an owner has decided.
func (r *Runner) Soon() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run records and plans until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	ticker := time.NewTicker(r.o.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.wake:
		}
		if err := r.round(ctx); err != nil && ctx.Err() == nil && r.o.Leads() && !errors.Is(err, state.ErrConflict) {
			r.o.Log.Warn("agenda", "error", err)
		}
	}
}

// round records a minute, and changes the agenda where that is due.
func (r *Runner) round(ctx context.Context) error {
	s := r.o.Snapshot()
	if meta, ok := s.Meta(); !r.o.Leads() || !ok || meta.RecoveryFreeze.On() || !s.KeepsRuns() {
		r.head.Store(nil)
		return nil
	}
	now := r.o.Now().UTC()
	if now.Sub(r.sampled) >= r.o.Period/2 || now.Before(r.sampled) {
		r.sampled = now
		r.recorder.observe(s, now, r.o.Samples(s))
	}
	if put := r.recorder.ended(s); len(put.Runs) > 0 {
		if err := r.o.Propose(ctx, state.KindRunUsage, put); err != nil {
			return err
		}
		for _, x := range put.Runs {
			delete(r.recorder.runs, x.Run)
		}
		s = r.o.Snapshot()
	}
	if r.o.Silent(s) {
		return nil
	}
	if err := r.keepHead(s, now); err != nil {
		r.o.Log.Warn("agenda", "error", err)
	}
	if !s.AnySignedOff() && !s.HasAgenda() { // hosts that report in a moment must not lose their reservations
		return nil
	}
	put, err := Plan(s, now, r.o.Unavailable(s))
	if len(put.Occurrences)+len(put.Drop) > 0 {
		err = errors.Join(err, r.propose(ctx, put, now))
	}
	if len(put.Occurrences)+len(put.Drop) >= maxPlaced && err == nil || errors.Is(err, state.ErrConflict) || err == nil && !taken(r.o.Snapshot(), put) {
		r.Soon() // there may be more, or the state has changed
	}
	if s.HasAgenda() || len(put.Occurrences) > 0 {
		r.o.Evaluated()
	}
	return err
}

// Head is the room that is kept for the first VC of the queue, as of the last round; nil: none is. Before the first round of a term that
// knows the hosts it is found at once: the first of the queue keeps its turn when the leader changes.
func (r *Runner) Head() *placement.Head {
	if r == nil {
		return nil
	}
	if r.o.Leads() {
		r.begin.Lock()
		defer r.begin.Unlock()
		if !r.begin.done {
			r.firstHead()
		}
	}
	return r.head.Load()
}

// begun is what is known of the head before the first round that finds it.
type begun struct {
	sync.Mutex
	done        bool              // it was found with what hosts reported, or a round finds it
	at          time.Time         // when it was last looked for
	silent      bool              // Silent at that time
	unavailable map[string]string // at that time
}

// firstHead finds the head before a round does. Hosts that have yet to report may come back, or be dead. So it finds a head with and
// one without them, and takes the one whose VC comes first in the queue, until all have reported.
func (r *Runner) firstHead() {
	s, now := r.o.Snapshot(), r.o.Now().UTC()
	if meta, ok := s.Meta(); !ok || meta.RecoveryFreeze.On() || !s.KeepsRuns() {
		return
	}
	silent, unavailable := r.o.Silent(s), r.o.Unavailable(s)
	same := silent == r.begin.silent && maps.EqualFunc(unavailable, r.begin.unavailable, func(string, string) bool { return true })
	if since := now.Sub(r.begin.at); same && since >= 0 && since < headAgain {
		return
	}
	r.begin.at, r.begin.silent, r.begin.unavailable = now, silent, unavailable
	queue, pools := r.o.Queue(s), r.o.Pools()
	head, err := First(s, queue, placement.Env{Now: now, Unavailable: unavailable, Pools: pools})
	if err == nil && silent {
		var all *placement.Head
		all, err = First(s, queue, placement.Env{Now: now, Pools: pools})
		head = earlier(queue, head, all)
	}
	if err != nil {
		r.o.Log.Warn("agenda", "error", err)
		return
	}
	r.begin.done = !silent
	r.head.Store(head)
}

// earlier is the head whose VC comes first in the queue; the first one if both are of it.
func earlier(queue []state.VC, a, b *placement.Head) *placement.Head {
	for i := range queue {
		if a != nil && queue[i].ID == a.VC {
			return a
		}
		if b != nil && queue[i].ID == b.VC {
			return b
		}
	}
	return nil
}

func (r *Runner) keepHead(s *state.Snapshot, now time.Time) error {
	r.begin.Lock()
	r.begin.done = true
	r.begin.Unlock()
	head, err := First(s, r.o.Queue(s), placement.Env{Now: now, Unavailable: r.o.Unavailable(s), Pools: r.o.Pools()})
	old := r.head.Swap(head)
	if (old == nil) != (head == nil) || head != nil {
		r.o.Evaluated()
	}
	return err
}

// propose puts a plan of the agenda into the log, while no other plan is made or in flight. The hosts were found before, so that
// requests do not wait for that search.
func (r *Runner) propose(ctx context.Context, put state.AgendaPut, now time.Time) error {
	done, err := r.o.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := r.o.Drained(ctx); err != nil {
		return err
	}
	s := r.o.Snapshot()
	if put.Changed(s) {
		if put, err = Recheck(s, put, now, r.o.Unavailable(s)); err != nil {
			return err
		}
	}
	if len(put.Occurrences)+len(put.Drop) == 0 {
		return state.ErrConflict
	}
	r.o.Log.Info("agenda", "occurrences", len(put.Occurrences))
	return r.o.Propose(ctx, state.KindAgenda, put)
}

// taken says whether the state has all that was to reserve room.
func taken(s *state.Snapshot, put state.AgendaPut) bool {
	return !slices.ContainsFunc(put.Occurrences, func(o state.Occurrence) bool {
		got, is := s.Occurrence(o.ID)
		return o.Reserves() && (!is || !slices.Equal(got.Hosts, o.Hosts))
	})
}
