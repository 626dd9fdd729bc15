package fence

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/test/patience"
)

const password = `p'a"s$s\wörd&7`

// agents puts the test's agents where a Runner finds them, as an administrator would.
func agents(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	names, err := filepath.Glob("testdata/fence_*")
	if err != nil || len(names) == 0 {
		t.Fatal("no agents", err)
	}
	for _, from := range names {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runner waits as long as a loaded machine may need, and polls at once.
func runner(t *testing.T, verify time.Duration) *Runner {
	t.Helper()
	return New(Options{Dirs: []string{filepath.Join(t.TempDir(), "none"), agents(t)}, Verify: verify, Poll: time.Millisecond})
}

// secretFile writes a secret into a file of that mode.
func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// fileHost is a host whose power is a file.
func fileHost(t *testing.T) (state string, d Device) {
	t.Helper()
	state = filepath.Join(t.TempDir(), "power")
	if err := os.WriteFile(state, []byte("on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return state, Device{Agent: "fence_file", Options: map[string]string{"state": state}}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestFence(t *testing.T) {
	state, d := fileHost(t)
	d.PasswordFile = secretFile(t, password+"\n", 0o600)
	d.Options["lag"] = "2"
	r := runner(t, time.Minute)
	before := time.Now()
	proof, err := r.Fence(t.Context(), "h1", []Level{{d}})
	if err != nil {
		t.Fatal(err)
	}
	if proof.Level != 1 || len(proof.Agents) != 1 || proof.Agents[0] != "fence_file" || proof.At.Before(before) || proof.Output != "Status: off" {
		t.Errorf("proof %+v", proof)
	}
	if got := read(t, state); got != "off" {
		t.Errorf("power %s", got)
	}
	const want = "off with password\nstatus with password\nstatus with password\nstatus with password"
	if got := read(t, state+".log"); got != want {
		t.Errorf("the agent was asked for\n%s\nwant off, and then status until it says off:\n%s", got, want)
	}

	// Test looks and changes nothing; PowerOn undoes it.
	all, err := r.Test(t.Context(), "h1", []Level{{d}})
	if err != nil || len(all) != 1 || all[0].Power != PowerOff || all[0].Output != "Status: off" {
		t.Errorf("Test = %+v, %v", all, err)
	}
	if err := r.PowerOn(t.Context(), "h1", []Level{{d}}); err != nil {
		t.Error(err)
	}
	all, err = r.Test(t.Context(), "h1", []Level{{d}})
	if err != nil || len(all) != 1 || all[0].Power != PowerOn {
		t.Errorf("Test = %+v, %v", all, err)
	}
	if got := read(t, state); got != "on" {
		t.Errorf("power %s", got)
	}
}

// TestNoProof: agents that do anything but switch off and then find the host off.
func TestNoProof(t *testing.T) {
	tests := []struct{ agent, want string }{
		{"fence_lie", "says that the power is on"},
		{"fence_crash", "it was killed"},
		{"fence_broken", "off failed with status 2"},
		{"fence_fail", "Unable to connect"},
		{"fence_flood", "off failed with status 1"},
		{"fence_hang", "no answer to off within its time"},
		{"fence_absent", "no program fence_absent"},
	}
	for _, tt := range tests {
		t.Run(tt.agent, func(t *testing.T) {
			state, d := fileHost(t)
			d.Agent, d.PasswordFile = tt.agent, secretFile(t, password, 0o400)
			d.Timeout = time.Minute
			if tt.agent == "fence_hang" {
				d.Timeout = time.Second
			}
			proof, err := runner(t, 300*time.Millisecond).Fence(t.Context(), "h1", []Level{{d}})
			// On a machine that stood still meanwhile not even the first question had its answer.
			for verify := time.Second; verify < time.Minute && err != nil && strings.Contains(err.Error(), "no answer to status"); verify *= 4 {
				proof, err = runner(t, verify).Fence(t.Context(), "h1", []Level{{d}})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "host h1: nothing is proved") {
				t.Errorf("Fence = %+v, %v; want an error with %q", proof, err, tt.want)
			}
			if proof.Level != 0 || !proof.At.IsZero() {
				t.Errorf("proof %+v beside an error", proof)
			}
			if err != nil && leaks(err.Error()) {
				t.Errorf("the password is in the error %q", err)
			}
			if tt.agent == "fence_hang" {
				for _, pid := range strings.Fields(read(t, state+".pids")) {
					gone(t, pid)
				}
			}
		})
	}
}

// gone waits until a process that was killed is no more, or is a zombie of the process that inherited it.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	err = patience.Until(t.Context(), patience.Stall, "process "+pid+" of a hung agent ends", func() any { return string(text) }, func() bool {
		var err error
		text, err = os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	})
	if err != nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
		t.Fatal(err)
	}
}

// TestOrphan: an agent that leaves a child behind does not keep its answer from being taken.
func TestOrphan(t *testing.T) {
	if _, err := runner(t, time.Minute).Fence(t.Context(), "h1", []Level{{{Agent: "fence_orphan"}}}); err != nil {
		t.Error(err)
	}
}

