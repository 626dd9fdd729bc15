package patience

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStalls(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	s := &Stalls{last: zero}
	for _, beat := range []float64{0.5, 1.5, 2, 8, 8.5, 11.5, 12} { // from 2 to 8 and from 8.5 to 11.5 it stood still
		s.beat(at(beat))
	}
	for _, c := range []struct{ from, to, want float64 }{
		{0, 2, 2}, {0, 10, 2 + 0.5}, {0, 12, 2 + 0.5 + 0.5}, {3, 7, 0}, {1, 4, 1}, {5, 8.25, 0.25}, {8, 8.5, 0.5}, {12, 12, 0},
		{12, 12.9, 0.9},   // the next beat may still come
		{11.75, 14, 0.25}, // it should have come
	} {
		if got := s.Ran(at(c.from), at(c.to)).Seconds(); got != c.want {
			t.Errorf("from %v to %v s: ran %v s, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestWatchStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, s := time.Now(), WatchStalls(t.Context())
		time.Sleep(time.Minute)
		if got := s.Ran(begun, time.Now()); got != time.Minute || len(s.spans) != 0 {
			t.Errorf("ran %s of a minute, stalls %v", got, s.spans)
		}
	})
}
