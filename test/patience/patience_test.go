package patience

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseFactor(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "1": 1, "1.5": 1.5, "30": 30} {
		if got, err := ParseFactor(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "0.99", "-3", "3x", "x", "NaN", "+Inf", " 3", "1e999"} {
		if got, err := ParseFactor(text); err == nil || !strings.Contains(err.Error(), Variable) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Setenv(Variable, "")
	if got := Within(time.Second); got != time.Second {
		t.Error(got)
	}
	t.Setenv(Variable, "2.5")
	if got := Within(time.Second); got != 2500*time.Millisecond {
		t.Error(got)
	}
	t.Setenv(Variable, "none")
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `EVENKEEL_PATIENCE="none"`) {
			t.Errorf("%v", err)
		}
	}()
	Within(time.Second)
}

// The state that a test waits for, as a function of the time since the wait began.
func TestUntil(t *testing.T) {
	const limit = time.Second
	for _, tt := range []struct {
		name     string
		factor   string
		progress func(time.Duration) any
		done     time.Duration // 0: never
		takes    time.Duration
		says     []string
	}{
		{name: "at once", done: -1},
		{name: "soon", done: 300 * time.Millisecond, takes: 300 * time.Millisecond},
		{name: "no progress to follow", takes: limit, says: []string{"it is there: not within 1s"}},
		{name: "no progress to follow, a slow machine", factor: "3", takes: 3 * limit, says: []string{"it is there: not within 3s"}},
		{name: "it stands still", progress: func(time.Duration) any { return 7 }, takes: limit, says: []string{"not within 1s", "nothing changed for 1s (0 changes before); last seen: 7"}},
		{name: "it goes on", progress: func(d time.Duration) any { return d / (900 * time.Millisecond) }, done: 8 * limit, takes: 8 * limit},
		{name: "it goes on, and stalls", progress: func(d time.Duration) any { return struct{ Index time.Duration }{min(d/(900*time.Millisecond), 3)} },
			takes: 2700*time.Millisecond + limit, says: []string{"not within 3.7", "nothing changed for 1s (3 changes before); last seen: {Index:3ns}"}},
		{name: "it goes round in circles", progress: func(d time.Duration) any { return int(d / (100 * time.Millisecond) % 3) },
			takes: maxStalls * limit, says: []string{"not within 10s, in which there were 99 changes; last seen: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(Variable, tt.factor)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var progress func() any
				if tt.progress != nil {
					progress = func() any { return tt.progress(time.Since(began)) }
				}
				err := Until(t.Context(), limit, "it is there", progress, func() bool { return tt.done != 0 && time.Since(began) >= tt.done })
				if took := time.Since(began); took < tt.takes || took > tt.takes+2*longest {
					t.Errorf("it took %s, want %s", took, tt.takes)
				}
				var stall *StallError
				if (err == nil) != (tt.says == nil) || err != nil && !errors.As(err, &stall) {
					t.Fatalf("%v", err)
				}
				for _, part := range tt.says {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("it says %q, not %q", err, part)
					}
				}
			})
		})
	}
}

// A poll that takes long counts with its length: a hanging poll does not make the wait longer.
func TestUntilSlowQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Until(t.Context(), time.Second, "it is there", nil, func() bool {
			time.Sleep(400 * time.Millisecond)
			return false
		})
		if took := time.Since(began); err == nil || took > 2*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// Ask follows its own errors, and each of its questions has a limit.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Ask(t.Context(), time.Second, "3 VMs run", func(context.Context) error {
			if n := int(time.Since(began) / (800 * time.Millisecond)); n < 3 {
				return fmt.Errorf("%d of 3 run", n)
			}
			return nil
		})
		if took := time.Since(began); err != nil || took < 2400*time.Millisecond {
			t.Errorf("after %s: %v", took, err)
		}
		began = time.Now()
		err = Ask(t.Context(), time.Second, "3 VMs run", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if took := time.Since(began); took > 3*time.Second || err == nil || !strings.Contains(err.Error(), "3 VMs run: not within") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := Until(ctx, time.Second, "it is there", func() any { return "so far" }, func() bool { return false })
		if took := time.Since(began); took != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "so far") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, empty := make(chan int, 1), make(chan int)
		full <- 3
		if got := Receive(t, time.Second, "a number", full); got != 3 {
			t.Error(got)
		}
		began := time.Now()
		if _, err := receive(t.Context(), time.Second, empty); !errors.Is(err, errNothing) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(empty)
		if got := Receive(t, time.Second, "the end", empty); got != 0 {
			t.Error(got)
		}
	})
}
