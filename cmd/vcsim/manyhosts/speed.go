package manyhosts

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Speed is how much CPU time the same piece of work takes, milliseconds: a machine that others share is faster or slower by the
// minute, and all that is measured on it with it.
type Speed struct {
	Idle float64 `json:"idle"` // while nothing is asked for, mean
	Load float64 `json:"load"` // while requests are offered, mean
}

const speedEvery = 2 * time.Second

// speedOf the machine until mean is called: over pieces of work that are done now and then, milliseconds; 0 if none was.
func speedOf() (mean func() float64) {
	ctx, stop := context.WithCancel(context.Background())
	out := make(chan float64, 1)
	go func() {
		runtime.LockOSThread() // CPU time is counted by thread
		defer runtime.UnlockOSThread()
		var sum time.Duration
		n := 0
		tick := time.NewTicker(speedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				out <- float64(sum) / float64(max(1, n)) / float64(time.Millisecond)
				return
			case <-tick.C:
				sum += piece()
				n++
			}
		}
	}()
	return func() float64 { stop(); return <-out }
}

// piece of work: numbers are put in order.
func piece() time.Duration {
	r := rand.New(rand.NewPCG(1, 2))
	numbers := make([]uint64, 50_000)
	for i := range numbers {
		numbers[i] = r.Uint64()
	}
	from := threadTime()
	slices.Sort(numbers)
	return threadTime() - from
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
