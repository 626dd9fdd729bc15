package oidc

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/oidc/issuer"
)

// Strangers at one address, however many log-ins they send, keep nobody else out; those of several addresses make others wait.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		take := func(from string) func() {
			t.Helper()
			end, err := turns.take(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		refused := func(from string, after time.Duration) {
			t.Helper()
			begun := time.Now()
			if _, err := turns.take(t.Context(), from); !errors.Is(err, issuer.ErrBusy) || time.Since(begun) != after {
				t.Errorf("%s: %v after %s, want a refusal after %s", from, err, time.Since(begun), after)
			}
		}
		held := []func(){take("stranger 0")}
		for range maxWaiting - 1 {
			go func() { _, _ = turns.take(t.Context(), "stranger 0") }()
		}
		synctest.Wait()
		refused("stranger 0", 0) // too many wait already
		take("jane")()
		time.Sleep(maxTurn) // sleep: simulated time, until those that wait are refused
		synctest.Wait()
		refused("stranger 0", maxTurn)
		for i := 1; i < maxExchanges; i++ {
			held = append(held, take(fmt.Sprint("stranger ", i)))
		}
		refused("jane", maxTurn)
		time.AfterFunc(maxTurn-time.Second, held[0])
		take("jane")() // as soon as there is room
		for _, end := range held[1:] {
			end()
		}
		if len(turns.of) != 0 || len(turns.all) != 0 {
			t.Errorf("%d addresses and %d log-ins are kept", len(turns.of), len(turns.all))
		}
		for i := range maxAddresses {
			turns.enter(fmt.Sprint(i))
		}
		refused("jane", 0)
	})
}
