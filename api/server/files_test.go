package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/secretfile"
)

func TestAdminToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.token")
	first, err := EnsureAdminToken(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(raw))
	if !strings.HasPrefix(token, tokenPrefix) || len(token) != len(tokenPrefix)+16+1+43 || HashToken(token) != first {
		t.Errorf("a token of %d characters", len(token))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, err := EnsureAdminToken(path); err != nil || again != first {
		t.Errorf("another token the second time, or %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureAdminToken(path); err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), token) {
		t.Errorf("a file that others may read: %v", err)
	}
	for _, content := range []string{"", "ekt_", "ekt_short", "word", token[:len(token)-1], "ekt_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", tokenPrefix + strings.Repeat("a", 43)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureAdminToken(path); err == nil {
			t.Errorf("took %q for a token", content)
		}
	}
	if _, err := EnsureAdminToken(filepath.Join(t.TempDir(), "no", "such", "dir")); err == nil {
		t.Error("made a token where there is no directory")
	}
}

// TestExposedFiles: a token or a key that another user could have put there is refused, and is not replaced either.
func TestExposedFiles(t *testing.T) {
	for _, name := range []string{"admin.token", "ca.key", "server.key"} {
		open := func(dir string) error {
			if name == "admin.token" {
				_, err := EnsureAdminToken(filepath.Join(dir, name))
				return err
			}
			_, err := EnsureCertificates(dir, "127.0.0.1:0")
			return err
		}
		cases := []struct {
			name  string
			spoil func(dir, path string) error
			root  bool // only root can do that
		}{
			{"a file that others may read", func(_, path string) error { return os.Chmod(path, 0o604) }, false},
			{"a directory that all may write", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, false},
			{"a file of another user", func(_, path string) error { return os.Chown(path, 65534, 65534) }, true},
			{"a directory of another user", func(dir, _ string) error { return os.Chown(dir, 65534, 65534) }, true},
		}
		for _, c := range cases {
			if c.root && os.Geteuid() != 0 {
				continue
			}
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			if err := open(dir); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir, path); err != nil {
				t.Fatal(err)
			}
			if err := open(dir); !errors.Is(err, secretfile.ErrExposed) {
				t.Errorf("%s: %s: %v", name, c.name, err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("%s: %s: the file has changed, %v", name, c.name, err)
			}
		}
	}
}

// TestAdminTokenRace: of many that start at once, all end with the token in the file.
func TestAdminTokenRace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.token")
	hashes := make([]TokenHash, 16)
	var wg sync.WaitGroup
	for i := range hashes {
		wg.Go(func() {
			var err error
			if hashes[i], err = EnsureAdminToken(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, h := range hashes {
		if h != hashes[0] {
			t.Fatal("two tokens were made")
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	clock := func() time.Time { return now }
	made := func() *Certificates {
		t.Helper()
		c, err := ensureCertificates(dir, "vcd.example:7480", clock)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := made()
	for name, mode := range map[string]fs.FileMode{"ca.pem": 0o644, "ca.key": 0o600, "server.pem": 0o644, "server.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	raw, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatal("ca.pem holds no certificate")
	}
	handshake := func(c *Certificates, name string, limit uint16) error {
		l, err := tls.Listen("tcp", "127.0.0.1:0", c.TLS())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // of this one connection
		go func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake() // the client says how it went
				_ = conn.Close()
			}
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS10, MaxVersion: limit, Time: clock})
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "vcd.example"} {
		if err := handshake(c, name, tls.VersionTLS13); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if handshake(c, "other.example", tls.VersionTLS13) == nil {
		t.Error("serves for a name that is not its own")
	}
	if handshake(c, "localhost", tls.VersionTLS11) == nil {
		t.Error("speaks TLS 1.1")
	}

	if again := made(); string(again.leaf.Certificate[0]) != string(c.leaf.Certificate[0]) || !again.ca.Equal(c.ca) {
		t.Error("new certificates at every start")
	}
	now = now.Add(leafLife - leafLeft + time.Minute) // close to the leaf's end: renewed while the server runs
	if err := handshake(c, "localhost", tls.VersionTLS13); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
	if c.leaf.Leaf.NotAfter.Sub(now) < leafLife-time.Hour {
		t.Errorf("not renewed: ends %s, now %s", c.leaf.Leaf.NotAfter, now)
	}
	other, err := ensureCertificates(dir, "10.1.2.3:7480", clock)
	if err != nil || other.leaf.Leaf.VerifyHostname("10.1.2.3") != nil || !other.ca.Equal(c.ca) {
		t.Errorf("another listen address: %v", err)
	}
	now = now.Add(caLife)
	if renewed := made(); renewed.ca.Equal(c.ca) {
		t.Error("a CA that has ended is kept")
	}

	if err := os.WriteFile(filepath.Join(dir, "server.pem"), []byte("spoilt"), 0o644); err != nil {
		t.Fatal(err)
	}
	made()
	if err := os.Chmod(filepath.Join(dir, "ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureCertificates(dir, "localhost:1", clock); err == nil || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("a key that others may read: %v", err)
	}
	if _, err := EnsureCertificates(t.TempDir(), "no port"); err == nil {
		t.Error("took a listen address without a port")
	}
}
