package reprovision

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// What a run that ended had is kept until the log has it.
func TestExtrasAreKeptUntilSaved(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	var refuse error
	proposed := 0
	r := New(Options{Period: time.Minute, Now: c.Now, Log: slog.New(slog.DiscardHandler), Snapshot: c.Snapshot, Leads: func() bool { return true },
		Silent: func(*state.Snapshot) bool { return false }, Samples: func(*state.Snapshot) map[string]Sample { return nil }, Granted: func() {},
		Propose: func(context.Context, state.Kind, any) error { proposed++; return refuse }})
	r.extras["ended"] = state.Extras{Done: 5}
	for i, err := range []error{state.ErrConflict, nil, nil} {
		refuse = err
		if got := r.round(t.Context()); !errors.Is(got, err) {
			t.Fatalf("%v, want %v", got, err)
		}
		if _, kept := r.extras["ended"]; kept != (err != nil) || proposed != min(i+1, 2) {
			t.Errorf("round %d: kept %v after %d proposals", i, kept, proposed)
		}
	}
}

// Progress goes on from now where a clock was ahead by more than a sample may be old.
func TestProgressAfterClockWasAhead(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]time.Time{time.Hour: now, maxAge / 2: now.Add(maxAge / 2)} {
		r := Row{Run: &state.Run{Started: now.Add(-time.Hour)}, Extras: state.Extras{Done: 7, At: now.Add(ahead)}}
		x := evaluation{in: Observations{Now: now}}
		if x.account(&r); !r.Extras.At.Equal(want) || r.Extras.Done != 7 {
			t.Errorf("%s ahead: %+v", ahead, r.Extras)
		}
	}
}
