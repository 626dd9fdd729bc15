package watchdog

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Guard is the watchdog of this host as the agent uses it: armed and disarmed
// again and again, and found again when it was lost in between. It is for one
// goroutine at a time. No call takes longer than a few seconds.
type Guard struct {
	path    string
	timeout time.Duration
	w       *Watchdog     // nil while not held
	took    time.Duration // of the last Arm
}

// NewGuard takes the path of a device or a socket, and the time-out to ask for. It opens nothing.
func NewGuard(path string, timeout time.Duration) (*Guard, error) {
	if err := Check(timeout); err != nil {
		return nil, fmt.Errorf("watchdog %s: %w", path, err)
	}
	return &Guard{path: path, timeout: timeout}, nil
}

// String identifies one configuration of a watchdog: its path and time-out. ParseGuard reads it.
func (g *Guard) String() string { return g.path + " " + g.timeout.String() }

// ParseGuard makes the Guard from the text of its String: only a guard of the earlier configuration can pet and disarm a
// watchdog that was armed by it.
func ParseGuard(text string) (*Guard, error) {
	at := strings.LastIndexByte(text, ' ')
	if at < 0 {
		return nil, fmt.Errorf("watchdog %q: it is not a path and a time-out", text)
	}
	timeout, err := time.ParseDuration(text[at+1:])
	if err != nil {
		return nil, fmt.Errorf("watchdog %q: %w", text, err)
	}
	return NewGuard(text[:at], timeout)
}

// Arm makes the watchdog count, and returns the time-out that is in force.
// Armed already, by this process or one before it, it is petted.
func (g *Guard) Arm() (time.Duration, error) {
	if g.w != nil {
		if err := g.w.Pet(); err == nil {
			return g.took, nil
		}
		_ = g.drop()
	}
	w, err := Open(g.path, g.timeout)
	if err != nil {
		return 0, err
	}
	g.w, g.took = w, w.Timeout()
	return g.took, nil
}

// Pet starts the time-out again. A watchdog that could not be petted is opened
// again by the next call. After an error it must not be reported as armed until
// Arm or Pet succeeds.
func (g *Guard) Pet() error {
	if g.w == nil {
		if g.took == 0 {
			return fmt.Errorf("pet watchdog %s: %w", g.path, ErrClosed)
		}
		w, err := Open(g.path, g.timeout)
		if err != nil {
			return err
		}
		if w.Timeout() > g.took { // the leader counts with the other one
			err := fmt.Errorf("pet watchdog %s: opened again it took a time-out of %v, and before %v", g.path, w.Timeout(), g.took)
			return errors.Join(err, w.Close())
		}
		g.w = w
		return nil
	}
	if err := g.w.Pet(); err != nil {
		_ = g.drop() // it failed already
		return err
	}
	return nil
}

// Stop stops the watchdog. It opens it if it has to: a watchdog that was lost counts on.
func (g *Guard) Stop() error {
	if g.w == nil {
		w, err := Open(g.path, g.timeout)
		if err != nil {
			return fmt.Errorf("disarm: %w", err)
		}
		g.w = w
	}
	w := g.w
	g.w = nil
	if err := w.Stop(); err != nil {
		return err
	}
	g.took = 0
	return nil
}

// Close leaves the watchdog as it is: counting, if it was armed.
func (g *Guard) Close() error { return g.drop() }

func (g *Guard) drop() error {
	w := g.w
	g.w = nil
	if w == nil {
		return nil
	}
	return w.Close()
}
