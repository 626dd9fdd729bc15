package patience

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestCounted(t *testing.T) {
	for gap, want := range map[time.Duration]time.Duration{
		beat: beat, 300 * time.Millisecond: 300 * time.Millisecond, longestBeat: longestBeat, // a busy machine
		longestBeat + 1: beat, 8 * time.Second: beat, time.Hour: beat, // one that stood still
	} {
		if got := counted(gap); got != want {
			t.Errorf("counted(%s) = %s, want %s", gap, got, want)
		}
	}
}

func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := NewStopwatch(ctx)
		time.Sleep(20*time.Second + beat/2)
		if got := w.Ran(); got != 20*time.Second {
			t.Errorf("%s after 20 s", got)
		}
		stop()
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := w.Ran(); got != 20*time.Second {
			t.Errorf("%s after it was stopped", got)
		}
	})
}
