package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/node"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/simulate"
	"evenkeel/cluster/state"
)

// SimulatedHost is a host, or several equal ones, that a simulation adds.
type SimulatedHost = simulate.Host

// SimulatedNeed is another CPU need of each VM of a group.
type SimulatedNeed = simulate.Need

// SimulateRequest asks for the state of a cluster that differs from this one. Nothing is changed.
type SimulateRequest struct {
	AddHosts    []SimulatedHost
	RemoveHosts []string
	Needs       []SimulatedNeed
	MaxBytes    *int64 // most bytes that may be moved; nil: the cluster's default; -1: no bound
	Snapshot    []byte // a saved state to be asked in place of the present one; nil: the present one
}

// Unplaced is a VM that would have no host.
type Unplaced = simulate.Unplaced

// SimulateResult is the state that would be.
type SimulateResult struct {
	MinYieldBefore, MinYieldAfter         float64
	AverageYieldBefore, AverageYieldAfter float64
	Bytes                                 int64
	Refused                               []string // VCs that would not be admitted, or not get what they were promised, each with why
	Unplaced                              []Unplaced
	Plan                                  state.MovePlan // the moves that would lead there; it is not kept
}

// FailoverRow says what happens in the cluster if one host fails.
type FailoverRow = failover.CapacityRow

// Simulate returns the state of a cluster that differs from this one.
func (c *Service) Simulate(ctx context.Context, q SimulateRequest) (SimulateResult, error) {
	if q.MaxBytes != nil && *q.MaxBytes < -1 {
		return SimulateResult{}, &Invalid{Fields: []FieldError{{Field: "maxBytes", Text: "must be a number of bytes, or -1 for no bound", Value: *q.MaxBytes}}}
	}
	w := simulate.Request{Add: q.AddHosts, Remove: q.RemoveHosts, Needs: q.Needs}
	var s *state.Snapshot
	var see moves.Observation
	env := placement.Env{Now: c.o.Now().UTC(), NewID: func() string { return "" }}
	if q.Snapshot == nil {
		var err error
		if s, err = c.beforePlan(ctx, "try"); err != nil {
			return SimulateResult{}, err
		}
		t := c.current.Load()
		see, env.Unavailable, env.Pools, env.Lists = t.reports.fleet(s), t.failover.Unavailable(s), t.reports.pools(), listerOf(t.reports.each)
	} else {
		_, saved, err := node.Load(bytes.NewReader(q.Snapshot))
		if err != nil {
			return SimulateResult{}, &Invalid{Fields: []FieldError{{Field: "snapshot", Text: err.Error()}}}
		}
		s = saved.Snapshot()
	}
	meta, _ := s.Meta()
	if w.Budget = meta.Settings.Moves.WithDefaults().Budget(); q.MaxBytes != nil {
		w.Budget = *q.MaxBytes
	}
	o, err := simulate.Run(s, env, see, w)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return SimulateResult{}, fmt.Errorf("try: %w", err)
	case errors.Is(err, simulate.ErrWhat):
		return SimulateResult{}, &Invalid{Fields: []FieldError{{Field: "what", Text: err.Error()}}}
	case err != nil:
		return SimulateResult{}, err
	}
	return SimulateResult{MinYieldBefore: o.Plan.MinYieldBefore, MinYieldAfter: o.Plan.MinYieldAfter, AverageYieldBefore: o.Plan.AverageYieldBefore,
		AverageYieldAfter: o.Plan.AverageYieldAfter, Bytes: o.Plan.Bytes, Refused: o.Refused, Unplaced: o.Unplaced, Plan: o.Plan}, nil
}

// FailoverCapacity says for each host whether everything would still fit if it failed (N+1).
func (c *Service) FailoverCapacity(ctx context.Context) ([]FailoverRow, error) {
	s, err := c.beforePlan(ctx, "room for the VMs of a host that dies")
	if err != nil {
		return nil, err
	}
	return failover.Capacity(s, placement.Env{Now: c.o.Now().UTC(), NewID: func() string { return "" }, Unavailable: c.current.Load().failover.Unavailable(s)})
}
