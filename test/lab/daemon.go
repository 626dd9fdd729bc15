package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is the host's libvirtd.
func (h *Host) daemon() (process, bool) { return h.service("libvirtd") }

// DaemonRuns says whether the host's libvirtd runs.
func (h *Host) DaemonRuns() bool {
	_, runs := h.daemon()
	return runs
}

// service is the host's daemon of that name.
func (h *Host) service(name string) (process, bool) {
	first, up := h.first()
	text, err := os.ReadFile(filepath.Join(h.Run(), name+".pid"))
	if err != nil || !up {
		return process{}, false
	}
	inner, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return process{}, false
	}
	return insider(first, inner, name)
}

// StartDaemon starts libvirtd, and returns when it takes connections.
func (h *Host) StartDaemon(ctx context.Context) error {
	if _, runs := h.daemon(); runs {
		return nil
	}
	if !h.Up() {
		return fmt.Errorf("start libvirtd on %s: the host has no power", h.Name)
	}
	if h.lab.state.Shared {
		if _, runs := h.service("virtlockd"); !runs {
			if out, err := h.Command(ctx, "virtlockd", "--daemon").CombinedOutput(); err != nil {
				return fmt.Errorf("start virtlockd on %s: %w: %s", h.Name, err, strings.TrimSpace(string(out)))
			}
		}
	}
	if out, err := h.Command(ctx, "libvirtd", "--daemon", "--listen").CombinedOutput(); err != nil {
		return fmt.Errorf("start libvirtd on %s: %w: %s", h.Name, err, strings.TrimSpace(string(out)))
	}
	err := eventually(patience, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, runs := h.daemon(); !runs {
			return errors.New("libvirtd has no process")
		}
		return h.answers()
	})
	if err != nil {
		output, _ := os.ReadFile(filepath.Join(h.dir, "log", "libvirtd.log"))
		return fmt.Errorf("start libvirtd on %s: %w: %s", h.Name, err, output[max(0, len(output)-2000):])
	}
	return nil
}

// answerTime is far more than a libvirtd that works takes for an answer on a busy machine.
const answerTime = time.Minute

// MendDaemon starts libvirtd again if it has crashed, or does not answer for answerTime, and logs what was wrong.
// libvirtd 9.0.0 did either when a client ended in the middle of its calls. In production systemd restarts it after a crash. A hang is
// for the operator, who sees that the host cannot be reached. VMs run on.
func (h *Host) MendDaemon(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	switch {
	case !h.DaemonRuns():
		t.Logf("libvirtd of %s has crashed, and is started again", h.Name)
	case !h.DaemonAnswers(ctx):
		t.Logf("libvirtd of %s has not answered for %s, and is started again; its threads: %s", h.Name, answerTime, h.DaemonThreads(ctx))
		if err := h.KillDaemon(); err != nil {
			t.Fatal(err)
		}
	default:
		return
	}
	if err := h.StartDaemon(ctx); err != nil {
		t.Fatal(err)
	}
}

// DaemonAnswers says whether libvirtd answers within answerTime what agents ask of it: the figures of all VMs, which it may owe
// while it still lists them.
func (h *Host) DaemonAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, ask := range [][]string{{"list", "--all"}, {"domstats", "--nowait", "--state", "--balloon", "--vcpu"}} {
		if exec.CommandContext(ctx, "virsh", append([]string{"-q", "-c", h.URI()}, ask...)...).Run() != nil && ctx.Err() != nil {
			return false
		}
	}
	return true
}

// DaemonThreads says where the threads of libvirtd stand: by gdb where there is one, and otherwise by the kernel.
func (h *Host) DaemonThreads(ctx context.Context) string {
	d, runs := h.daemon()
	if !runs {
		return "libvirtd does not run"
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "gdb", "-p", strconv.Itoa(d.PID), "-batch", "-ex", "thread apply all backtrace").Output(); err == nil {
		return string(out)
	}
	var all strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", d.PID))
	for _, task := range tasks {
		for _, file := range []string{"comm", "wchan", "syscall"} {
			text, _ := os.ReadFile(filepath.Join(task, file))
			fmt.Fprintf(&all, "%s ", strings.TrimSpace(string(text)))
		}
		all.WriteString("\n")
	}
	return all.String()
}

// StopDaemon stops libvirtd in good order. VMs run on.
func (h *Host) StopDaemon() error { return h.endDaemon(syscall.SIGTERM) }

// KillDaemon kills libvirtd. VMs run on.
func (h *Host) KillDaemon() error { return h.endDaemon(syscall.SIGKILL) }

// HangDaemon stops libvirtd where it is: it takes connections, and answers nothing.
func (h *Host) HangDaemon() error { return h.signalDaemon(syscall.SIGSTOP) }

// ResumeDaemon ends HangDaemon.
func (h *Host) ResumeDaemon() error { return h.signalDaemon(syscall.SIGCONT) }

func (h *Host) signalDaemon(sig syscall.Signal) error {
	d, runs := h.daemon()
	if !runs {
		return fmt.Errorf("libvirtd on %s does not run", h.Name)
	}
	return d.kill(sig)
}

func (h *Host) endDaemon(sig syscall.Signal) error {
	d, runs := h.daemon()
	if !runs {
		return nil
	}
	err := errors.Join(d.kill(sig), d.await(patience))
	if err == nil { // a program that it was about to start has its socket until then
		err = eventually(patience, h.refuses)
	}
	if err != nil {
		return fmt.Errorf("end libvirtd on %s: %w", h.Name, err)
	}
	return nil
}

// answers returns an error if the socket of libvirtd takes no connections.
func (h *Host) answers() error {
	c, err := net.Dial("unix", h.socket())
	if err != nil {
		return err
	}
	return c.Close()
}

// refuses returns an error if the socket of the libvirtd that ended takes connections, and no other was started.
func (h *Host) refuses() error {
	if h.answers() != nil || h.DaemonRuns() {
		return nil
	}
	return errors.New("its socket takes connections still")
}