// TestLevels: the next level is tried when one fails, and all of a level must be off.
func TestLevels(t *testing.T) {
	fail, lie := Device{Agent: "fence_fail"}, Device{Agent: "fence_lie"}
	_, a := fileHost(t)
	stateB, b := fileHost(t)
	b.Options["lag"] = "1"
	r := runner(t, patience.Within(patience.Stall))
	proof, err := r.Fence(t.Context(), "h1", []Level{{fail}, {a, b}})
	if err != nil || proof.Level != 2 || len(proof.Agents) != 2 || proof.Output != "Status: off\nStatus: off" {
		t.Errorf("Fence = %+v, %v; want proof by both devices of level 2", proof, err)
	}
	if got := read(t, a.Options["state"]+".log"); got != "off\nstatus\nstatus" {
		t.Errorf("the device that was off first was asked for %q; want to be asked again after the other one said on", got)
	}
	if err := r.PowerOn(t.Context(), "h1", []Level{{fail}, {a, b}}); err == nil || !strings.Contains(err.Error(), "level 1") {
		t.Errorf("PowerOn with a failing device: %v", err)
	}
	if got := read(t, stateB); got != "on" {
		t.Errorf("power of the second outlet %s after PowerOn: the failing device kept it off", got)
	}

	// One supply off and the other on is a host that runs.
	short := runner(t, 200*time.Millisecond)
	if proof, err := short.Fence(t.Context(), "h1", []Level{{a, lie}, {fail}}); err == nil ||
		!strings.Contains(err.Error(), "level 1: ") || !strings.Contains(err.Error(), "level 2: ") {
		t.Errorf("Fence = %+v, %v; want an error that names both levels", proof, err)
	}
	all, err := short.Test(t.Context(), "h1", []Level{{a, lie}, {fail}})
	if err == nil || len(all) != 3 || all[0].Power != PowerOff || all[1].Power != PowerOn || all[2].Power != PowerUnknown || all[2].Err == nil || all[2].Level != 2 {
		t.Errorf("Test = %+v, %v", all, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, d := fileHost(t)
	if proof, err := runner(t, time.Minute).Fence(ctx, "h1", []Level{{d}, {d}}); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "level 2") {
		t.Errorf("Fence = %+v, %v", proof, err)
	}
}

// leaks says whether the password shows in some form.
func leaks(text string) bool {
	for _, form := range []string{password, `p'"'"'a`, `p'a`, "w\\u", "wörd", "w%C3%B6rd", "cCdhInMkc1x3w7ZyZCY3", "YW5uOnAnYSJzJHNcd8O2cmQmNw"} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// TestSecretsStayIn: not in argv, not in the environment, not in output, logs or errors.
func TestSecretsStayIn(t *testing.T) {
	t.Setenv("EVENKEEL_TOKEN", "of-the-daemon")
	var logged strings.Builder
	r := New(Options{Dirs: []string{agents(t)}, Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	d := Device{Agent: "fence_tell", Options: map[string]string{"username": "ann"}, PasswordFile: secretFile(t, password+"\r\n", 0o600),
		SecretFiles: map[string]string{"snmp_priv_passwd": secretFile(t, "second secret", 0o600)}}
	proof, err := r.Fence(t.Context(), "h1", []Level{{d}})
	if err != nil {
		t.Fatal(err)
	}
	out := proof.Output
	for _, want := range []string{"arguments: \n", "action=status", "username=ann", "password=" + hidden, "snmp_priv_passwd=" + hidden, "ipmitool -P '" + hidden + "'", "Basic " + hidden} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output of the agent:\n%s", want, out)
		}
	}
	if leaks(out) || strings.Contains(out, "second secret") {
		t.Errorf("a secret is in the output:\n%s", out)
	}
	if strings.Contains(out, "of-the-daemon") {
		t.Error("the agent has the daemon's environment")
	}
	if leaks(logged.String()) || !strings.Contains(logged.String(), "fence_tell") {
		t.Errorf("log: %s", logged.String())
	}
}

func TestSecretFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		path := secretFile(t, "x", 0o600)
		if err := os.Chown(path, 12345, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "user 12345") {
			t.Errorf("file of another user: %v", err)
		}
	}
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"good", secretFile(t, "s e c", 0o600), ""},
		{"read only", secretFile(t, "sec\n", 0o400), ""},
		{"others may read", secretFile(t, "sec", 0o604), "mode 0604"},
		{"the group may read", secretFile(t, "sec", 0o640), "mode 0640"},
		{"empty", secretFile(t, "\n", 0o600), "empty"},
		{"two lines", secretFile(t, "sec\naction=on\n", 0o600), "line break"},
		{"blank at the end", secretFile(t, "sec \n", 0o600), "blank"},
		{"in quotes", secretFile(t, `"sec"`, 0o600), "quotes"},
		{"too long", secretFile(t, strings.Repeat("s", maxValue+1), 0o600), "longer"},
		{"a folder", dir, "not a regular file"},
		{"a pipe", fifo, "not a regular file"},
		{"not there", filepath.Join(dir, "none"), "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readSecret(tt.path)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "sec\n")) {
				t.Errorf("readSecret = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
