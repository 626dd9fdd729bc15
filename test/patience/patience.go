// Package patience bounds what tests wait for. A wait fails when nothing that it follows has changed for
// its limit, and reports what it saw last. A busy machine, on which progress is slow, is no failure.
//
// EVENKEEL_PATIENCE is a number of at least 1 by which every limit is multiplied: for machines so slow that
// even one step does not come in time. No part of the product imports this package. In a bubble of
// testing/synctest no limit depends on the machine: use plain ones there.
package patience

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// Variable of the environment with the factor.
const Variable = "EVENKEEL_PATIENCE"

// Stall is the usual limit on no progress.
const Stall = 20 * time.Second

const (
	// maxStalls bounds a wait whose progress never ends, in limits: something goes round in circles.
	maxStalls = 10
	// shortest and longest time between two polls: a short wait ends soon, and a long one costs few polls.
	shortest, longest = 5 * time.Millisecond, 100 * time.Millisecond
)

// between is the time to the next poll after a wait of that length.
func between(waited time.Duration) time.Duration { return min(shortest+waited/50, longest) }

// ParseFactor reads the variable's value; none is 1.
func ParseFactor(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || f < 1 {
		return 0, fmt.Errorf("%s=%q: it must be a number of at least 1, such as 3", Variable, text)
	}
	return f, nil
}

// Within is d times the factor, for limits on time as such. A factor that cannot be read ends the test program.
func Within(d time.Duration) time.Duration {
	f, err := ParseFactor(os.Getenv(Variable))
	if err != nil {
		panic(err)
	}
	return time.Duration(float64(d) * f)
}

// StallError says that a wait ended without its result.
type StallError struct {
	What    string
	Waited  time.Duration
	Limit   time.Duration // on no progress
	Changes int           // of the progress
	Last    string        // the progress last seen; empty without any to follow
}

func (e *StallError) Error() string {
	waited := e.Waited.Round(10 * time.Millisecond)
	switch {
	case e.Last == "":
		return fmt.Sprintf("%s: not within %s", e.What, waited)
	case e.Waited >= maxStalls*e.Limit:
		return fmt.Sprintf("%s: not within %s, in which there were %d changes; last seen: %s", e.What, waited, e.Changes, e.Last)
	}
	return fmt.Sprintf("%s: not within %s, and nothing changed for %s (%d changes before); last seen: %s", e.What, waited, e.Limit, e.Changes, e.Last)
}

// Until polls until done says so. It fails when what progress returns, as %+v prints it, has been the same for limit
// times the factor, or has gone on changing for ten times that. progress should have what done depends on, and
// nothing that changes while the work stands still: no time, no heartbeat. Without progress the limit is one on
// time.
//
// A poll that comes late is time in which this process did not run, and is not counted.
func Until(ctx context.Context, limit time.Duration, what string, progress func() any, done func() bool) error {
	limit = Within(limit)
	tick := time.NewTimer(0)
	defer tick.Stop()
	seen := StallError{What: what, Limit: limit}
	var idle time.Duration // since the last change
	for at := time.Now(); !done(); {
		if progress != nil {
			if now := fmt.Sprintf("%+v", progress()); now != seen.Last {
				if seen.Last != "" {
					seen.Changes++
				}
				seen.Last, idle = now, 0
			}
		}
		asked, pause := time.Now(), min(between(seen.Waited), limit-idle, maxStalls*limit-seen.Waited)
		tick.Reset(pause)
		select {
		case <-tick.C:
		case <-ctx.Done():
			seen.Waited += time.Since(at)
			return fmt.Errorf("%w: %w", context.Cause(ctx), &seen)
		}
		// The poll counts with the time that it took. The pause counts with its planned length only.
		took := asked.Sub(at) + pause
		at = time.Now()
		seen.Waited += took
		if idle += took; idle >= limit || seen.Waited >= maxStalls*limit {
			if done() { // what is done meanwhile is done
				return nil
			}
			return &seen
		}
	}
	return nil
}

// Eventually is Until for a test, which it ends at a failure.
func Eventually(t testing.TB, limit time.Duration, what string, progress func() any, done func() bool) {
	t.Helper()
	if err := Until(t.Context(), limit, what, progress, done); err != nil {
		t.Fatal(err)
	}
}

// Ask until there is no error. The limit is on getting the same error again and again, and on each question.
func Ask(ctx context.Context, limit time.Duration, what string, question func(context.Context) error) error {
	var last error
	return Until(ctx, limit, what, func() any { return last }, func() bool {
		bounded, cancel := context.WithTimeout(ctx, Within(limit))
		defer cancel()
		last = question(bounded)
		return last == nil
	})
}

// Receive what a channel brings within limit times the factor. A closed channel brings the zero value.
func Receive[T any](t testing.TB, limit time.Duration, what string, from <-chan T) T {
	t.Helper()
	x, err := receive(t.Context(), Within(limit), from)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return x
}

var errNothing = errors.New("nothing came")

func receive[T any](ctx context.Context, limit time.Duration, from <-chan T) (x T, err error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case x = <-from:
		return x, nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	case <-over.C:
		return x, fmt.Errorf("%w within %s", errNothing, limit)
	}
}
