package main

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// Each record is printed once however often it is answered: requests' ids repeat, server and number do not.
func TestAuditFollower(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	record := func(server string, seq uint64, after time.Duration) v1.AuditRecord {
		return v1.AuditRecord{Server: server, Seq: seq, At: at.Add(after), Actor: v1.AuditActor{Request: "same"}}
	}
	f := auditFollower{seen: map[auditName]time.Time{}}
	if got := f.since(at); got != "2026-11-22T11:59:00Z" {
		t.Errorf("asks since %s at first", got)
	}
	f = auditFollower{seen: map[auditName]time.Time{}}
	for _, step := range []struct {
		list []v1.AuditRecord
		want int
	}{
		{[]v1.AuditRecord{record("s1", 1, 0), record("s2", 1, 0)}, 2},
		{[]v1.AuditRecord{record("s1", 1, 0), record("s2", 1, 0), record("s2", 2, time.Second)}, 1},
		{[]v1.AuditRecord{record("s1", 2, -30*time.Second), record("s2", 2, time.Second)}, 1}, // a server whose clock is behind
		{nil, 0},
		{[]v1.AuditRecord{record("s1", 3, time.Hour)}, 1},
	} {
		if got := f.news(step.list); len(got) != step.want {
			t.Errorf("%v is new of %v", got, step.list)
		}
	}
	if got := f.since(at); got != "2026-11-22T12:59:00Z" || len(f.seen) != 1 {
		t.Errorf("asks since %s, remembers %v", got, f.seen)
	}
	said := fmt.Sprint(f.unprinted([]string{"s2: away"}), f.unprinted([]string{"s2: away", "s3: away"}), f.unprinted(nil), f.unprinted([]string{"s2: away"}))
	if said != "[s2: away] [s3: away] [] [s2: away]" {
		t.Error(said)
	}
}
