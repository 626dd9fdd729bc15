package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

var update = flag.Bool("update", false, "write the data directory of the newest version of the format again: only before it is released")

// A server opens the data directory that a server of each version of the format wrote, finds every row of it, and goes on. The
// recorded directories stay for ever: a later version gets one of its own beside them.
func TestDataOfEveryVersion(t *testing.T) {
	for v := 1; v <= state.FormatVersion; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Parallel()
			recorded, golden := fmt.Sprintf("testdata/data-v%d.tar.gz", v), fmt.Sprintf("testdata/data-v%d.golden", v)
			if *update && v == state.FormatVersion {
				record(t, recorded, golden)
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			unpack(t, recorded, dir)
			o := Options{Dir: dir, Used: true}
			s := open(t, o).lead(t)
			saved := state.New()
			if err := saved.Restore(bytes.NewReader(want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(save(t, saved), save(t, s.store)); diff != "" { // both as this program writes them
				t.Errorf("state differs (-want +got):\n%s", diff)
			}
			s.put(t, 900, 910)
			s.close(t)
			s = open(t, o).lead(t)
			for n := 900; n < 910; n++ {
				if _, found := s.store.Snapshot().Image(fmt.Sprintf("i%06d", n)); !found {
					t.Errorf("image %d, which came since, is gone", n)
				}
			}
		})
	}
}

// record makes a data directory as a server leaves it when it is stopped: a log of many entries, a snapshot of a state with rows of
// every kind, and entries after that.
func record(t *testing.T, to, golden string) {
	dir := t.TempDir()
	o := Options{Dir: dir, SnapshotEvery: 10_000, Trailing: 20}
	s := open(t, o).lead(t)
	log, err := os.ReadFile(fmt.Sprintf("../state/testdata/log-v%d.jsonl", state.FormatVersion))
	if err != nil {
		t.Fatal(err)
	}
	entries := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	s.put(t, 0, len(entries)) // what is restored must be of an earlier index
	for _, e := range entries {
		cmd, _, err := state.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, outcome, err := s.Apply(t.Context(), e); cmd.Kind == state.KindRestore && outcome != nil && !errors.Is(outcome, state.ErrInvalid) || err != nil {
			t.Fatalf("%s: %v, %v", cmd.Kind, outcome, err)
		}
	}
	if len(s.store.Snapshot().Migrations()) == 0 {
		t.Fatal("the recorded state is not in force")
	}
	s.put(t, 500, 510)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	s.put(t, 510, 520)
	if err := os.WriteFile(golden, []byte(save(t, s.store)), 0o644); err != nil {
		t.Fatal(err)
	}
	s.close(t)
	if err := os.WriteFile(to, pack(t, dir), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	out := tar.NewWriter(z)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err = out.Write(content)
		return err
	})
	if err := errors.Join(err, out.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err == nil {
			path := filepath.Join(dir, filepath.FromSlash(h.Name))
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
