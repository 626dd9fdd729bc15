package control

import (
	"context"
	"errors"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// settleFor is how long the state must be still before the loop looks at it:
// a burst of reports is one look.
const settleFor = 10 * time.Millisecond

// Run is the control loop: whenever the state changes it admits what fits of
// the queue and shares CPU anew, until ctx ends.
func (c *Control) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.o.State.Snapshot().Watch()
		acted, err := c.stage(ctx)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("control loop", "error", err)
		}
		if acted && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
			select {
			case <-ctx.Done():
			case <-time.After(settleFor):
			}
		}
	}
}

// stage proposes one plan, if there is one to propose.
func (c *Control) stage(ctx context.Context) (bool, error) {
	if !c.o.Log.Leads() {
		return false, nil
	}
	c.planning.Lock()
	defer c.planning.Unlock()
	s := c.o.State.Snapshot()
	plan := loop.AdmitQueue(s, c.env())
	if plan == nil {
		plan = loop.Reallocate(s)
	}
	if plan == nil {
		return false, nil
	}
	c.log.Info("plan", "verb", plan.Verb, "hosts", len(plan.Touched), "allocations", len(plan.Allocations), "text", plan.Text)
	err := c.propose(ctx, state.KindPlan, plan)
	if errors.Is(err, state.ErrConflict) {
		return true, nil // the state moved on: look again
	}
	return err == nil, err
}
