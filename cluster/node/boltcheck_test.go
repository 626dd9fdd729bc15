package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"evenkeel/cluster/state"
	"evenkeel/internal/statefile"
)

// writeLog makes a log of n entries of up to most bytes, as a server that wrote and trimmed it.
func writeLog(t testing.TB, dir string, n uint64, limit int) {
	t.Helper()
	store, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db"), BoltOptions: &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, n))
	var batch []*raft.Log
	for i := uint64(1); i <= n; i++ {
		batch = append(batch, &raft.Log{Index: i, Term: 1, Type: raft.LogNoop, Data: bytes.Repeat([]byte{byte(i)}, rnd.IntN(limit))})
		if len(batch) == 256 || i == n {
			if err := store.StoreLogs(batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	if err := errors.Join(store.SetUint64([]byte("CurrentTerm"), 1), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedLog: whatever is damaged in raft.db, the server says so, and names the file.
func TestDamagedLog(t *testing.T) {
	const page = 4096
	flip := func(at ...int) func([]byte) []byte {
		return func(b []byte) []byte {
			for _, a := range at {
				b[a] ^= 0x40
			}
			return b
		}
	}
	places := make([]int, 0, 40)
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 40 {
		places = append(places, page*2+rnd.IntN(page*200))
	}
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		says   string
	}{
		"meta page 0":        {flip(20), "meta page 0"},
		"meta page 1":        {flip(page + 20), "meta page 1"},
		"both meta pages":    {flip(20, page+20), "meta page 0"},
		"40 places":          {flip(places...), "page "},
		"cut in half":        {func(b []byte) []byte { return b[:len(b)/2] }, "it is cut"},
		"cut to a few bytes": {func(b []byte) []byte { return b[:100] }, "meta page 0"},
		"garbage":            {func(b []byte) []byte { return bytes.Repeat([]byte("garbage "), len(b)/8) }, "meta page 0"},
		"zeros":              {func(b []byte) []byte { return make([]byte, len(b)) }, "meta page 0"},
		"empty":              {func([]byte) []byte { return nil }, "is empty now"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeLog(t, dir, 2000, 800)
			path := filepath.Join(dir, "raft.db")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, c.damage(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			n, err := Open(Options{Dir: dir, ID: "n1", State: state.New(), Log: slog.New(slog.DiscardHandler), Used: true})
			if err == nil {
				_ = n.Close()
			}
			var damaged *statefile.Damaged
			if !errors.As(err, &damaged) || damaged.Path != path || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; it must name %s and say %q", err, path, c.says)
			}
		})
	}
}

// TestDamagedSnapshot: a server whose newest snapshot is damaged must not go on from an older one without what came between.
func TestDamagedSnapshot(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Node, error) {
		return Open(Options{Dir: dir, ID: "n1", State: state.New(), Log: slog.New(slog.DiscardHandler), SnapshotEvery: 4, Trailing: 1})
	}
	n, err := open()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		_, _, _ = n.Apply(t.Context(), entry(i)) // it may not lead yet
		for !n.Leads() {
			time.Sleep(time.Millisecond) // sleep: a server alone notifies no other that it leads
		}
	}
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	saved, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	path := saved[len(saved)-1]
	b, err := os.ReadFile(path)
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"a flipped bit", "its description is gone"} {
		n, err := open()
		if err == nil {
			_ = n.Close()
		}
		var damaged *statefile.Damaged
		if !errors.As(err, &damaged) || !strings.HasPrefix(damaged.Path, filepath.Join(dir, "snapshots")) {
			t.Errorf("%s: %v", what, err)
		}
		for _, p := range saved {
			_ = os.Remove(filepath.Join(filepath.Dir(p), "meta.json")) // it is gone already in the second round
		}
	}
}

// TestCheckIsEnough: what the check passes, bbolt opens and reads: it ends no process. Each file is opened by a process of its own.
func TestCheckIsEnough(t *testing.T) {
	if path := os.Getenv("EVENKEEL_OPEN_LOG"); path != "" {
		n, err := Open(Options{Dir: path, ID: "n1", State: state.New(), Log: slog.New(slog.DiscardHandler), Used: true})
		if err == nil {
			err = n.Close()
		}
		fmt.Println("OPENED", err)
		return
	}
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		writeLog(t, dir, 300, 3000)
		path := filepath.Join(dir, "raft.db")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rnd.IntN(4) { // heads of pages and of elements, where it matters most
			b[rnd.IntN(len(b)/4096)*4096+rnd.IntN(64)] ^= byte(1 << rnd.IntN(8))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCheckIsEnough$")
		cmd.Env = append(os.Environ(), "EVENKEEL_OPEN_LOG="+dir)
		if reported, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(reported), "OPENED") {
			t.Errorf("seed %d: %v: %.2000s", seed, err, reported)
		}
	}
}

// BenchmarkCheckLog is what the check costs a server that starts on a large log.
func BenchmarkCheckLog(b *testing.B) {
	dir := b.TempDir()
	writeLog(b, dir, 16384, 32<<10)
	path := filepath.Join(dir, "raft.db")
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if err := checkDB(path); err != nil {
			b.Fatal(err)
		}
	}
}
