package patience

import (
	"context"
	"sync"
	"time"
)

const (
	beat = 10 * time.Millisecond
	// longestBeat is the longest time from one beat to the next on a machine that is busy. After more it stood still.
	longestBeat = time.Second
)

// Stalls are the times in which this process stood still, as a guest of a hypervisor may for seconds. Such a machine runs servers as
// little as their clients: a limit on how soon a server answers is one on the time in which the machine ran.
type Stalls struct {
	mu    sync.Mutex
	last  time.Time // of the last beat
	spans [][2]time.Time
}

// WatchStalls until ctx ends.
func WatchStalls(ctx context.Context) *Stalls {
	s := &Stalls{last: time.Now()}
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.beat(time.Now())
			}
		}
	}()
	return s
}

func (s *Stalls) beat(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) > longestBeat {
		s.spans = append(s.spans, [2]time.Time{s.last, now})
	}
	s.last = now
}

// Ran is how much of the time between two moments the machine ran.
func (s *Stalls) Ran(from, to time.Time) time.Duration {
	s.mu.Lock()
	spans, last := s.spans, s.last
	s.mu.Unlock()
	ran := to.Sub(from)
	for _, span := range append(spans[:len(spans):len(spans)], [2]time.Time{last, to}) {
		begun, ended := later(from, span[0]), to
		if span[1].Before(to) {
			ended = span[1]
		}
		if d := ended.Sub(begun); d > 0 && span[1].Sub(span[0]) > longestBeat {
			ran -= d
		}
	}
	return ran
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
