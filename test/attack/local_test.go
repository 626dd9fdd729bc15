package attack

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// vcctl runs the command line with a clean environment, and returns what it says and its status.
func vcctl(t *testing.T, c *cluster, env []string, args ...string) (string, int) {
	t.Helper()
	path, err := program("vcctl")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaitMax/3)
	defer cancel()
	// 4 GiB of addresses: what would take all of this machine's memory fails instead.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 4194304; exec "$0" "$@"`, path}, args...)...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("vcctl %v did not end within %s", args, awaitMax/3)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// admin is the environment of a client with the admin token.
func (c *cluster) admin(s *server) []string {
	return []string{"EVENKEEL_ADDRESS=" + s.address, "EVENKEEL_CACERT=" + c.ca, "EVENKEEL_TOKEN=" + c.token}
}

// TestSecretFiles: only the owner can open what is below a data directory, and every socket.
func TestSecretFiles(t *testing.T) {
	c := reuse(t)
	if said, status := vcctl(t, c, c.admin(c.servers[0]), "cluster", "snapshot", "save", filepath.Join(c.dir, "s1", "data", "by-hand.snap")); status != 0 {
		t.Logf("a snapshot: %d %s", status, said)
	}
	y, closed := &tally{}, map[string]bool{}
	for _, s := range c.all() {
		err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if dir := filepath.Dir(path); closed[dir] { // no other user gets here, whatever the mode is
				closed[path] = d.IsDir()
				y.add(false, true, "")
				return nil
			}
			closed[path] = d.IsDir() && info.Mode().Perm()&0o077 == 0
			// The directory itself may be entered (QEMU's user reads disks below it); what is in it guards itself.
			open := info.Mode().Perm()&0o077 != 0
			if path == s.dir || d.IsDir() {
				open = info.Mode().Perm()&0o066 != 0 // may not be listed or written
			}
			public := !d.IsDir() && (strings.HasSuffix(path, ".pem") || strings.HasSuffix(path, "revoked.json")) && info.Mode().Perm()&0o022 == 0 // certificates are no secret
			y.add(open && !public, true, "%s has mode %v", path, info.Mode())
			if !d.IsDir() && strings.HasSuffix(path, ".pem") {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				y.add(open && bytes.Contains(b, []byte("PRIVATE KEY")), true, "%s holds a key and has mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if s.socket == "" {
			continue
		}
		info, err := os.Stat(s.socket)
		if err != nil {
			t.Error(err)
			continue
		}
		y.add(info.Mode().Perm()&0o077 != 0, true, "%s has mode %v", s.socket, info.Mode())
	}
	y.report(t, "files of servers")
	if y.tried < 30 {
		t.Errorf("%d files were found", y.tried)
	}
}

// TestNoSecretsInLogs: no token, secret or key stands in what servers log at the most detailed level, or in their arguments.
func TestNoSecretsInLogs(t *testing.T) {
	c := reuse(t)
	for _, s := range c.all() {
		said, err := os.ReadFile(s.log)
		if err != nil {
			t.Fatal(err)
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for what, secret := range map[string]string{"the admin token": c.token, "the token of dev": c.devTok, "its secret part": c.token[strings.LastIndex(c.token, ".")+1:], "a key": "PRIVATE KEY"} {
			if strings.Contains(string(said), secret) || strings.Contains(string(args), secret) {
				t.Errorf("%s: %s stands in the log or the arguments", s.name, what)
			}
		}
		if len(said) == 0 {
			t.Errorf("%s logs nothing", s.name)
		}
	}
}

// laughs is YAML whose aliases grow to gigabytes.
func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return b.String()
}

func TestYAMLBombs(t *testing.T) {
	c := reuse(t)
	file := filepath.Join(t.TempDir(), "bomb.yaml")
	if err := os.WriteFile(file, []byte(laughs()+"name: *a11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".config", "evenkeel"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".config", "evenkeel", "config.yaml"), []byte(laughs()+"address: *a11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, run := range map[string]func() (string, int){
		"a VC file": func() (string, int) {
			return vcctl(t, c, c.admin(c.servers[0]), "vc", "create", "--file", file, "--dry-run")
		},
		"vcctl's configuration": func() (string, int) { return vcctl(t, c, []string{"HOME=" + home}, "vm", "list") },
	} {
		begun := time.Now()
		said, status := run()
		t.Logf("%s: %d in %s: %.150q", what, status, time.Since(begun).Round(time.Millisecond), said)
		if status == 0 || time.Since(begun) > awaitMax/4 || strings.Contains(said, "out of memory") {
			t.Errorf("%s: status %d after %s", what, status, time.Since(begun))
		}
		if strings.Contains(said, "No such option") || strings.Contains(said, "flag provided but not defined") {
			t.Errorf("%s was not even read: %s", what, said)
		}
	}
}

// TestNoTokenInTheClear: vcctl sends no token to another machine without TLS, nor to a server that it cannot verify.
func TestNoTokenInTheClear(t *testing.T) {
	c := reuse(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // at the end
	heard := make(chan []byte, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(heard)
				return
			}
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			b := make([]byte, 64<<10)
			n, _ := conn.Read(b)
			heard <- b[:n]
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for what, env := range map[string][]string{
		"http:// to another machine": {"EVENKEEL_ADDRESS=http://192.0.2.1:" + port},
		"http:// to a name":          {"EVENKEEL_ADDRESS=http://localhost.localdomain.example:" + port},
		"https:// to a listener":     {"EVENKEEL_ADDRESS=https://127.0.0.1:" + port, "EVENKEEL_CACERT=" + c.ca},
		"dev's server, cluster's CA": {"EVENKEEL_ADDRESS=" + c.dev.address, "EVENKEEL_CACERT=" + c.ca},
		"a server, no CA":            {"EVENKEEL_ADDRESS=" + c.servers[0].address},
	} {
		said, status := vcctl(t, c, append(env, "EVENKEEL_TOKEN="+c.token), "vm", "list")
		if status == 0 || strings.Contains(said, c.token) {
			t.Errorf("%s: %d %s", what, status, said)
		}
	}
	_ = l.Close()
	for b := range heard {
		if bytes.Contains(b, []byte(c.token)) || bytes.Contains(b, []byte("Authorization")) {
			t.Errorf("sent in the clear: %q", b)
		}
	}
}
