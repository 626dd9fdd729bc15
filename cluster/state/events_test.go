package state_test

import (
	"testing"
	"time"

	"evenkeel/cluster/state"
)

func TestEventFilter(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	e := state.Event{Kind: "vm-running", Object: "vm", Name: "a-w-0", At: noon}
	for _, c := range []struct {
		name   string
		filter state.EventFilter
		want   bool
	}{
		{"nothing asked", state.EventFilter{}, true},
		{"its kind", state.EventFilter{Kinds: []string{"vm-running"}}, true},
		{"one of two kinds", state.EventFilter{Kinds: []string{"host-lost", "vm-running"}}, true},
		{"another kind", state.EventFilter{Kinds: []string{"vm-run"}}, false},
		{"how its kind begins", state.EventFilter{Kinds: []string{"vm-*"}}, true},
		{"how another begins", state.EventFilter{Kinds: []string{"vc-*"}}, false},
		{"all kinds", state.EventFilter{Kinds: []string{"*"}}, true},
		{"its name", state.EventFilter{Name: "a-w-0"}, true},
		{"half its name", state.EventFilter{Name: "a-w"}, false},
		{"since then", state.EventFilter{Since: noon}, true},
		{"since later", state.EventFilter{Since: noon.Add(1)}, false},
		{"all of it", state.EventFilter{Kinds: []string{"vm-*"}, Name: "a-w-0", Since: noon}, true},
		{"name but not kind", state.EventFilter{Kinds: []string{"vc-*"}, Name: "a-w-0"}, false},
	} {
		if got := c.filter.Match(e); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The filter comes before the limit.
func TestEventsWhere(t *testing.T) {
	k := small(t, 2)
	for n := range 6 {
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: n%2 == 0})
	}
	s := k.Snapshot()
	last := s.LastEvent()
	numbers := func(events []state.Event) (out []uint64) {
		for _, e := range events {
			out = append(out, e.Seq)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		filter state.EventFilter
		after  uint64
		newest bool
		limit  int
		want   []uint64
	}{
		{"the newest two", state.EventFilter{}, 0, true, 2, []uint64{last - 1, last}},
		{"the newest two of a kind", state.EventFilter{Kinds: []string{"host-cordoned"}}, 0, true, 2, []uint64{last - 3, last - 1}},
		{"the first after a number", state.EventFilter{Kinds: []string{"host-cordoned"}}, last - 5, false, 1, []uint64{last - 3}},
		{"of a host of which nothing is known", state.EventFilter{Name: "h9"}, 0, true, 2, nil},
	} {
		got := numbers(s.EventsWhere(c.filter, c.after, c.newest, c.limit))
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}
