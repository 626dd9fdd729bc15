package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func open(t *testing.T, o Options) *Log {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "audit.log")
	}
	o.Server = "s1"
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func query(t *testing.T, l *Log, f Filter) Answer {
	t.Helper()
	a, err := l.Query(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func seqs(a Answer) (out []uint64) {
	for _, r := range a.Items {
		out = append(out, r.Seq)
	}
	return out
}

// The log goes on over rotations and restarts: numbers have no hole, the newest records come, newest last, and no more
// files are kept than wanted, all of mode 0600.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // one that any user may read
		t.Fatal(err)
	}
	o := Options{Path: path, MaxBytes: 2000, Files: 3}
	const all = 100
	for range 2 {
		l := open(t, o)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		for range all / 2 {
			l.Add(Record{Verb: "createVirtualCluster", Object: Object{"virtual-cluster", "web"}, Outcome: Ok, Status: 202})
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, o)
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != 3 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 2000 {
			t.Errorf("%s: %v, %d bytes, %v", name, info.Mode(), info.Size(), err)
		}
	}
	got := seqs(query(t, l, Filter{Limit: all}))
	if len(got) < 20 || got[len(got)-1] != all {
		t.Fatalf("records %v", got)
	}
	for i := range got[1:] {
		if got[i+1] != got[i]+1 {
			t.Fatalf("not one after the other: %v", got)
		}
	}
	if got := seqs(query(t, l, Filter{Limit: 2})); fmt.Sprint(got) != "[99 100]" {
		t.Errorf("the newest two are %v", got)
	}
}

// Lines that are no records are passed over and counted, half a line at the end is ended.
func TestDamagedLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	good := func(seq int) string {
		b, _ := json.Marshal(Record{Server: "s1", Seq: uint64(seq), Verb: "x"})
		return string(b) + "\n"
	}
	long := strings.Repeat("y", 3*chunk)
	over := `{"seq":8,"verb":"` + strings.Repeat("z", maxLine) + "\"}\n" // a record, and longer than any that is written
	text := over + "\x00\xff{\n" + good(1) + "{}\n" + good(2) + `{"seq":7,"verb":"` + long + "\"}\n" + "\n" + over + good(3) + `{"seq":9,"ve`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{Path: path})
	l.Add(Record{Verb: "y"})
	a := query(t, l, Filter{})
	if fmt.Sprint(seqs(a)) != "[1 2 3 4]" || a.Damaged != 7 {
		t.Errorf("records %v, %d damaged", seqs(a), a.Damaged)
	}
}

