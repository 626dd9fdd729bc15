package machines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"evenkeel/test/patience"
)

// waited are, for each thread of a process, the nanoseconds in which it was ready and had no CPU.
func waited(pid int) (map[string]time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, os.ErrProcessDone)
	}
	all := map[string]time.Duration{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(text)) // run time, waiting time, time slices: Documentation/scheduler/sched-stats.rst
		if len(fields) < 2 {
			return nil, fmt.Errorf("%s is %q", f, text)
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all[f] = time.Duration(ns)
	}
	return all, nil
}

// ownTime is how much of a time the machine could run: the time less the longest that any one of its threads waited for a
// CPU meanwhile.
func ownTime(passed time.Duration, before, after map[string]time.Duration) time.Duration {
	var longest time.Duration
	for thread, w := range after {
		if b, was := before[thread]; was {
			longest = max(longest, w-b)
		}
	}
	return max(passed-longest, 0)
}

// poll is the time between two polls of a condition.
const poll = 100 * time.Millisecond

// StallError says that nothing changed for too long, in the machine's own time.
type StallError struct {
	What   string
	Limit  time.Duration // in the machine's own time
	Waited time.Duration
	Last   string
}

func (e *StallError) Error() string {
	return fmt.Sprintf("%s: after %s nothing had changed for %s of the machine's own time; last seen: %q", e.What, e.Waited.Round(time.Second), e.Limit, e.Last)
}

// After silentAfter without progress, in a wait that may take longer than a boot, sshd is asked every probeEvery; after maxSilent times without a
// greeting it is looked into whether the machine stands still.
const (
	silentAfter = time.Minute
	probeEvery  = 15 * time.Second
	maxSilent   = 3
)

// Until polls until done says so. It fails when what progress returns stayed the same for limit, counted in the machine's own
// time, or when the machine has ended, was reset by the emulator, or answers no more.
func (m *Machine) Until(ctx context.Context, limit time.Duration, what string, progress func() string, done func() bool) error {
	limit = patience.Within(limit)
	began, at, idle, last := time.Now(), time.Now(), time.Duration(0), progress()
	before, err := waited(m.pid())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	probed, silent := silentAfter, 0
	for !done() {
		select {
		case <-time.After(poll):
		case <-m.ended:
			return fmt.Errorf("%s: QEMU ended: %w: %s", what, m.err, m.output())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if m.monitor != nil && m.lost() {
			return fmt.Errorf("%s: %w", what, errEmulator)
		}
		after, err := waited(m.pid())
		if err != nil {
			continue // it ends: the next pass says so
		}
		now := time.Now()
		idle += ownTime(now.Sub(at), before, after)
		at, before = now, after
		if p := progress(); p != last {
			last, idle, probed, silent = p, 0, silentAfter, 0
		}
		if limit > patience.Within(bootStall) && idle > probed {
			probed = idle + probeEvery
			if silent++; m.answers() {
				silent = 0
			}
			if silent == maxSilent && m.stopped(ctx) {
				return fmt.Errorf("%s: %w", what, errEmulator)
			}
		}
		if idle > limit {
			return &StallError{What: what, Limit: limit, Waited: time.Since(began), Last: last}
		}
	}
	return nil
}
