package hostcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootLimit is how long the boot of a kernel may take. With KVM it takes one to three seconds.
const bootLimit = time.Minute

// bootSlow is how long it takes only where KVM is itself emulated.
const bootSlow = 10 * time.Second

// Boot is what became of a kernel that was booted with KVM.
type Boot struct {
	Kernel  string  `json:"kernel,omitempty"`  // the file; "" if none was booted
	Seconds float64 `json:"seconds,omitempty"` // until it looked for its root file system
	Why     string  `json:"why,omitempty"`     // why none was booted, or why it did not come up
}

// bootKernel has QEMU boot the kernel that this machine runs, with KVM, 256 MiB and no disk, and waits until that misses its root file system.
// Nothing of it is left. A KVM that makes VMs may still run no kernel: docs/decisions/0006-booting-decides-kvm-or-emulation.md.
func bootKernel(ctx context.Context, root string) Boot {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Boot{Why: fmt.Sprintf("the kernel's release is not known: %v", err)}
	}
	release := unix.ByteSliceToString(u.Release[:])
	var tried []string
	for _, path := range []string{"boot/vmlinuz-" + release, "usr/lib/modules/" + release + "/vmlinuz", "lib/modules/" + release + "/vmlinuz"} {
		path = filepath.Join(root, path)
		if _, err := os.Stat(path); err == nil {
			ctx, cancel := context.WithTimeout(ctx, bootLimit)
			defer cancel()
			began := time.Now()
			if err := runKernel(ctx, path, "kvm", "host"); err != nil {
				return Boot{Kernel: path, Why: err.Error()}
			}
			return Boot{Kernel: path, Seconds: time.Since(began).Seconds()}
		}
		tried = append(tried, path)
	}
	return Boot{Why: "there is no " + strings.Join(tried, ", ")}
}

// runKernel runs a kernel until it misses its root file system, which is as far as it comes alone.
func runKernel(ctx context.Context, kernel, accelerator, cpu string) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", accelerator, "-machine", "q35", "-cpu", cpu, "-m", "256", "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	last, up := lastLine(out)
	if up {
		_ = cmd.Process.Kill() // it has nothing more to say
	}
	err = cmd.Wait()
	switch {
	case up:
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it was not up within %s", bootLimit)
	case err == nil:
		err = errors.New("QEMU ended before it was up")
	}
	if text := strings.TrimSpace(said.String()); text != "" {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	return fmt.Errorf("%w; it printed last: %.200q", err, last)
}

// lastLine reads a kernel's console until that misses its root file system, or to the end.
func lastLine(console io.Reader) (last string, up bool) {
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.Contains(lines.Text(), "VFS: Cannot open root device") || strings.Contains(lines.Text(), "VFS: Unable to mount root fs") {
			return lines.Text(), true
		}
		if text := strings.TrimSpace(lines.Text()); text != "" {
			last = text
		}
	}
	return last, false
}