func TestBounds(t *testing.T) {
	l := open(t, Options{})
	huge := strings.Repeat("\x1b[2J\"\\é", 100_000)
	l.Add(Record{Actor: Actor{ID: huge, Name: huge, Client: huge, Request: huge}, Verb: huge, Object: Object{huge, huge}, Outcome: huge, Detail: huge})
	b, err := os.ReadFile(l.o.Path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > maxLine || bytes.ContainsFunc(b[:len(b)-1], func(r rune) bool { return r < ' ' }) {
		t.Errorf("%d bytes: %.100q", len(b), b)
	}
	if a := query(t, l, Filter{}); len(a.Items) != 1 || a.Damaged != 0 {
		t.Errorf("%d records, %d damaged", len(a.Items), a.Damaged)
	}
	for in, want := range map[string]string{"plain": "plain", "a\nb\x7f\xff": "a?b??", "ééééé": "éé...", "abcdefgh": "abcdefgh", "abcdefghi": "abcde..."} {
		if got := Printable(in, 8); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := Record{At: at, Actor: Actor{ID: "token:3f2a", Name: "deploy", Client: "192.0.2.7:4711"}, Verb: "createVirtualCluster",
		Object: Object{"virtual-cluster", "web"}, Outcome: Failed, Status: 409}
	for text, want := range map[string]bool{
		"": true, "actor=deploy": true, "actor=3f2a": true, "actor=token:3f2a": true, "actor=192.0.2.7": true, "actor=192.0.2.7:4711": true, "actor=dep": false,
		"verb=createvirtualcluster": true, "verb=create": false, "object=web": true, "object=virtual-cluster": true, "object=virtual-cluster/web": true, "object=host/web": false,
		"outcome=failed": true, "outcome=409": true, "outcome=ok": false,
		"since=2026-11-22T12:00:00Z": true, "since=2026-11-22T12:00:00.1Z": false, "until=2026-11-22T12:00:00Z": false, "until=2026-11-22T12:00:01Z": true,
	} {
		values := map[string][]string{}
		if name, value, ok := strings.Cut(text, "="); ok {
			values[name] = []string{value}
		}
		f, err := ParseFilter(values)
		if err != nil || f.Match(r) != want {
			t.Errorf("%s: %v, %v", text, f.Match(r), err)
		}
		again, err := ParseFilter(f.Values())
		if err != nil || again != f {
			t.Errorf("%s: %+v is read as %+v, %v", text, f, again, err)
		}
	}
	for _, bad := range []string{"since", "until", "limit", "colour"} {
		if _, err := ParseFilter(map[string][]string{bad: {"x"}}); err == nil {
			t.Errorf("%s=x is taken", bad)
		}
	}
	for status, want := range map[int]string{101: Ok, 200: Ok, 401: Refused, 403: Refused, 429: Refused, 404: Failed, 503: Failed} {
		if got := OutcomeOf(status); got != want {
			t.Errorf("%d is %s", status, got)
		}
	}
}

// Many write and read at once while files are rotated: every number is written once, and each answer is one piece.
func TestConcurrency(t *testing.T) {
	l := open(t, Options{MaxBytes: 1500, Files: 400})
	var wg sync.WaitGroup
	const writers, each = 8, 200
	for range writers {
		wg.Go(func() {
			for range each {
				l.Add(Record{Verb: "x", Outcome: Ok})
				l.Refuse(Refusal{Kind: Unauthenticated, Address: "192.0.2.1:1"})
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 20 {
				a, err := l.Query(context.Background(), Filter{Limit: 500, Verb: "x"})
				if err != nil {
					t.Error(err)
				}
				got := seqs(a)
				for i := range max(1, len(got)) - 1 {
					if got[i+1] <= got[i] || got[i+1] > got[i]+2 { // the record of the refusals has one number
						t.Errorf("%d after %d", got[i+1], got[i])
					}
				}
			}
		})
	}
	wg.Wait()
	if a := query(t, l, Filter{Limit: MaxLimit, Verb: "x"}); len(a.Items) != writers*each || a.Damaged != 0 {
		t.Errorf("%d records, %d damaged", len(a.Items), a.Damaged)
	}
	if c := l.Counts(); c.Written != writers*each+1 || c.Failed != 0 || c.Refused[Unauthenticated] != writers*each {
		t.Errorf("%+v", c)
	}
}

// A file that was moved away is made again. One that cannot be written costs records, which are counted, and one line of the
// log a minute.
func TestMovedAndLost(t *testing.T) {
	var at atomic.Int64 // nanoseconds after noon; the log's own flushes read the clock, too
	var said bytes.Buffer
	dir := t.TempDir()
	l := open(t, Options{Path: filepath.Join(dir, "audit.log"), Now: func() time.Time { return noon.Add(time.Duration(at.Load())) }, Log: slog.New(slog.NewTextHandler(&said, nil))})
	l.Add(Record{Verb: "a"})
	if err := os.Rename(l.o.Path, l.o.Path+".moved"); err != nil {
		t.Fatal(err)
	}
	at.Add(int64(2 * checkEvery))
	l.Add(Record{Verb: "b"})
	if a := query(t, l, Filter{}); fmt.Sprint(seqs(a)) != "[2]" {
		t.Errorf("%v after it was moved", seqs(a))
	}
	if err := os.Remove(l.o.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.o.Path, 0o700); err != nil { // no file can be there
		t.Fatal(err)
	}
	for range 130 {
		at.Add(int64(time.Second))
		l.Add(Record{Verb: "c"})
	}
	if c := l.Counts(); c.Failed != 129 && c.Failed != 130 {
		t.Errorf("%+v", c)
	}
	if n := strings.Count(said.String(), "audit records are lost"); n != 3 {
		t.Errorf("it is said %d times:\n%s", n, said.String())
	}
	if err := os.Remove(l.o.Path); err != nil {
		t.Fatal(err)
	}
	l.Add(Record{Verb: "d"})
	if a := query(t, l, Filter{}); len(a.Items) != 1 || a.Items[0].Verb != "d" {
		t.Errorf("%+v after it can be written again", a)
	}
}

func TestNilLog(t *testing.T) {
	var l *Log
	l.Add(Record{})
	l.Refuse(Refusal{Kind: JoinRefused})
	if a, err := l.Query(t.Context(), Filter{}); err != nil || len(a.Items) != 0 || a.Items == nil {
		t.Errorf("%+v, %v", a, err)
	}
	if c := l.Counts(); c.Written != 0 || len(c.Refused) != len(RefusalKinds) {
		t.Errorf("%+v", c)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
