package state

import (
	"fmt"
	"slices"
	"time"
)

// A drain begins, reports its progress, ends, and is taken back. No other file changes the state of one.
//
// A host with a drain is cordoned. A drain begins as running and keeps its beginning (Begun, Since) while it goes on. One that is
// blocked or stopped still comes to its end once the host is empty.

// drainSteps are the states that may follow each state. Besides, from every state a drain can begin again (running), be taken back
// (""), or keep its state with another text.
var drainSteps = map[DrainState][]DrainState{
	"":           nil,
	DrainRunning: {DrainDone, DrainBlocked, DrainStopped},
	DrainBlocked: {DrainDone},
	DrainStopped: {DrainDone},
	DrainDone:    nil,
}

// BeginDrain returns next as a drain of the host that begins at that time. If the host has a running drain, next goes on with it and
// keeps its Since. format is the version of the log's format.
func (h Host) BeginDrain(next Drain, at time.Time, format int) Drain {
	next.State, next.Since = DrainRunning, at
	if h.Drain.State == DrainRunning {
		next.Since = h.Drain.Since
	}
	next.KeepsCordon = h.Drain.KeepsCordon || h.Drain.State == "" && h.Cordoned && format >= keepsCordonSince
	return next
}

// cordoned returns the drain of a host that an operator cordons meanwhile, at that log index. format is the version of the log's format.
func (d Drain) cordoned(index uint64, format int) Drain {
	if d.State != "" && format >= keepsCordonSince {
		d.KeepsCordon, d.Index = true, index
	}
	return d
}

// End returns the drain in that state, which is an end, with the text that says why.
func (d Drain) End(as DrainState, text string) Drain {
	d.State, d.Text = as, text
	return d
}

// cordonReason is why a host with the drain is cordoned, where no operator gave a reason.
func (d Drain) cordonReason() string { return "drain" + because(d.Reason) }

// withDrain returns the host once its drain is next, at that log index. The zero drain is none.
func (h Host) withDrain(next Drain, index uint64) (Host, error) {
	old, was := h.Drain, h.Cordoned
	if next.State != "" && next.State != DrainRunning && next.State != old.State && !slices.Contains(drainSteps[old.State], next.State) {
		return h, fmt.Errorf("host %s: a drain that is %q does not become %q: %w", h.Name, old.State, next.State, ErrConflict)
	}
	if next.State == "" {
		h.Drain, h.Cordoned = Drain{}, old.KeepsCordon
		if !h.Cordoned || h.CordonReason == old.cordonReason() { // an operator may cordon without a reason
			h.CordonReason = ""
		}
	} else {
		h.Drain = next
		h.Drain.Index, h.Drain.Begun = index, old.Begun
		if next.State == DrainRunning && old.State != DrainRunning {
			h.Drain.Begun = index
		}
		if !h.Cordoned || h.CordonReason == "" {
			h.CordonReason = next.cordonReason()
		}
		h.Cordoned = true
	}
	if h.Cordoned != was { // else nothing changed that placements depend on
		h.Version = index
	}
	return h, nil
}
