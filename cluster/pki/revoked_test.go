package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRevokedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revoked.json")
	open := func() *RevokedFile {
		t.Helper()
		f, err := OpenRevoked(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(f *RevokedFile, at time.Time, want bool, more ...Revocation) {
		t.Helper()
		if news, err := f.Add(more, at); err != nil || news != want {
			t.Errorf("added %v: news %v, %v; want %v", more, news, err, want)
		}
	}
	f := open()
	a, b := Revocation{"0a", now.Add(time.Hour)}, Revocation{"0b", now.Add(2 * time.Hour)}
	add(f, now, false)
	add(f, now, true, b, a, a)
	add(f, now, false, a)
	add(f, now, false, Revocation{"0c", now}, Revocation{"", now.Add(time.Hour)}) // over, and none
	if !f.Has("0a") || !f.Has("0b") || f.Has("0c") || f.Has("") {
		t.Errorf("the list is %v", f.list)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	f = open()
	if !f.Has("0a") || !f.Has("0b") {
		t.Errorf("read again the list is %v", f.list)
	}
	add(f, now.Add(time.Hour), true, Revocation{"0d", now.Add(3 * time.Hour)}) // 0a has ended by itself
	if f = open(); f.Has("0a") || !f.Has("0b") || !f.Has("0d") {
		t.Errorf("an hour later the list is %v", f.list)
	}
	spoil := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("[{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil(path)
	if f = open(); f.Has("0a") || !f.Has("0d") {
		t.Errorf("the list's copy is %v", f.list)
	}
	spoil(path)
	spoil(path + ".copy")
	if _, err := OpenRevoked(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a list is taken for one: %v", err)
	}
}
