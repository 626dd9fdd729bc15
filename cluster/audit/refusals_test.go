package audit

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// The first refusal is recorded at once, those of the minute after it as one when that is over.
func TestRefusals(t *testing.T) {
	r := NewRefusals(10)
	add := func(after time.Duration, class string) []Summary {
		return r.Add(Refusal{Kind: ConnectionRefused, Address: "192.0.2.1:4711", Class: class, Detail: "it is " + class}, noon.Add(after))
	}
	first := add(0, "revoked")
	if len(first) != 1 || first[0].Count != 1 || first[0].Address != "192.0.2.1" || first[0].Text() != "it is revoked" {
		t.Fatalf("%+v", first)
	}
	for i := range 30 {
		if s := add(time.Duration(i)*time.Second, []string{"revoked", "over"}[i%2]); len(s) > 0 {
			t.Errorf("%+v", s)
		}
	}
	if s := r.Due(noon.Add(59 * time.Second)); len(s) > 0 {
		t.Errorf("%+v", s)
	}
	s := r.Due(noon.Add(time.Minute))
	if len(s) != 1 || s[0].Count != 30 || s[0].Text() != "30 times in 29s: it is revoked; it is over" {
		t.Errorf("%+v", s)
	}
	if s := r.Due(noon.Add(3 * time.Minute)); len(s) > 0 || len(r.rows) > 0 {
		t.Errorf("%+v, %d rows", s, len(r.rows))
	}
}

// 200,000 refusals from 5,000 addresses in ten minutes: no more than 256 rows, no more than ten summaries a minute, and
// every refusal is in one of them.
func TestRefusalsFlood(t *testing.T) {
	const refusals, addresses, top = 200_000, 5_000, 10
	r := NewRefusals(top)
	now, counted, made := noon, uint64(0), map[int]int{}
	take := func(s []Summary) {
		for _, s := range s {
			counted += s.Count
			made[int(now.Sub(noon)/time.Minute)]++
		}
	}
	for i := range refusals {
		now = noon.Add(time.Duration(i) * 3 * time.Millisecond)
		take(r.Add(Refusal{Kind: RefusalKinds[i%len(RefusalKinds)], Address: fmt.Sprintf("198.51.%d.%d:%d", i%addresses/250, i%addresses%250, i%60000), Class: "x", Detail: strings.Repeat("z", 2000)}, now))
		if len(r.rows) > maxAddresses || r.order.Len() != len(r.rows) {
			t.Fatalf("%d rows", len(r.rows))
		}
		if i%1000 == 0 {
			take(r.Due(now))
		}
	}
	now = now.Add(time.Minute)
	take(r.Rest(now))
	if counted != refusals {
		t.Errorf("%d refusals are counted", counted)
	}
	for minute, n := range made {
		if n > top {
			t.Errorf("%d summaries in minute %d", n, minute)
		}
	}
}

// The file of a flood has no more than 60 records a minute, and records of others stay.
func TestFloodInFile(t *testing.T) {
	var at atomic.Int64 // nanoseconds after noon; the log's own flushes read the clock, too
	l := open(t, Options{Now: func() time.Time { return noon.Add(time.Duration(at.Load())) }})
	l.Add(Record{Verb: "deleteVirtualCluster", Actor: Actor{ID: "token:x"}})
	for i := range 200_000 {
		at.Store(int64(i) * int64(time.Millisecond)) // 200 s
		l.Refuse(Refusal{Kind: Unauthenticated, Address: fmt.Sprintf("198.51.%d.%d:9", i%5000/250, i%250), Class: "x", Detail: "no token"})
		if i%5000 == 0 {
			l.flush()
		}
	}
	a := query(t, l, Filter{Limit: MaxLimit})
	if n := len(a.Items); n < 100 || n > 4*60+1 || a.Items[0].Verb != "deleteVirtualCluster" {
		t.Errorf("%d records", n)
	}
	if info, err := os.Stat(l.o.Path); err != nil || info.Size() > 100_000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	total := uint64(0)
	for _, r := range query(t, l, Filter{Limit: MaxLimit, Outcome: Refused}).Items {
		total += r.Count
	}
	if total != 200_000 {
		t.Errorf("the records stand for %d refusals", total)
	}
}

// Whatever is refused when, nothing is counted twice or lost, and no minute has more summaries than allowed.
func TestRefusalsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(2, 12).Draw(t, "most")
		r := NewRefusals(limit)
		now, added, counted := noon, uint64(0), uint64(0)
		last := map[refusalKey]time.Time{}
		var at []time.Time
		take := func(s []Summary, end bool) {
			for _, s := range s {
				counted += s.Count
				at = append(at, now)
				key := refusalKey{s.Kind, s.Address, s.By}
				if then, ok := last[key]; ok && !end && now.Sub(then) < time.Minute {
					t.Fatalf("%v twice in %s", key, now.Sub(then))
				}
				last[key] = now
				if s.To.Before(s.From) {
					t.Fatalf("from %s to %s", s.From, s.To)
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 4).Draw(t, "due") == 0 {
				take(r.Due(now), false)
				continue
			}
			n := rapid.Uint64Range(0, 5).Draw(t, "count")
			added += max(1, n)
			take(r.Add(Refusal{Kind: rapid.SampledFrom(RefusalKinds[:]).Draw(t, "kind"), Address: fmt.Sprint("a", rapid.IntRange(0, 30).Draw(t, "address")), Count: n}, now), false)
		}
		for i := range at { // windows are fixed: any span of a minute touches two of them
			n := 0
			for _, other := range at[i:] {
				if other.Sub(at[i]) < time.Minute {
					n++
				}
			}
			if n > 2*limit {
				t.Fatalf("%d summaries within a minute", n)
			}
		}
		take(r.Rest(now.Add(time.Minute)), true)
		if counted != added {
			t.Fatalf("%d of %d refusals are in summaries", counted, added)
		}
	})
}
