package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// output runs a program in a host.
func output(t *testing.T, h *Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v: %s", name, h.Name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// leftovers are what is there of a lab, in the kernel and on disk.
func leftovers(l *Lab) []string {
	var found []string
	for _, pattern := range []string{"/run/netns/" + l.state.ID + "-*", cgroupRoot + "/" + l.state.ID, cgroupRoot + "/*/" + l.state.ID, l.dir} {
		paths, _ := filepath.Glob(pattern)
		found = append(found, paths...)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.dir) {
			found = append(found, line)
		}
	}
	return found
}

func TestLab(t *testing.T) {
	Real(t)
	l, err := Start(t.Context(), Options{Hosts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h1, h2 := l.Host(1), l.Host(2)
	ping := func() error {
		out, err := h1.Command(t.Context(), "busybox", "ping", "-c", "1", "-W", "1", h2.Address()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}

	t.Run("Separate", func(t *testing.T) {
		for _, h := range l.Hosts() {
			if got := output(t, h, "hostname"); got != h.Name {
				t.Errorf("%s calls itself %s", h.Name, got)
			}
			if got := output(t, h, "cat", "/proc/1/cgroup"); strings.Contains(got, l.state.ID) {
				t.Errorf("%s sees the cgroups outside: %s", h.Name, got)
			}
		}
		if a, b := output(t, h1, "ls", "-di", "/etc/libvirt"), output(t, h2, "ls", "-di", "/etc/libvirt"); a == b {
			t.Errorf("the hosts share /etc/libvirt: %s", a)
		}
	})
	t.Run("Cable", func(t *testing.T) {
		if err := ping(); err != nil {
			t.Fatalf("before: %v", err)
		}
		if err := h2.CutCable(true); err != nil {
			t.Fatal(err)
		}
		if ping() == nil {
			t.Error("the cable is cut, and the ping comes back")
		}
		if err := h2.CutCable(false); err != nil {
			t.Fatal(err)
		}
		if err := eventually(patience, ping); err != nil {
			t.Errorf("plugged in again: %v", err)
		}
	})
	t.Run("Daemon", func(t *testing.T) {
		for _, end := range []func() error{h1.StopDaemon, h1.KillDaemon} {
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if h1.answers() == nil {
				t.Error("the daemon was ended, and answers")
			}
			if err := h1.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := h1.answers(); err != nil {
				t.Errorf("the daemon was started: %v", err)
			}
		}
	})
	t.Run("LimitCPU", func(t *testing.T) {
		if err := h1.LimitCPU(0.2); err != nil {
			t.Fatal(err)
		}
		// A busy loop of a second on the clock: how much CPU did it get?
		out := output(t, h1, "bash", "-c", "end=$((SECONDS + 3)); while ((SECONDS < end)); do :; done; times | tail -n +1 | head -1")
		var m int
		var s float64
		if _, err := fmt.Sscanf(out, "%dm%fs", &m, &s); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if s > 1 { // of 2 to 3 seconds
			t.Errorf("limited to 0.2 cores, it used %v s", s)
		}
		if err := h1.LimitCPU(0); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Freeze", func(t *testing.T) {
		if err := h1.Freeze(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "virsh", "-c", h1.URI(), "version")
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err == nil {
			t.Error("the host is frozen, and its daemon answers")
		}
		if err := h1.Thaw(); err != nil {
			t.Fatal(err)
		}
		if err := exec.CommandContext(t.Context(), "virsh", "-c", h1.URI(), "version").Run(); err != nil {
			t.Errorf("thawed: %v", err)
		}
	})
	t.Run("Power", func(t *testing.T) {
		if err := h2.PowerOff(); err != nil {
			t.Fatal(err)
		}
		if h2.Up() || h2.answers() == nil {
			t.Error("the host has no power, and is up")
		}
		if err := h2.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := eventually(patience, ping); err != nil {
			t.Errorf("up again: %v", err)
		}
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(l); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A process that is killed takes its hosts with it, and the next lab clears
// up what is left.
func TestCrashedOwner(t *testing.T) {
	Real(t)
	const child = "EVENKEEL_LAB_CHILD"
	if os.Getenv(child) == "1" {
		l, err := Start(t.Context(), Options{Hosts: 2, Shared: true, StateSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Host(1).Launch("", "sleep", "inf")
		if err == nil {
			err = errors.Join(p.Pause(), l.Host(2).PowerOff())
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("lab=%s\n", l.Dir())
		select {} // until it is killed
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashedOwner$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	if _, err := fmt.Fscanf(out, "lab=%s\n", &dir); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, up := l.Host(1).first()
	if !up {
		t.Fatal("the child's host is not up")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := first.await(patience); err != nil {
		t.Errorf("the host outlives its owner: %v", err)
	}
	// The mains are gone with the owner: a process that turns a host on now finds it off again.
	if err := l.Host(2).PowerOn(t.Context()); err == nil {
		if first, up := l.Host(2).first(); up {
			if err := first.await(patience); err != nil {
				t.Errorf("a host was turned on without its owner: %v", err)
			}
		}
	}
	New(t, Options{})
	if left := leftovers(l); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
