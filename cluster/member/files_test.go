package member

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"evenkeel/internal/secretfile"
)

// TestSecrets: keys that others could have read or put there are not used.
func TestSecrets(t *testing.T) {
	for _, name := range []string{caKeyFile, gossipKeyFile} {
		for what, spoil := range map[string]func(dir, path string) error{
			"":                        func(string, string) error { return nil },
			"others may read it":      func(_, path string) error { return os.Chmod(path, 0o644) },
			"all may write beside it": func(dir, _ string) error { return os.Chmod(dir, 0o777) },
		} {
			dir := t.TempDir()
			if _, err := readSecret(dir, name); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s that is not there: %v", name, err)
			}
			path := filepath.Join(dir, name)
			if err := writeSecret(path, []byte("key")); err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir, path); err != nil {
				t.Fatal(err)
			}
			_, err := readSecret(dir, name)
			if (what == "") != (err == nil) || what != "" && !errors.Is(err, secretfile.ErrExposed) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestFounding: a directory without a gossip key is of no cluster; one whose key is not safe is an error.
func TestFounding(t *testing.T) {
	dir := t.TempDir()
	if got, err := foundingOf(dir); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	path := filepath.Join(dir, gossipKeyFile)
	if err := writeSecret(path, newGossipKey()); err != nil {
		t.Fatal(err)
	}
	if got, err := foundingOf(dir); len(got) != 32 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := foundingOf(dir); got != "" || !errors.Is(err, secretfile.ErrExposed) {
		t.Errorf("%q, %v", got, err)
	}
}
