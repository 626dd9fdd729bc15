package oidc

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/api/oidc/issuer"
)

// Strangers at one address, however many log-ins they send, keep out no other client; those of several addresses make others wait.
func TestExchanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		exchanges := newExchanges()
		take := func(from string) func() {
			t.Helper()
			end, err := exchanges.take(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		refused := func(from string, after time.Duration) {
			t.Helper()
			begun := time.Now()
			if _, err := exchanges.take(t.Context(), from); !errors.Is(err, issuer.ErrBusy) || time.Since(begun) != after {
				t.Errorf("%s: %v after %s, want a refusal after %s", from, err, time.Since(begun), after)
			}
		}
		ends := []func(){take("stranger 0")}
		for range maxWaiting - 1 {
			go func() { _, _ = exchanges.take(t.Context(), "stranger 0") }()
		}
		synctest.Wait()
		refused("stranger 0", 0) // too many wait already
		take("jane")()
		time.Sleep(maxWait) // sleep: simulated time, until those that wait are refused
		synctest.Wait()
		refused("stranger 0", maxWait)
		for i := 1; i < maxExchanges; i++ {
			ends = append(ends, take(fmt.Sprint("stranger ", i)))
		}
		refused("jane", maxWait)
		time.AfterFunc(maxWait-time.Second, ends[0])
		take("jane")() // as soon as there is room
		for _, end := range ends[1:] {
			end()
		}
		if len(exchanges.of) != 0 || len(exchanges.all) != 0 {
			t.Errorf("%d addresses and %d log-ins are kept", len(exchanges.of), len(exchanges.all))
		}
		for i := range maxAddresses {
			exchanges.enter(fmt.Sprint(i))
		}
		refused("jane", 0)
	})
}

func TestSourceOf(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"192.0.2.1:400": "192.0.2.1/32", "[::ffff:192.0.2.1]:400": "192.0.2.1/32",
		"[2001:db8::1:2]:400": "2001:db8::/64", "[fe80::1%eth0]:400": "fe80::/64", "": sourceOf("x")} {
		if got := sourceOf(from); got != want {
			t.Errorf("%s counts as %s, want %s", from, got, want)
		}
	}
}
