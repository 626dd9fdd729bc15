package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

func (s *server) command(t *testing.T, kind state.Kind, body any) {
	t.Helper()
	b, err := state.Encode(kind, time.Unix(1, 0), body)
	if err != nil {
		t.Fatal(err)
	}
	if _, outcome, err := s.Apply(t.Context(), b); outcome != nil || err != nil {
		t.Fatalf("%s: %v, %v", kind, outcome, err)
	}
}

// found makes a cluster with one host.
func (s *server) found(t *testing.T, id string) {
	t.Helper()
	s.command(t, state.KindInit, state.Init{ID: id, Settings: state.DefaultSettings()})
	s.command(t, state.KindHostReport, state.HostReport{Name: "h1", Capacity: state.Resources{CPU: 4, Memory: 8 << 30}, Allowance: state.Resources{CPU: 3, Memory: 6 << 30}})
}

func (s *server) backup(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRestoreOfOlderSnapshot(t *testing.T) { bubble(t, testRestoreOfOlderSnapshot) }

func testRestoreOfOlderSnapshot(t *testing.T) {
	g := newGroup(t, 3)
	first := g.leader()
	first.found(t, "c1")
	g.put(0, 10)
	file := first.backup(t)
	for _, m := range g.members {
		if m != first {
			if err := m.Save(t.Context(), &bytes.Buffer{}); !errors.Is(err, ErrNotLeader) {
				t.Errorf("save on a follower: %v", err)
			}
			if _, err := m.Restore(t.Context(), bytes.NewReader(file), false); !errors.Is(err, ErrNotLeader) {
				t.Errorf("restore on a follower: %v", err)
			}
		}
	}
	saved, err := Inspect(bytes.NewReader(file))
	if err != nil || saved.Cluster != "c1" || saved.Images != 10 || saved.Hosts != 1 || saved.Server != first.id || saved.Term != first.Term() {
		t.Errorf("inspect: %+v, %v", saved, err)
	}
	g.put(10, 30)
	g.stop(g.members[anyBut(g, first.id)]) // one hears of it later
	indexBefore := first.store.Snapshot().Index()
	g.restore(file)
	first = g.leader()
	snap := first.store.Snapshot()
	if n := len(snap.Images()); n != 10 {
		t.Errorf("%d images after the restore, want 10", n)
	}
	if snap.Index() <= indexBefore {
		t.Errorf("the state is at index %d after the restore, and was at %d before", snap.Index(), indexBefore)
	}
	meta, _ := snap.Meta()
	if !meta.RecoveryFreeze.On() || !slices.Equal(meta.RecoveryFreeze.Pending, []string{"h1"}) || meta.Epoch == 0 {
		t.Errorf("not held: %+v", meta)
	}
	g.put(100, 105)
	for _, m := range g.members {
		if !m.up {
			g.restart(m)
		}
	}
	want := save(t, first.store)
	for _, m := range g.members {
		g.until(m.id+" has the restored state", func() bool { return save(t, m.store) == want })
	}
	// Once more the same one: the epoch goes on.
	g.restore(file)
	again, _ := g.leader().store.Snapshot().Meta()
	if again.Epoch <= meta.Epoch {
		t.Errorf("epoch %d, then %d", meta.Epoch, again.Epoch)
	}
	// And all of it is there after a restart of everyone.
	want = save(t, g.leader().store)
	for _, m := range g.members {
		g.stop(m)
	}
	for _, m := range g.members {
		g.restart(m)
	}
	l := g.leader()
	if got := save(t, l.store); got != want {
		t.Errorf("state after a restart:\n%s\nbefore:\n%s", got, want)
	}
}

func anyBut(g *group, id string) string {
	for other := range g.members {
		if other != id {
			return other
		}
	}
	return ""
}

func TestRestoreElsewhere(t *testing.T) {
	a := open(t, Options{Dir: t.TempDir(), ID: "a"}).lead(t)
	a.found(t, "c1")
	a.put(t, 0, 300) // its log is longer than the other's
	file := a.backup(t)
	b := open(t, Options{Dir: t.TempDir(), ID: "b"}).lead(t)
	b.found(t, "c2")
	if _, err := b.Restore(t.Context(), bytes.NewReader(file), false); !errors.Is(err, ErrRefused) {
		t.Fatalf("another cluster's: %v", err)
	}
	if _, err := b.Restore(t.Context(), bytes.NewReader(file), true); err != nil {
		t.Fatal(err)
	}
	snap := b.store.Snapshot()
	if meta, _ := snap.Meta(); meta.ID != "c1" || len(snap.Images()) != 300 || snap.Index() <= a.store.Snapshot().Index() {
		t.Errorf("cluster %s, %d images, index %d; saved at %d", meta.ID, len(snap.Images()), snap.Index(), a.store.Snapshot().Index())
	}
	b.put(t, 300, 310)
}

func TestDamagedBackup(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Version: "1.2"}).lead(t)
	if err := s.Save(t.Context(), &bytes.Buffer{}); err == nil {
		t.Error("saved a cluster that is none")
	}
	s.found(t, "c1")
	s.put(t, 0, 5)
	file := s.backup(t)
	if saved, err := Inspect(bytes.NewReader(file)); err != nil || saved.Software != "1.2" {
		t.Fatalf("%+v, %v", saved, err)
	}
	other := open(t, Options{Dir: t.TempDir(), ID: "o"}).lead(t)
	other.found(t, "c1")
	otherFile := other.backup(t)
	nl := bytes.IndexByte(file, '\n')
	for name, bad := range map[string][]byte{
		"empty":           nil,
		"no line":         bytes.Repeat([]byte("x"), 1<<17),
		"cut":             file[:len(file)-10],
		"a term":          bytes.Replace(file, []byte(`"server":"s1"`), []byte(`"server":"s2"`), 1),
		"an image":        bytes.Replace(file, []byte("i000003"), []byte("i000007"), 1),
		"more":            append(slices.Clone(file), "x"...),
		"another's state": append(slices.Clone(file[:nl+1]), otherFile[bytes.IndexByte(otherFile, '\n')+1:]...),
		"a newer format":  bytes.Replace(file, []byte(`"v":1`), []byte(`"v":9`), 1),
	} {
		if _, err := Inspect(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: taken for whole", name)
		}
		before := save(t, s.store)
		if _, err := s.Restore(t.Context(), bytes.NewReader(bad), true); err == nil {
			t.Errorf("%s: restored", name)
		}
		if save(t, s.store) != before {
			t.Errorf("%s: the state has changed", name)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte(`{"format":"evenkeel-snapshot","v":1,"cluster":"c","epoch":0,"index":3,"term":2,"time":"2026-01-02T03:04:05Z","server":"s","software":"","sha256":"x"}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := Inspect(bytes.NewReader(b)); err == nil && (s.Format != backupFormat || s.Index == 0) {
			t.Errorf("taken for whole: %+v", s)
		}
	})
}

func TestExpired(t *testing.T) {
	at := func(day, hour int, index uint64) string {
		return backupName(time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC), index)
	}
	names := []string{at(20, 23, 50), at(21, 1, 60), at(21, 2, 70), at(21, 3, 80), at(20, 5, 40), at(19, 6, 30), at(19, 1, 20), at(17, 1, 10),
		"evenkeel-20261121T030000Z-80.snapshot.old", "evenkeel-x-80.snapshot", "notes.txt", ".saving-1", "evenkeel-20261121T030000Z-08.snapshot"}
	for _, c := range []struct {
		latest, days int
		want         []string
	}{
		{100, 0, nil},
		{0, 0, []string{at(17, 1, 10), at(19, 1, 20), at(19, 6, 30), at(20, 23, 50), at(20, 5, 40), at(21, 1, 60), at(21, 2, 70)}}, // the newest always stays
		{2, 3, []string{at(17, 1, 10), at(19, 1, 20), at(20, 5, 40), at(21, 1, 60)}},
		{1, 100, []string{at(19, 1, 20), at(20, 5, 40), at(21, 1, 60), at(21, 2, 70)}},
		{4, 1, []string{at(17, 1, 10), at(19, 1, 20), at(19, 6, 30), at(20, 5, 40)}},
	} {
		slices.Sort(c.want)
		if got := expired(names, c.latest, c.days); !slices.Equal(got, c.want) {
			t.Errorf("latest %d, days %d: gone %v, want %v", c.latest, c.days, got, c.want)
		}
	}
}

func TestBackups(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()}).lead(t)
	dir := filepath.Join(t.TempDir(), "backups")
	b := &Backups{Node: s.Node, Dir: dir, Every: time.Millisecond, Latest: 2}
	if err := b.Once(); err == nil {
		t.Error("saved a cluster that is none")
	}
	s.found(t, "c1")
	old := backupName(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	for _, name := range []string{old, savingPrefix + "1", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	kept := func() any { return files(t, dir) }
	for n := range 3 {
		s.put(t, n, n+1)
		index := s.store.Snapshot().Index()
		until(t, "a file with the newest", kept, func() bool { _, i := b.newest(); return i == index })
	}
	until(t, "a round that has nothing new", kept, func() bool {
		at, err := b.Last()
		_, name := b.newest()
		return err == nil && !at.IsZero() && name > 0 && len(files(t, dir)) == 3
	})
	cancel()
	<-done
	names := files(t, dir)
	if !slices.Contains(names, "notes.txt") || slices.Contains(names, old) || strings.Contains(strings.Join(names, " "), savingPrefix) {
		t.Errorf("left: %v", names)
	}
	f, err := os.Open(filepath.Join(dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Inspect(f); err != nil {
		t.Errorf("%s: %v", names[0], err)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
