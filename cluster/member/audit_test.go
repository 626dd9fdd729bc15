package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
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

// What a server reports is recorded as it reports it. A server that was started again counts from 1. Of the time before this
// server led only what is fresh is recorded.
func TestRecording(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var got []string
	r := recording{refusals: audit.NewRefusals(maxRefusalEvents), event: func(_ context.Context, kind, _, name, text string) error {
		got = append(got, kind+" "+name+" "+text)
		return nil
	}}
	n := r.take([]refusalEvent{{N: 4, At: now.Add(-time.Hour), Kind: refusedKind, Name: "192.0.2.1", Detail: "stale"}, {N: 5, At: now, Kind: refusedKind, Name: "192.0.2.2", Detail: "revoked"}}, 0, now)
	n = r.take([]refusalEvent{{N: 5, At: now, Kind: refusedKind, Name: "192.0.2.2", Detail: "revoked"}}, n, now)
	n = r.take([]refusalEvent{{N: 1, At: now, Kind: audit.JoinRefused, Name: "192.0.2.3", By: "agent h3", Detail: "used", Count: 7, Since: now.Add(-time.Minute)}}, n, now)
	r.record(t.Context(), now)
	if n != 1 || fmt.Sprint(got) != "[connection-refused 192.0.2.2 revoked join-refused 192.0.2.3 7 times in 1m0s: by agent h3: used]" {
		t.Errorf("%d: %q", n, got)
	}
}

// 10,000 handshakes of 1 or 5,000 addresses fail in 50 s. At most 60 warnings come of it in a minute; with those that are due
// later they count every one, and no line is long or has what a terminal obeys.
func TestFloodOfRefusedHandshakes(t *testing.T) {
	const handshakes = 10_000
	for _, addresses := range []int{1, 5_000} {
		synctest.Test(t, func(t *testing.T) {
			lines := &warnings{}
			m := &Member{log: slog.New(lines)}
			for i := range handshakes {
				from := &net.TCPAddr{IP: net.IPv4(198, 51, byte(i%addresses/250), byte(i%addresses%250)), Port: i}
				m.refused(from, errors.New("no TLS: \x1b[2J"+strings.Repeat("y", 4000)))
				time.Sleep(50 * time.Second / handshakes)
			}
			in := lines.n
			if in > maxRefusalLines || in < 1 {
				t.Errorf("%d lines of %d addresses in 50 s", in, addresses)
			}
			for range 10 {
				time.Sleep(time.Minute)
				before := lines.n
				m.audits.last(time.Now())
				if lines.n-before > maxRefusalLines {
					t.Errorf("%d lines in a minute", lines.n-before)
				}
			}
			if lines.count != handshakes || lines.longest > 2*maxRefusalWhy || lines.unprintable {
				t.Errorf("%d handshakes are counted in %d lines, the longest has %d bytes; unprintable: %v", lines.count, lines.n, lines.longest, lines.unprintable)
			}
			t.Logf("%d addresses: %d lines in 50 s, %d in all", addresses, in, lines.n)
		})
	}
}

// warnings takes the lines of a log at WARN.
type warnings struct {
	n, longest  int
	count       uint64
	unprintable bool
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *warnings) WithGroup(string) slog.Handler                    { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.n++
	long := len(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		long += len(a.Key) + len(text)
		w.unprintable = w.unprintable || strings.Contains(text, "\x1b")
		if a.Key == "count" {
			w.count += a.Value.Uint64()
		}
		return true
	})
	w.longest = max(w.longest, long)
	return nil
}
