package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func (h *Host) disk() string { return filepath.Join(h.dir, "disk") }

// filler takes up the room on a host's disk, out of sight of the host.
func (h *Host) filler() string { return filepath.Join(h.disk(), "filler") }

func (h *Host) makeDisk() error {
	if size := h.lab.state.StateSize; size > 0 {
		// It outlives the host's own mounts, which end with its power.
		if err := syscall.Mount("evenkeel-lab", h.disk(), "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size)); err != nil {
			return fmt.Errorf("mount its disk: %w", err)
		}
	}
	return os.Mkdir(h.State(), 0o755)
}

func (h *Host) removeDisk() error {
	if h.lab.state.StateSize == 0 {
		return nil
	}
	err := syscall.Unmount(h.disk(), syscall.MNT_DETACH)
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, os.ErrNotExist) { // not mounted, never made
		return nil
	}
	return fmt.Errorf("unmount the disk of host %s: %w", h.Name, err)
}

// FillDisk takes all room that is left on the host's disk: a program that writes to
// /var/lib/evenkeel gets the error that no space is left. Only where Options.StateSize is set. What
// is freed on the disk afterwards can be used again, until the next FillDisk.
func (h *Host) FillDisk() error {
	if h.lab.state.StateSize == 0 {
		return fmt.Errorf("fill the disk of host %s: it is this machine's", h.Name)
	}
	f, err := os.OpenFile(h.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk of host %s: %w", h.Name, err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); ; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			if len(chunk) == 1 {
				return nil
			}
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			return fmt.Errorf("fill the disk of host %s: %w", h.Name, err)
		}
	}
}

// FreeDisk gives back what FillDisk took.
func (h *Host) FreeDisk() error {
	if err := os.Remove(h.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("free the disk of host %s: %w", h.Name, err)
	}
	return nil
}
