package inside

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is how long each CPU's watcher sleeps at a time.
const clockTick = 10 * time.Millisecond

// clockWatch knows when the machine stood still. A thread of real-time priority on each of its CPUs sleeps for a tick at a time. What
// it oversleeps, the computer gave that CPU nothing, while the machine's clock, by which the kernel charges CPU time, went on.
type clockWatch struct {
	mu      sync.Mutex
	longest []time.Duration // for each CPU, since it was read last
}

func watchClock(t *testing.T) *clockWatch {
	t.Helper()
	w := &clockWatch{longest: make([]time.Duration, runtime.NumCPU())}
	begun := make(chan error)
	for cpu := range w.longest {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			var only unix.CPUSet
			only.Set(cpu)
			begun <- errors.Join(unix.SchedSetaffinity(0, &only),
				unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0))
			for t.Context().Err() == nil {
				before := time.Now()
				tick := unix.NsecToTimespec(int64(clockTick))
				_ = unix.Nanosleep(&tick, nil) // a signal only ends it early
				late := time.Since(before) - clockTick
				w.mu.Lock()
				w.longest[cpu] = max(w.longest[cpu], late)
				w.mu.Unlock()
			}
		}()
		if err := <-begun; err != nil {
			t.Fatal(os.NewSyscallError("sched_setattr", err))
		}
	}
	return w
}

// still is the longest time that a CPU of the machine stood still since the last call.
func (w *clockWatch) still() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := slices.Max(w.longest)
	clear(w.longest)
	return longest
}
