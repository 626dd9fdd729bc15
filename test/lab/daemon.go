package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// daemon is the host's libvirtd.
func (h *Host) daemon() (process, bool) { return h.service("libvirtd") }

// DaemonRuns says whether the host's libvirtd does.
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
		c, err := net.Dial("unix", h.socket())
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(h.dir, "log", "libvirtd.log"))
		return fmt.Errorf("start libvirtd on %s: %w: %s", h.Name, err, said[max(0, len(said)-2000):])
	}
	return nil
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
	if err := errors.Join(d.kill(sig), d.await(patience)); err != nil {
		return fmt.Errorf("end libvirtd on %s: %w", h.Name, err)
	}
	return nil
}
