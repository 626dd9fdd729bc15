package watchdog

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernel is the part of the watchdog API that is spoken by ioctl
// (Documentation/watchdog/watchdog-api.rst in the kernel's source).
type kernel interface {
	// support says what the driver can do, as WDIOF_ bits, and its name.
	support() (options uint32, identity string, err error)
	setTimeout(seconds int) error
	getTimeout() (seconds int, err error)
}

// openDevice arms a watchdog device: opening it is what arms it.
func openDevice(path string, timeout time.Duration) (line, time.Duration, string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // closed at exec: a child must not keep it open
	if errors.Is(err, unix.EBUSY) {
		return nil, 0, "", fmt.Errorf("%w: another program holds it (RuntimeWatchdogSec of systemd, or a watchdog daemon)", err)
	}
	if err != nil {
		return nil, 0, "", err
	}
	took, name, err := setUp(ioctls{f}, timeout)
	if err != nil {
		var stop error
		if errors.Is(err, ErrUnsuitable) {
			_, stop = f.Write([]byte{magicClose}) // being opened has armed it
		}
		return nil, 0, "", errors.Join(err, stop, f.Close())
	}
	return f, took, name, nil
}

// setUp checks what the driver can do and gives it the time-out.
func setUp(k kernel, timeout time.Duration) (took time.Duration, name string, err error) {
	options, name, err := k.support()
	if err != nil {
		return 0, "", fmt.Errorf("ask what it supports: %w", err)
	}
	// Without magic close the kernel stops the watchdog at every close of the file, so also when this process crashes.
	if options&unix.WDIOF_MAGICCLOSE == 0 {
		return 0, "", fmt.Errorf("%w: its driver (%s) has no magic close and would stop guarding the host when vcd crashes", ErrUnsuitable, name)
	}
	if options&unix.WDIOF_ALARMONLY != 0 {
		return 0, "", fmt.Errorf("%w: its driver (%s) raises an alarm only and does not reset the host", ErrUnsuitable, name)
	}
	// A driver whose time-out is fixed says so here or in its answer to the call; what it has is what counts.
	if options&unix.WDIOF_SETTIMEOUT != 0 {
		if err := k.setTimeout(int(timeout / time.Second)); err != nil {
			return 0, "", fmt.Errorf("%w: its driver (%s) does not take a time-out of %v: %w", ErrUnsuitable, name, timeout, err)
		}
	}
	seconds, err := k.getTimeout()
	if err != nil {
		return 0, "", fmt.Errorf("ask its driver (%s) for the time-out it took: %w", name, err)
	}
	return time.Duration(seconds) * time.Second, name, nil
}

// ioctls speaks to a real device.
type ioctls struct{ f *os.File }

func (d ioctls) support() (uint32, string, error) {
	info, err := unix.IoctlGetWatchdogInfo(int(d.f.Fd()))
	if err != nil {
		return 0, "", err
	}
	return info.Options, identity(info.Identity[:]), nil
}

func (d ioctls) setTimeout(seconds int) error {
	return unix.IoctlSetPointerInt(int(d.f.Fd()), unix.WDIOC_SETTIMEOUT, seconds)
}

func (d ioctls) getTimeout() (int, error) {
	seconds, err := unix.IoctlGetUint32(int(d.f.Fd()), unix.WDIOC_GETTIMEOUT)
	return int(seconds), err
}

// identity is a driver's name, which ends at the first zero byte.
func identity(field []byte) string {
	name, _, _ := strings.Cut(string(field), "\x00")
	return name
}
