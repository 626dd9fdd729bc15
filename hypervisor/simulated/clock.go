package simulated

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is where a World takes its time from. The clock of package time (the
// default) serves real use and, inside a bubble, testing/synctest; Virtual
// serves simulations that step through time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now, unless stop was called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// realClock is package time.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Virtual is a clock that does not advance by itself. A call into a World
// that takes time (see Timing) waits for another goroutine to advance
// the clock; with a zero Timing no call waits, and a single goroutine can
// drive everything.
type Virtual struct {
	mu     sync.Mutex
	now    time.Time
	seq    uint64
	timers timerHeap
}

// NewVirtual makes a clock that stands at start.
func NewVirtual(start time.Time) *Virtual { return &Virtual{now: start} }

// Now is the time the clock stands at.
func (v *Virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// AfterFunc has f called by the Advance that reaches d from now.
func (v *Virtual) AfterFunc(d time.Duration, f func()) func() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seq++
	t := &timer{at: v.now.Add(max(d, 0)), seq: v.seq, f: f}
	heap.Push(&v.timers, t)
	return func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		if t.index < 0 {
			return false
		}
		heap.Remove(&v.timers, t.index)
		return true
	}
}

// Advance moves the clock on by d and runs what falls due, in order of time
// and then of making, in the caller's goroutine. A timer that is made
// meanwhile and falls due within d runs too.
func (v *Virtual) Advance(d time.Duration) {
	v.mu.Lock()
	end := v.now.Add(max(d, 0))
	for len(v.timers) > 0 && !v.timers[0].at.After(end) {
		t := heap.Pop(&v.timers).(*timer)
		if t.at.After(v.now) {
			v.now = t.at
		}
		v.mu.Unlock()
		t.f()
		v.mu.Lock()
	}
	// f may have advanced the clock itself, further than end.
	if end.After(v.now) {
		v.now = end
	}
	v.mu.Unlock()
}

// Next is when the next timer falls due; ok is false if there is none.
func (v *Virtual) Next() (at time.Time, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.timers) == 0 {
		return time.Time{}, false
	}
	return v.timers[0].at, true
}

type timer struct {
	at    time.Time
	seq   uint64
	f     func()
	index int // in the heap; -1 once it has left it
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
