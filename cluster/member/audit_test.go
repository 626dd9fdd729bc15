package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/audit"
)

// Three servers refuse 200,000 connections and joins of 5,000 addresses in 20 minutes. No more than ten events a minute come of
// it, every refusal is counted in one, and what the servers keep meanwhile is bounded.
func TestFloodOfRefusals(t *testing.T) {
	const refusals, addresses = 200_000, 5_000
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now, made, away := noon, map[int]int{}, true
	events := recording{refusals: audit.NewRefusals(maxRefusalEvents), event: func(_ context.Context, kind, object, name, text string) error {
		if away = !away; away {
			return errors.New("no leader for a moment")
		}
		made[int(now.Sub(noon)/time.Minute)]++
		if object != "member" || len(text) > maxEventText || len(name) > 64 {
			t.Errorf("event %s of %s %s: %s", kind, object, name, text)
		}
		return nil
	}}
	var servers [3]ring
	var taken [3]uint64
	for i := range refusals {
		now = noon.Add(time.Duration(i) * 6 * time.Millisecond)
		servers[i%3].refuse(audit.Refusal{Kind: []string{refusedKind, audit.JoinRefused}[i%2], Address: fmt.Sprintf("198.51.%d.%d:%d", i%addresses/250, i%250, i%60000), Class: "x", Detail: strings.Repeat("y", 4000)}, now)
		if i%800 == 0 {
			for n := range servers {
				taken[n] = events.take(servers[n].last(now), taken[n], now)
				if len(servers[n].kept) > eventsKept {
					t.Fatalf("server %d keeps %d events", n, len(servers[n].kept))
				}
			}
			events.record(t.Context(), now)
			if len(events.waiting) > eventsKept {
				t.Fatalf("%d events wait", len(events.waiting))
			}
		}
	}
	all := 0
	for minute, n := range made {
		if all += n; n > maxRefusalEvents+1 { // one that waited for a leader may come a minute late
			t.Errorf("%d events in minute %d", n, minute)
		}
	}
	if all < 20 || all > 21*maxRefusalEvents {
		t.Errorf("%d events in 20 minutes", all)
	}
}

// What a server of an earlier version tells is recorded as it tells it; one that was started again counts from 1; of the time
// before this server led only what is fresh is recorded.
func TestRecording(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var got []string
	r := recording{refusals: audit.NewRefusals(maxRefusalEvents), event: func(_ context.Context, kind, _, name, text string) error {
		got = append(got, kind+" "+name+" "+text)
		return nil
	}}
	n := r.take([]refusalEvent{{N: 4, At: now.Add(-time.Hour), Kind: refusedKind, Name: "192.0.2.1", Text: "stale"}, {N: 5, At: now, Kind: refusedKind, Name: "192.0.2.2", Text: "revoked"}}, 0, now)
	n = r.take([]refusalEvent{{N: 5, At: now, Kind: refusedKind, Name: "192.0.2.2", Text: "revoked"}}, n, now)
	n = r.take([]refusalEvent{{N: 1, At: now, Kind: audit.JoinRefused, Name: "192.0.2.3", By: "agent h3", Detail: "used", Count: 7, Since: now.Add(-time.Minute)}}, n, now)
	r.record(t.Context(), now)
	if n != 1 || fmt.Sprint(got) != "[connection-refused 192.0.2.2 revoked join-refused 192.0.2.3 7 times in 1m0s: by agent h3: used]" {
		t.Errorf("%d: %q", n, got)
	}
}
