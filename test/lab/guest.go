package lab

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Guest is the test guest that test/guest/build.sh makes.
type Guest struct{ Kernel, Initrd string }

// readyLine begins the line that the guest prints once it has booted.
const readyLine = "EVENKEEL-GUEST ready"

// Cmdline is the guest's kernel command line with these settings of its workload. Under emulation on a busy machine timer interrupts
// may come too late for the kernel's check of its timer at boot, which then ends the boot: no_timer_check leaves it out.
func (Guest) Cmdline(settings string) string {
	return strings.TrimSpace("console=ttyS0 quiet no_timer_check panic=-1 " + settings)
}

// FindGuest finds the test guest where EVENKEEL_GUEST says, or in build/guest
// of the repository.
func FindGuest() (Guest, error) {
	dir := os.Getenv("EVENKEEL_GUEST")
	if dir == "" {
		root, err := repository()
		if err != nil {
			return Guest{}, err
		}
		dir = filepath.Join(root, "build", "guest")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Guest{}, err
	}
	g := Guest{Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd.img")}
	for _, f := range []string{g.Kernel, g.Initrd} {
		if _, err := os.Stat(f); err != nil {
			return Guest{}, fmt.Errorf("test guest: %w: run make setup", err)
		}
	}
	return g, nil
}

// repository is the directory, at or above the present one, that holds go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("not inside the repository: set EVENKEEL_GUEST")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Real is where a test on real libvirt and QEMU begins. Without EVENKEEL_REAL=1 in the environment
// it skips the test. With it, the test fails if something that it needs is missing.
func Real(t testing.TB) Guest {
	t.Helper()
	if os.Getenv("EVENKEEL_REAL") != "1" {
		t.Skip("runs real libvirt and QEMU: set EVENKEEL_REAL=1")
	}
	g, err := FindGuest()
	if err == nil {
		err = ready()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// New starts a lab that lasts as long as the test. If the test fails, it shows the ends of what the
// hosts' programs printed.
func New(t testing.TB, opts Options) *Lab {
	t.Helper()
	l, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			l.ShowLogs(t)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// ShowLogs shows the last lines of each log in the hosts' directories.
func (l *Lab) ShowLogs(t testing.TB) {
	const last = 4000 // bytes
	logs, _ := filepath.Glob(filepath.Join(l.dir, "*", "programs", "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Logf("%s:\n%s", strings.TrimPrefix(path, l.dir+"/"), text[max(0, len(text)-last):])
	}
}

// bootLimit is how long a guest may take to boot under KVM: with a KVM that works it is
// a second or two, with one that emulates the guest kernel minutes.
const bootLimit = 10 * time.Second

// KVM says whether this machine's KVM really runs the test guest, by booting
// it: a /dev/kvm that is there can still be useless. The answer is kept among the
// temporary files for as long as machine, QEMU and guest stay the same.
func KVM(ctx context.Context, g Guest) (bool, error) {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false, nil // none, or none for us
	}
	_ = device.Close()
	qemu, err := find("qemu-system-x86_64")
	if err != nil {
		return false, fmt.Errorf("qemu-system-x86_64: %w: run make setup", err)
	}
	id := sha256.New()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	_, _ = id.Write(boot)
	for _, f := range []string{qemu, g.Kernel, g.Initrd} {
		info, err := os.Stat(f)
		if err != nil {
			return false, err
		}
		fmt.Fprintln(id, f, info.Size(), info.ModTime().UnixNano())
	}
	cache := filepath.Join(os.TempDir(), fmt.Sprintf("evenkeel-accel-%x", id.Sum(nil)[:8]))
	switch known, _ := os.ReadFile(cache); string(known) {
	case "kvm\n":
		return true, nil
	case "qemu\n":
		return false, nil
	}
	works, err := boots(ctx, qemu, g)
	if err != nil {
		return false, err
	}
	answer := "qemu\n"
	if works {
		answer = "kvm\n"
	}
	if err := os.WriteFile(cache+".new", []byte(answer), 0o644); err != nil {
		return works, err
	}
	return works, os.Rename(cache+".new", cache)
}

// boots says whether the guest boots under KVM within bootLimit.
func boots(ctx context.Context, qemu string, g Guest) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, qemu, "-accel", "kvm", "-machine", "q35", "-m", "128", "-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "stdio", "-kernel", g.Kernel, "-initrd", g.Initrd, "-append", g.Cmdline(""))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = strings.Contains(lines.Text(), readyLine)
	}
	cancel()
	_ = cmd.Wait() // killed, or it could not use /dev/kvm: in both cases what it printed is the answer
	return ready, ctx.Err()
}
