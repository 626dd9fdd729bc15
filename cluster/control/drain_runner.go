package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Delays of drains.
const (
	drainInterval = time.Second           // between two evaluations though nothing changes: deadlines pass, hosts fall silent
	drainDebounce = 10 * time.Millisecond // for which the state must be unchanged before it is evaluated
)

// drainOptions are what the leader gives a drainRunner.
type drainOptions struct {
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
	Inventory func(s *state.Snapshot, h state.Host, unavailable string) drain.HostInventory
	// Fleet is the cluster as drains are planned on it.
	Fleet func(s *state.Snapshot, supersedes []string, keep map[string]string) *moves.Fleet
}

// drainRunner takes the steps of drains, in one term of a leader. The next term has its own.
type drainRunner struct {
	o drainOptions

	// Of run's goroutine alone, by host.
	unavailable map[string]time.Time // since when
	vain        map[string]time.Time // when moves were last planned in vain

	mu    sync.Mutex                 // protects stuck
	stuck map[string][]moves.Blocker // by host: that were found last
}

func newDrainRunner(o drainOptions) *drainRunner {
	return &drainRunner{o: o, unavailable: map[string]time.Time{}, vain: map[string]time.Time{}, stuck: map[string][]moves.Blocker{}}
}

// found notes what keeps a host from being drained.
func (r *drainRunner) found(host string, blockers []moves.Blocker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(blockers) == 0 {
		delete(r.stuck, host)
	} else {
		r.stuck[host] = blockers
	}
}

// blockers returns what was last found to keep a host from being drained.
func (r *drainRunner) blockers(host string) []moves.Blocker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[host]
}

// run drains the hosts that have a drain, or reports why they are not empty, until ctx ends. The moves that it plans are
// carried out as those of any plan.
func (r *drainRunner) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.o.Snapshot().Watch()
		var tick <-chan time.Time
		if r.o.Leads() {
			some, err := r.round(ctx)
			if err != nil && ctx.Err() == nil && r.o.Leads() {
				r.o.Log.Warn("drains", "error", err)
			}
			if some || err != nil {
				tick = time.After(drainInterval)
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
		case <-time.After(drainDebounce):
		}
	}
}

// round takes the next step for every host with a drain. some: there are such hosts that are not empty.
func (r *drainRunner) round(ctx context.Context) (some bool, err error) {
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
func (r *drainRunner) host(ctx context.Context, name string) error {
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
	if at, vain := r.vain[name]; vain && env.Now.Sub(at) < drainInterval && s.LoadOf(name).VMs > 0 {
		return nil // planning takes long among many VMs, and others wait for their turn
	}
	planned := false
	step, err := drain.Next(s, h, w, env, func(supersedes []string, keep map[string]string) *moves.Fleet {
		planned = true
		return r.o.Fleet(s, supersedes, keep)
	})
	if err != nil {
		return err
	}
	if delete(r.vain, name); planned && step.Stop == nil && (step.Put == nil || step.Put.MovePlan == nil) {
		r.vain[name] = env.Now
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
		r.found(name, step.Blockers)
	}
	if errors.Is(err, state.ErrConflict) {
		return nil // the state moved on, and that wakes us
	}
	return err
}
