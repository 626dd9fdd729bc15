package watchdog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Bounds of a time-out. A restart of vcd (systemd notices its end, waits, starts it; it reads its state and takes its place) must fit
// well into the shortest. The longest only catches mistakes of unit: every second of it is a second that VMs wait for their restart
// elsewhere.
const (
	MinTimeout = 10 * time.Second
	MaxTimeout = 10 * time.Minute
)

var (
	// ErrClosed: the watchdog was closed or disarmed before.
	ErrClosed = errors.New("watchdog is closed")
	// ErrUnsuitable: this watchdog can never guard the host as it is configured. Open disarmed it again.
	ErrUnsuitable = errors.New("watchdog is of no use here")
)

// Watchdog is an armed watchdog. It is for one goroutine at a time.
type Watchdog struct {
	path    string
	line    line // nil once closed
	timeout time.Duration
	name    string
}

// line is the device file or the connection through which a watchdog is petted.
type line interface {
	// Write hands the bytes to the watchdog within a bounded time.
	Write([]byte) (int, error)
	Close() error
}

const (
	pet        = 'p' // any byte but the next
	magicClose = 'V' // directly before the close: stop
)

// Check says what is wrong with a configured time-out; Open refuses the same.
func Check(timeout time.Duration) error {
	switch {
	case timeout < MinTimeout:
		return fmt.Errorf("watchdog time-out of %v is too short: a restart of vcd would reset the host; use at least %v", timeout, MinTimeout)
	case timeout > MaxTimeout:
		return fmt.Errorf("watchdog time-out of %v is longer than the %v that make sense: restarts elsewhere wait for it", timeout, MaxTimeout)
	case timeout%time.Second != 0:
		return fmt.Errorf("watchdog time-out of %v: use whole seconds", timeout)
	}
	return nil
}

// Open arms the watchdog at path, a character device or a unix socket, with this time-out. It takes over a watchdog that is
// armed already, by a process that is gone. Where Open fails with ErrUnsuitable, the watchdog is disarmed. After any other
// failure it is left as it is, perhaps counting: it may guard VMs for which a process before this one had armed it.
func Open(path string, timeout time.Duration) (*Watchdog, error) {
	w, err := open(path, timeout)
	if err != nil {
		return nil, fmt.Errorf("arm watchdog %s: %w", path, err)
	}
	return w, nil
}

func open(path string, timeout time.Duration) (*Watchdog, error) {
	if err := Check(timeout); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	w := &Watchdog{path: path}
	switch info.Mode() & (fs.ModeSocket | fs.ModeCharDevice) {
	case fs.ModeSocket:
		w.line, w.timeout, w.name, err = openSocket(path, timeout)
	case fs.ModeCharDevice:
		w.line, w.timeout, w.name, err = openDevice(path, timeout)
	default:
		return nil, errors.New("it is neither a character device nor a unix socket")
	}
	if err != nil {
		return nil, err
	}
	if w.timeout < MinTimeout || w.timeout > MaxTimeout {
		err := fmt.Errorf("%w: it took a time-out of %v when asked for %v; between %v and %v are needed", ErrUnsuitable, w.timeout, timeout, MinTimeout, MaxTimeout)
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

// Timeout is the time-out that the watchdog reports: it resets the host that long after the last pet.
func (w *Watchdog) Timeout() time.Duration { return w.timeout }

// Name is the watchdog's own name.
func (w *Watchdog) Name() string { return w.name }

// Pet starts the time-out again. After an error the watchdog may be counting or
// not: it must not be reported as armed until another Open succeeds.
func (w *Watchdog) Pet() error {
	if w.line == nil {
		return fmt.Errorf("pet watchdog %s: %w", w.path, ErrClosed)
	}
	if _, err := w.line.Write([]byte{pet}); err != nil {
		return fmt.Errorf("pet watchdog %s: %w", w.path, err)
	}
	return nil
}

// Stop stops the watchdog and closes it. The leader must know before: what the agent reported of this host has to be taken back
// first. A kernel that is set never to stop a watchdog (nowayout) goes on counting all the same, without saying so: on such a
// host the end of petting is a reset, and the watchdog is best left to another program that pets for as long as the machine is
// up.
func (w *Watchdog) Stop() error {
	if w.line == nil {
		return fmt.Errorf("disarm watchdog %s: %w", w.path, ErrClosed)
	}
	_, err := w.line.Write([]byte{magicClose})
	if err = errors.Join(err, w.close()); err != nil {
		return fmt.Errorf("disarm watchdog %s: %w", w.path, err)
	}
	return nil
}

// Close leaves the watchdog armed and counting. A second Close does nothing.
func (w *Watchdog) Close() error {
	if w.line == nil {
		return nil
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("close watchdog %s: %w", w.path, err)
	}
	return nil
}

func (w *Watchdog) close() error {
	err := w.line.Close()
	w.line = nil
	return err
}
