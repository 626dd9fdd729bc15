// Package scripts tests the scripts beside it whose answer others rely on.
package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// entry of a vulnerability database (OSV): the symbol of the standard library is vulnerable in all versions of Go.
const entry = `{"schema_version":"1.3.1","id":"GO-0000-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z",
"summary":"Made up for a test","details":"Made up.","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{"imports":[{"path":"PACKAGE","symbols":["SYMBOL"]}]}}],
"database_specific":{"url":"https://example.com/GO-0000-0001","review_status":"REVIEWED"}}`

// database with that one entry.
func database(t *testing.T, path, symbol string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":        `{"modified":"2026-01-01T00:00:00Z"}`,
		"index/modules.json":   `[{"path":"stdlib","vulns":[{"id":"GO-0000-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
		"index/vulns.json":     `[{"id":"GO-0000-0001","modified":"2026-01-01T00:00:00Z"}]`,
		"ID/GO-0000-0001.json": strings.NewReplacer("PACKAGE", path, "SYMBOL", symbol).Replace(entry),
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return "EVENKEEL_VULN_DB=file://" + dir
}

// TestVuln: what was found, what was not, a database out of reach and a check that failed are distinguished.
func TestVuln(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=tools.mod", "-o", os.DevNull, "golang.org/x/vuln/cmd/govulncheck")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("govulncheck cannot be built here: %v: %s", err, out)
	}
	const target = "./internal/secretfile"
	for _, c := range []struct {
		name, env, target string
		status            int
		says              string
	}{
		{"a function that is called", database(t, "path/filepath", "EvalSymlinks"), target, 3, "GO-0000-0001"},
		{"a function that is not called", database(t, "path/filepath", "Walk"), target, 0, "No vulnerabilities found"},
		{"no answer", "HTTPS_PROXY=http://127.0.0.1:1", target, 0, "NOT RUN: the vulnerability database cannot be reached"},
		{"no such copy", "EVENKEEL_VULN_DB=file:///nowhere/at/all", target, 1, "nowhere"},
		{"no such package", "HTTPS_PROXY=http://127.0.0.1:1", "./internal/nothing", 1, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "./vuln.sh", c.target)
			cmd.Env = append(os.Environ(), "NO_PROXY=", "no_proxy=", c.env)
			out, err := cmd.CombinedOutput()
			status := 0
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				status = failed.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if status != c.status || !strings.Contains(string(out), c.says) || c.status != 0 && strings.Contains(string(out), "NOT RUN") {
				t.Errorf("status %d, want %d and %q:\n%s", status, c.status, c.says, out)
			}
		})
	}
}
