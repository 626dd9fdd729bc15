package hostcheck

import (
	"strings"
	"testing"
)

func TestLastLine(t *testing.T) {
	for console, want := range map[string]struct {
		last string
		up   bool
	}{
		"": {"", false},
		"[    0.0] Linux version 6.1\n[    0.1] x86/fpu: x87\n\n":                                                                       {"[    0.1] x86/fpu: x87", false},
		"[    1.4] VFS: Cannot open root device \"(null)\" or unknown-block(0,0): error -6\n[    1.5] Kernel panic\n":                   {`[    1.4] VFS: Cannot open root device "(null)" or unknown-block(0,0): error -6`, true},
		"[    1.4] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n[    1.4] Kernel Offset: disabled\n": {"[    1.4] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)", true},
		"[    0.2] Kernel panic - not syncing: no memory\n":                                                                             {"[    0.2] Kernel panic - not syncing: no memory", false},
	} {
		if last, up := lastLine(strings.NewReader(console)); last != want.last || up != want.up {
			t.Errorf("%q: %q, %v, want %+v", console, last, up, want)
		}
	}
}

// Without a kernel none is booted, and the answer says where one was looked for.
func TestBootWithoutKernel(t *testing.T) {
	if b := bootKernel(t.Context(), t.TempDir()); b.Kernel != "" || !strings.Contains(b.Why, "boot/vmlinuz-") || b.Seconds != 0 {
		t.Errorf("%+v", b)
	}
}
