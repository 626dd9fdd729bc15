package state

import (
	"slices"
	"strings"
	"time"
)

// EventFilter says which events are wanted. An empty field matches all.
type EventFilter struct {
	Kinds []string  // any of them; one that ends in * stands for all that begin like it
	Name  string    // of the object
	Since time.Time // not before
}

// Match says whether the filter wants an event.
func (f EventFilter) Match(e Event) bool {
	if f.Name != "" && e.Name != f.Name || e.At.Before(f.Since) {
		return false
	}
	return len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(kind string) bool {
		if prefix, open := strings.CutSuffix(kind, "*"); open {
			return strings.HasPrefix(e.Kind, prefix)
		}
		return e.Kind == kind
	})
}

// EventsWhere returns the events that a filter wants with a greater number than after, oldest first: the oldest limit of them,
// or with newest the newest limit.
func (s *Snapshot) EventsWhere(f EventFilter, after uint64, newest bool, limit int) []Event {
	if newest && len(f.Kinds) == 0 && f.Name == "" && f.Since.IsZero() {
		return s.newestEvents(after, limit)
	}
	var out []Event
	for _, e := range s.EventsAfter(after, 0) {
		if !f.Match(e) {
			continue
		}
		if out = append(out, e); len(out) == limit && !newest {
			break
		}
	}
	return out[max(0, len(out)-limit):]
}

// newestEvents returns the newest events with a greater number than after, oldest first, at most limit of them.
func (s *Snapshot) newestEvents(after uint64, limit int) []Event {
	it, err := s.txn.GetReverse(tEvents, "id")
	if err != nil {
		panic("state: events: " + err.Error())
	}
	var out []Event
	for obj := it.Next(); obj != nil && len(out) < limit && obj.(*Event).Seq > after; obj = it.Next() {
		out = append(out, *obj.(*Event))
	}
	slices.Reverse(out)
	return out
}
