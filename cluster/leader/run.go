package leader

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Run is the control loop: whenever the state changes it admits what fits of
// the queue and shares CPU again, until ctx ends.
func (c *Service) Run(ctx context.Context) {
	t := c.current.Load()
	var beside sync.WaitGroup
	beside.Go(func() { t.drains.Run(ctx) })
	beside.Go(func() { t.rightsizing.Run(ctx) })
	beside.Go(func() { t.agenda.Run(ctx) })
	beside.Go(func() { t.reprovision.Run(ctx) })
	beside.Go(func() { c.keepTokenUses(ctx) })
	beside.Go(func() { c.watchWaits(ctx) })
	defer beside.Wait()
	var idle planInputs // at which there was nothing to do
	for ctx.Err() == nil {
		changed := c.o.State.Snapshot().Watch()
		began := time.Now()
		acted, err := t.stage(ctx, &idle)
		rest := max(debounce, min(restFor*time.Since(began), maxRest))
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLeader) {
			c.log.Warn("control loop", "error", err)
		}
		if acted && err == nil {
			continue
		}
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(retryAfter) // nothing may change that would wake us
		}
		select {
		case <-ctx.Done():
		case <-retry:
		case <-c.wake:
		case <-t.due(c.o.Now()):
		case <-changed:
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
	}
}

// due returns when the loop must evaluate again though nothing changed; nil: never.
func (t *term) due(now time.Time) <-chan time.Time {
	at := t.rebalance.Due(now)
	if t.moves.Running() {
		if soon := now.Add(moves.Interval); at.IsZero() || at.After(soon) {
			at = soon
		}
	}
	if at.IsZero() {
		return nil
	}
	return time.After(max(at.Sub(now), debounce))
}

// planInputs are what plans depend on. If they are as they were when there was no plan, there is none now.
type planInputs struct {
	index, settings      uint64 // of the state: PlacementIndex and SettingsIndex
	unavailable, awaited string
	suspended            string
	moves                bool   // a plan is moving VMs
	again                uint64 // term.evaluations: preempted VMs may start again, or time has passed
	relisted             uint64 // term.relisted: a host that lists a VM, such as one that a migration left there, takes no start of it
}

func (t *term) inputsOf(s *state.Snapshot, env placement.Env) planInputs {
	m, _ := s.Meta()
	return planInputs{s.PlacementIndex(), m.SettingsIndex, namesOf(env.Unavailable), strings.Join(env.Awaited, " "), strings.Join(s.SuspendedTenants(), " "), t.moves.Running(), t.evaluations.Load(), t.relisted.Load()}
}

// stage proposes one plan, if there is one to propose. idle are the inputs for which there last was none: most changes of the
// state (a VM was seen running, an operation recorded) cannot make one.
func (t *term) stage(ctx context.Context, idle *planInputs) (bool, error) {
	if !t.c.o.Log.Leads() {
		return false, ErrNoLeader
	}
	planned, err := t.c.turn(ctx)
	if err != nil {
		return false, err
	}
	defer planned()
	s := t.c.o.State.Snapshot()
	env := t.env()
	t.moves.Observe(s, env)
	if acted, err := t.rebalance.Weigh(ctx, s, env); acted || err != nil {
		return acted, err
	}
	if acted, err := t.moves.Step(ctx, s, env); acted || err != nil {
		return acted, err
	}
	at := t.inputsOf(s, env)
	if at == *idle {
		return t.rebalance.Balance(ctx, s)
	}
	if m, _ := s.Meta(); m.RecoveryFreeze.On() {
		*idle = planInputs{}
		return false, nil
	}
	if t.c.capacity.Steady(s) {
		*idle = at
		if acted, err := t.rebalance.MakeSlotRoom(ctx, s); acted || err != nil {
			return acted, err
		}
		return t.rebalance.Balance(ctx, s)
	}
	if err := t.c.inflight.drained(ctx); err != nil {
		return false, err
	}
	s = t.c.o.State.Snapshot()
	env = t.env()
	at = t.inputsOf(s, env)
	var refused []string
	for len(refused) < maxRefused {
		plan := next(s, env, &t.queue, refused)
		if plan == nil {
			break
		}
		t.c.log.Info("plan", "verb", plan.Verb, "hosts", len(plan.AffectedHosts), "allocations", len(plan.Allocations), "text", plan.Text)
		err := t.propose(ctx, state.KindPlan, plan)
		if !errors.Is(err, state.ErrConflict) {
			return err == nil, err
		}
		t.c.log.Info("plan refused", "verb", plan.Verb, "error", err)
		if plan.VC == nil {
			return false, nil // the state has changed since, which wakes the loop
		}
		refused = append(refused, plan.VC.ID)
		s = t.c.o.State.Snapshot()
	}
	if len(refused) > 0 { // likewise; what is refused for as long as it waits must not keep VMs where they are
		return t.rebalance.Balance(ctx, s)
	}
	*idle = at
	if acted, err := t.rebalance.MakeRoom(ctx, s); acted || err != nil {
		return acted, err
	}
	return t.rebalance.Balance(ctx, s)
}

// next is the plan to propose, nil if there is none. refused are the ids of VCs of which the state has just refused a plan: they do not
// make other VCs wait.
func next(s *state.Snapshot, env placement.Env, queue *admission.QueueCache, refused []string) *state.Plan {
	if len(env.Awaited) == 0 { // else a host that has not reported may have room for what waits
		if plan := admission.Restart(s, env, refused...); plan != nil {
			return plan
		}
		if plan := queue.Admit(s, env); plan != nil && !slices.Contains(refused, plan.VC.ID) {
			return plan
		}
	}
	return placement.Reallocate(s)
}

func namesOf(out map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(out)), " ")
}

// wakeLoop wakes the loop: something changed that is not in the log.
func (c *Service) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
