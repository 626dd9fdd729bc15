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

// drainSteps are the states that follow on each. From each a drain can begin again (running), be taken back (""), and stay as it
// is with another text.
var drainSteps = map[DrainState][]DrainState{
	"":           nil,
	DrainRunning: {DrainDone, DrainBlocked, DrainStopped},
	DrainBlocked: {DrainDone},
	DrainStopped: {DrainDone},
	DrainDone:    nil,
}

// Begin returns the drain next as it begins at that time, or goes on from this one if that is running.
func (d Drain) Begin(next Drain, at time.Time) Drain {
	next.State, next.Since = DrainRunning, at
	if d.State == DrainRunning {
		next.Since = d.Since
	}
	return next
}

// End returns the drain in that state, which is an end, with the text that says why.
func (d Drain) End(as DrainState, text string) Drain {
	d.State, d.Text = as, text
	return d
}

// withDrain returns the host once its drain is next, at that log index. The zero drain is none.
func (h Host) withDrain(next Drain, index uint64) (Host, error) {
	old, was := h.Drain, h.Cordoned
	if next.State != "" && next.State != DrainRunning && next.State != old.State && !slices.Contains(drainSteps[old.State], next.State) {
		return h, fmt.Errorf("host %s: a drain that is %q does not become %q: %w", h.Name, old.State, next.State, ErrConflict)
	}
	if next.State == "" {
		h.Drain, h.Cordoned, h.CordonReason = Drain{}, false, ""
	} else {
		h.Drain = next
		h.Drain.Index, h.Drain.Begun = index, old.Begun
		if next.State == DrainRunning && old.State != DrainRunning {
			h.Drain.Begun = index
		}
		if !h.Cordoned || h.CordonReason == "" {
			h.CordonReason = "drain" + because(next.Reason)
		}
		h.Cordoned = true
	}
	if h.Cordoned != was { // else nothing changed that placements depend on
		h.Version = index
	}
	return h, nil
}
