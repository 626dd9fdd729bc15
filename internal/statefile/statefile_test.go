package statefile_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"evenkeel/internal/statefile"
)

// damages are what a crash or a disk does to a file.
var damages = map[string]func(b []byte) []byte{
	"cut":              func(b []byte) []byte { return b[:len(b)/2] },
	"cut at the end":   func(b []byte) []byte { return b[:len(b)-3] },
	"empty":            func([]byte) []byte { return nil },
	"a flipped digit":  func(b []byte) []byte { b[len(`{"n":4`)-1] ^= 1; return b }, // JSON all the same
	"zeros":            func(b []byte) []byte { return make([]byte, len(b)) },
	"garbage":          func([]byte) []byte { return []byte("x\x00\xff garbage\n") },
	"a wrong checksum": func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
	"missing":          nil,
}

type content struct{ N int }

func read(path string) (n int, fallback, err error) {
	var c content
	fallback, err = statefile.Read(path, func(b []byte) error { c = content{}; return json.Unmarshal(b, &c) })
	return c.N, fallback, err
}

func TestDamage(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.json")
			apply := func(path string) {
				t.Helper()
				if damage == nil {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					return
				}
				b, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, damage(b), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range []int{41, 42} {
				if err := statefile.WriteIn(path, []byte(`{"n":`+string(rune('0'+n/10))+string(rune('0'+n%10))+`}`)); err != nil {
					t.Fatal(err)
				}
			}
			if n, fallback, err := read(path); n != 42 || fallback != nil || err != nil {
				t.Fatalf("%d, %v, %v", n, fallback, err)
			}
			apply(path)
			if n, fallback, err := read(path); n != 42 || fallback == nil || err != nil {
				t.Errorf("the file is damaged: %d, %v, %v", n, fallback, err)
			}
			if n, fallback, err := read(path); n != 42 || fallback != nil || err != nil {
				t.Errorf("it was not made whole: %d, %v, %v", n, fallback, err)
			}
			apply(path + ".copy")
			if n, fallback, err := read(path); n != 42 || fallback != nil || err != nil {
				t.Errorf("the copy is damaged: %d, %v, %v", n, fallback, err)
			}
			apply(path)
			if n, fallback, err := read(path); n != 42 || fallback == nil || err != nil {
				t.Errorf("the copy was not made whole: %d, %v, %v", n, fallback, err)
			}
			apply(path)
			apply(path + ".copy")
			_, _, err := read(path)
			var damaged *statefile.Damaged
			if damage == nil {
				if !errors.Is(err, fs.ErrNotExist) || errors.As(err, &damaged) {
					t.Errorf("both are missing: %v", err)
				}
			} else if !errors.As(err, &damaged) || damaged.Path != path {
				t.Errorf("both are damaged: %v", err)
			}
		})
	}
}

// A file that an operator wrote has no checksum and no copy.
func TestWrittenByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(path, []byte("{\"n\":7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, fallback, err := read(path); n != 7 || fallback != nil || err != nil {
			t.Fatalf("%d, %v, %v", n, fallback, err)
		}
		if err := os.Remove(path); err != nil { // the copy was made when it was read
			t.Fatal(err)
		}
		if n, fallback, err := read(path); n != 7 || fallback == nil || err != nil {
			t.Fatalf("from the copy: %d, %v, %v", n, fallback, err)
		}
	}
}

// What was read counts from then on: a write that a crash cut off between the two copies is ended by the next read.
func TestCrashBetweenTheCopies(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.json")
	for i, c := range []string{`{"n":1}`, `{"n":2}`} {
		if err := statefile.Write(path, []byte(c)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := os.Rename(path+".copy", path+".older"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Rename(path+".older", path+".copy"); err != nil {
		t.Fatal(err)
	}
	if n, _, err := read(path); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	if n, _, err := read(path); n != 2 || err != nil {
		t.Errorf("what was read before is forgotten: %d, %v", n, err)
	}
}
