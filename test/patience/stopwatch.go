package patience

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	beat = 10 * time.Millisecond
	// longestBeat is the longest time from one beat to the next on a machine that is busy. After more it stood still.
	longestBeat = time.Second
)

// Stopwatch counts the time in which this machine ran. A machine that stands still for seconds, as guests of a hypervisor do, runs
// servers as little as their clients: a limit on how soon a server answers is one on this time.
type Stopwatch struct{ ran atomic.Int64 }

// NewStopwatch counts until ctx ends.
func NewStopwatch(ctx context.Context) *Stopwatch {
	w := &Stopwatch{}
	last := time.Now()
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			w.ran.Add(int64(counted(now.Sub(last))))
			last = now
		}
	}()
	return w
}

// Ran is the time counted so far, to within a beat.
func (w *Stopwatch) Ran() time.Duration { return time.Duration(w.ran.Load()) }

// counted is how much of the time between two beats counts.
func counted(gap time.Duration) time.Duration {
	if gap > longestBeat {
		return beat
	}
	return gap
}
