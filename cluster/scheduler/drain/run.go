package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// RunnerOptions are what the leader gives a Runner.
type RunnerOptions struct {
	Log      *slog.Logger
	Snapshot func() *state.Snapshot
	Leads    func() bool
	// Turn waits for the turn to make a plan; done ends it.
	Turn func(ctx context.Context) (done func(), err error)
	// Drained waits until no plan is on its way into the log.
	Drained func(ctx context.Context) error
	// Propose takes a command into the log and returns its outcome.
	Propose func(ctx context.Context, kind state.Kind, body any) error
	Env     func() placement.Env
	// Inventory is what a host's hypervisor last listed; unavailable says why nothing may be decided for the host.
	Inventory func(s *state.Snapshot, h state.Host, unavailable string) HostInventory
	// Fleet is the cluster as drains are planned on it.
	Fleet func(s *state.Snapshot, supersedes []string, keep map[string]string) *moves.Fleet
}

// Runner takes the steps of drains, in one term of a leader. The next term has its own.
type Runner struct {
	o RunnerOptions

	// Of Run's goroutine alone, by host.
	unavailable map[string]time.Time // since when
	vain        map[string]time.Time // interval after this, moves that were planned in vain may be planned again

	mu    sync.Mutex                 // protects stuck
	stuck map[string][]moves.Blocker // by host: that were found last
}

// NewRunner begins a term in which no drain is known to be blocked.
func NewRunner(o RunnerOptions) *Runner {
	return &Runner{o: o, unavailable: map[string]time.Time{}, vain: map[string]time.Time{}, stuck: map[string][]moves.Blocker{}}
}

// Found notes what keeps a host from being drained.
func (r *Runner) Found(host string, blockers []moves.Blocker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(blockers) == 0 {
		delete(r.stuck, host)
	} else {
		r.stuck[host] = blockers
	}
}

// Blockers returns what was last found to keep a host from being drained.
func (r *Runner) Blockers(host string) []moves.Blocker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[host]
}

// Run drains the hosts that have a drain, or reports why they are not empty, until ctx ends. The moves that it plans are
// carried out as those of any plan.
func (r *Runner) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.o.Snapshot().Watch()
		var tick <-chan time.Time
		if r.o.Leads() {
			some, err := r.round(ctx)
			if err != nil && ctx.Err() == nil && r.o.Leads() {
				r.o.Log.Warn("drains", "error", err)
			}
			if some || err != nil {
				tick = time.After(interval)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
			continue
		case <-changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(debounce):
		}
	}
}

// round takes the next step for every host whose drain is not done. some: there are such hosts.
func (r *Runner) round(ctx context.Context) (some bool, err error) {
	var hosts []string
	s := r.o.Snapshot()
	if m, ok := s.Meta(); !ok || m.RecoveryFreeze.On() {
		return false, nil
	}
	s.EachHost(func(h *state.Host) bool {
		if h.Drain.State != "" && h.Drain.State != state.DrainDone {
			hosts = append(hosts, h.Name)
		}
		return true
	})
	var faults []error
	for _, name := range hosts {
		if e := r.host(ctx, name); e != nil {
			faults = append(faults, fmt.Errorf("drain of host %s: %w", name, e))
		}
	}
	for _, kept := range []map[string]time.Time{r.unavailable, r.vain} {
		maps.DeleteFunc(kept, func(name string, _ time.Time) bool { return !slices.Contains(hosts, name) })
	}
	return len(hosts) > 0, errors.Join(faults...)
}

// host takes the next step for one host.
func (r *Runner) host(ctx context.Context, name string) error {
	done, err := r.o.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	s := r.o.Snapshot()
	h, ok := s.Host(name)
	if !ok {
		return nil
	}
	env := r.o.Env()
	w := r.o.Inventory(s, h, env.Unavailable[name])
	if w.Unavailable == "" {
		delete(r.unavailable, name)
	} else {
		if r.unavailable[name].IsZero() {
			r.unavailable[name] = env.Now
		}
		w.UnavailableFor = env.Now.Sub(r.unavailable[name])
	}
	if len(env.Awaited) > 0 { // what hosts run and could take is not known yet
		return nil
	}
	if at, vain := r.vain[name]; vain && env.Now.Sub(at) < interval && s.LoadOf(name).VMs > 0 {
		return nil // planning takes long among many VMs, and others wait for their turn
	}
	planned, began := false, time.Now()
	step, err := Next(s, h, w, env, func(supersedes []string, keep map[string]string) *moves.Fleet {
		planned = true
		return r.o.Fleet(s, supersedes, keep)
	})
	if err != nil {
		return err
	}
	if delete(r.vain, name); planned && step.Stop == nil && (step.Put == nil || step.Put.MovePlan == nil) {
		r.vain[name] = env.Now.Add(min(maxVain, vainFactor*time.Since(began)))
	}
	switch {
	case step.Put != nil:
		d := step.Put.Drain
		r.o.Log.Info("drain", "host", name, "state", d.State, "plan", d.Plan, "text", d.Text)
		err = r.o.Propose(ctx, state.KindDrain, step.Put)
	case step.Stop != nil:
		r.o.Log.Info("drain", "host", name, "shuts down", len(step.Stop.VMs), "text", step.Stop.Text)
		if err = r.o.Drained(ctx); err == nil {
			err = r.o.Propose(ctx, state.KindPlan, step.Stop)
		}
	}
	if err == nil && step.Blockers != nil {
		r.Found(name, step.Blockers)
	}
	if errors.Is(err, state.ErrConflict) {
		return nil // the state has changed since, which wakes the loop
	}
	return err
}
