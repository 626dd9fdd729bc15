package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

// TryHost is a host, or some equal ones, that a what-if adds.
type TryHost = loop.WhatHost

// TryNeed is another CPU need of each VM of a group.
type TryNeed = loop.WhatNeed

// TryRequest asks what would be if the cluster were another. Nothing is changed.
type TryRequest struct {
	AddHosts    []TryHost
	RemoveHosts []string
	Needs       []TryNeed
	MaxBytes    *int64 // most bytes that may be moved; nil: the cluster's default; -1: no bound
	Snapshot    []byte // a saved state to be asked in place of the present one; nil: the present one
}

// Unplaced is a VM that would have no host.
type Unplaced = loop.Unplaced

// TryResult is what would be.
type TryResult struct {
	MinYieldBefore, MinYieldAfter         float64
	AverageYieldBefore, AverageYieldAfter float64
	Bytes                                 int64
	Refused                               []string // VCs that would not be admitted, or not get what they were promised, each with why
	Unplaced                              []Unplaced
	Plan                                  state.MovePlan // the moves that would lead there; it is not kept
}

// SpareRow says what becomes of the cluster if one host dies.
type SpareRow = loop.SpareRow

// Try says what would be if the cluster were another.
func (c *Control) Try(ctx context.Context, q TryRequest) (TryResult, error) {
	if q.MaxBytes != nil && *q.MaxBytes < -1 {
		return TryResult{}, &Invalid{Fields: []FieldError{{Field: "maxBytes", Text: "must be a number of bytes, or -1 for no bound", Value: *q.MaxBytes}}}
	}
	w := loop.What{Add: q.AddHosts, Remove: q.RemoveHosts, Needs: q.Needs}
	var s *state.Snapshot
	var see loop.Sights
	env := loop.Env{Now: c.o.Now().UTC(), NewID: func() string { return "" }}
	if q.Snapshot == nil {
		var err error
		if s, err = c.beforePlan(ctx, "try"); err != nil {
			return TryResult{}, err
		}
		see, env.Out, env.Pools = c.sights(s), c.out(s), c.pools()
	} else {
		_, saved, err := node.Load(bytes.NewReader(q.Snapshot))
		if err != nil {
			return TryResult{}, &Invalid{Fields: []FieldError{{Field: "snapshot", Text: err.Error()}}}
		}
		s = saved.Snapshot()
	}
	meta, _ := s.Meta()
	if w.Budget = meta.Settings.Moves.WithDefaults().Budget(); q.MaxBytes != nil {
		w.Budget = *q.MaxBytes
	}
	o, err := loop.Try(s, env, see, w)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return TryResult{}, fmt.Errorf("try: %w", err)
	case errors.Is(err, loop.ErrWhat):
		return TryResult{}, &Invalid{Fields: []FieldError{{Field: "what", Text: err.Error()}}}
	case err != nil:
		return TryResult{}, err
	}
	return TryResult{MinYieldBefore: o.Plan.MinYieldBefore, MinYieldAfter: o.Plan.MinYieldAfter, AverageYieldBefore: o.Plan.AverageYieldBefore,
		AverageYieldAfter: o.Plan.AverageYieldAfter, Bytes: o.Plan.Bytes, Refused: o.Refused, Unplaced: o.Unplaced, Plan: o.Plan}, nil
}

// Spare tells for each host whether everything would still fit if it died (N+1).
func (c *Control) Spare(ctx context.Context) ([]SpareRow, error) {
	s, err := c.beforePlan(ctx, "room for the VMs of a host that dies")
	if err != nil {
		return nil, err
	}
	return loop.Spare(s, loop.Env{Now: c.o.Now().UTC(), NewID: func() string { return "" }, Out: c.out(s)})
}
