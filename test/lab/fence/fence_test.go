// Package fence tests cluster/fence on hosts that really lose their power:
// those of the lab, through the agent fence_lab.
package fence

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/fence"
	"evenkeel/test/lab"
)

// agentDir holds fence_lab as an administrator would install it.
func agentDir(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("fence_lab")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fence_lab"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPower switches one of two hosts off and on again.
func TestPower(t *testing.T) {
	lab.Real(t)
	l, err := lab.Start(t.Context(), lab.Options{Hosts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	labhost := filepath.Join(t.TempDir(), "labhost")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", labhost, "evenkeel/test/lab/cmd/labhost").CombinedOutput(); err != nil {
		t.Fatalf("build labhost: %v: %s", err, out)
	}
	secret := filepath.Join(t.TempDir(), "password")
	for _, path := range []string{secret, filepath.Join(l.Dir(), "fence-password")} {
		if err := os.WriteFile(path, []byte("only the BMC knows\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h1, h2 := l.Host(1), l.Host(2)
	device := fence.Device{Agent: "fence_lab", PasswordFile: secret, Options: map[string]string{"labhost": labhost, "lab": l.Dir(), "plug": h2.Name}}
	levels := []fence.Level{{device}}
	r := fence.New(fence.Options{Dirs: []string{agentDir(t)}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	all, err := r.Test(ctx, h2.Name, levels)
	if err != nil || len(all) != 1 || all[0].Power != fence.PowerOn || !h2.Up() {
		t.Fatalf("before: %+v, %v; up: %t", all, err, h2.Up())
	}

	wrong := device
	wrong.PasswordFile = filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong.PasswordFile, []byte("guess\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if proof, err := r.Fence(ctx, h2.Name, []fence.Level{{wrong}}); err == nil || !strings.Contains(err.Error(), "wrong password") || !h2.Up() {
		t.Fatalf("with a wrong password: %+v, %v; up: %t", proof, err, h2.Up())
	}

	proof, err := r.Fence(ctx, h2.Name, levels)
	if err != nil || proof.Output != "Status: OFF" {
		t.Fatalf("fence: %+v, %v", proof, err)
	}
	if h2.Up() || !h1.Up() {
		t.Fatalf("proof that %s is off; up: %t, the other host: %t", h2.Name, h2.Up(), h1.Up())
	}
	// Fencing a host that is off already is proof as well.
	if _, err := r.Fence(ctx, h2.Name, levels); err != nil {
		t.Errorf("fence again: %v", err)
	}
	if all, err := r.Test(ctx, h2.Name, levels); err != nil || all[0].Power != fence.PowerOff {
		t.Errorf("after: %+v, %v", all, err)
	}
	if err := r.PowerOn(ctx, h2.Name, levels); err != nil || !h2.Up() {
		t.Errorf("power on: %v; up: %t", err, h2.Up())
	}
}
