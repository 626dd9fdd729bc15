package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The mains of a lab are a named pipe. A host's first process reads it, and ends at its
// end: when no process is left that has it open for writing. That is the process which
// started the lab; in a lab that stays, the hosts themselves.

func mainsOf(dir string) string { return filepath.Join(dir, "mains") }

func makeMains(dir string) (*os.File, error) {
	if err := syscall.Mkfifo(mainsOf(dir), 0o600); err != nil {
		return nil, fmt.Errorf("make %s: %w", mainsOf(dir), err)
	}
	return os.OpenFile(mainsOf(dir), os.O_RDWR, 0)
}

// plug is the standard input of a host's first process.
func (l *Lab) plug() (*os.File, error) {
	how := os.O_RDONLY | syscall.O_NONBLOCK // to open, also where the lab's owner is gone; the host then ends at once
	if l.state.Stay {
		how = os.O_RDWR
	}
	f, err := os.OpenFile(mainsOf(l.dir), how, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(int(f.Fd()), false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockSwitch keeps others, in this process or not, from the host's power switch.
func (h *Host) lockSwitch() (func(), error) {
	return lock(h.dir + ".switch")
}

// PowerOn starts the host with its daemon. A host that is up is left as it is.
//
// The host finds its disk as it was: /var/lib/evenkeel, /etc/evenkeel and libvirt's
// files. Its /run is empty, its network is new, it has a boot id of its own and,
// where the kernel has time namespaces, a CLOCK_BOOTTIME that begins at 0.
// A cable that was pulled still is.
func (h *Host) PowerOn(ctx context.Context) error {
	unlock, err := h.lockSwitch()
	if err != nil {
		return err
	}
	defer unlock()
	if h.Up() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(h.lab.dir, "closed")); err == nil {
		return fmt.Errorf("start host %s: the lab is being taken down", h.Name)
	}
	if err := h.powerOn(ctx); err != nil {
		return fmt.Errorf("start host %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) powerOn(ctx context.Context) error {
	if err := h.configure(); err != nil {
		return err
	}
	if err := h.wire(); err != nil {
		return err
	}
	dirs := h.lab.cgroups(h.Name)
	if err := makeCgroups(dirs); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.dir, "cgroups"), []byte(strings.Join(dirs, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(h.lab.dir, "host.sh"), "boot", h.dir, h.Name, h.netns(), h.lab.state.QEMU)
	cmd.Env = h.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C in a terminal is for the test, which takes the lab down
	logFile, err := os.Create(filepath.Join(h.dir, "boot.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	mains, err := h.lab.plug()
	if err != nil {
		return err
	}
	cmd.Stdin = mains
	err = cmd.Start()
	_ = mains.Close()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = eventually(patience, func() error {
		select {
		case err := <-ended:
			ended <- err
			return nil
		default:
		}
		_, err := os.Stat(filepath.Join(h.Run(), "ready"))
		return errors.Join(err, ctx.Err())
	})
	var first process
	if err == nil {
		first, err = childOf(cmd.Process.Pid)
	}
	if err != nil {
		output, _ := os.ReadFile(filepath.Join(h.dir, "boot.log"))
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	text, err := json.Marshal(first)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.dir, "first.json"), text, 0o644); err != nil {
		return err
	}
	return h.StartDaemon(ctx)
}

// PowerOff is a power failure: the network goes, and every process of the host is killed at once,
// without a message to any other host. When it returns, all are gone. PowerOn starts the host
// again.
func (h *Host) PowerOff() error {
	unlock, err := h.lockSwitch()
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.powerOff(); err != nil {
		return fmt.Errorf("power off host %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) powerOff() error {
	// First the network: sockets of processes that are killed would close their connections. The cable
	// itself is taken away later, as that takes the kernel a while where connections are open.
	if h.wired() {
		if err := h.setCable("down"); err != nil && h.wired() { // else the kernel has just taken it away: the power was off
			return err
		}
	}
	dirs := h.lab.cgroups(h.Name)
	killAll(dirs)
	_ = freeze(dirs, false) // a frozen process takes no signal on cgroup v1 until it is thawed
	if first, up := h.first(); up {
		if err := errors.Join(first.kill(syscall.SIGKILL), first.await(patience)); err != nil {
			return err
		}
	}
	killAll(dirs) // what has just entered the host
	if _, err := h.endRedirect(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(h.dir, "first.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return removeNetns(h.netns())
}

// killAll kills every process in the control groups and those below them.
func killAll(dirs []string) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil // the group is gone, or this is none
			}
			text, _ := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
					_ = syscall.Kill(pid, syscall.SIGKILL) // or it has ended
				}
			}
			return nil
		})
	}
}
