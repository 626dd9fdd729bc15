package e2e

import (
	"io"
	"strings"
	"testing"
	"time"
)

// waitFor reads a console until a text came.
func waitFor(t *testing.T, console io.Reader, text string, within time.Duration) {
	t.Helper()
	type read struct {
		b   []byte
		err error
	}
	reads := make(chan read)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			b := make([]byte, 4096)
			n, err := console.Read(b)
			select {
			case reads <- read{b[:n], err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var seen strings.Builder
	deadline := time.After(within)
	for {
		select {
		case r := <-reads:
			seen.Write(r.b)
			if strings.Contains(seen.String(), text) {
				return
			}
			if r.err != nil {
				t.Fatalf("console ended (%v) before %q; it said %q", r.err, text, seen.String())
			}
		case <-deadline:
			t.Fatalf("no %q on the console within %s; it said %q", text, within, seen.String())
		}
	}
}
