package conformance

import (
	"io"
	"strings"
	"testing"
	"time"
)

// reads sends what a console prints, piece by piece, until it ends.
func reads(console io.Reader) <-chan string {
	c := make(chan string, 1)
	go func() {
		defer close(c)
		buf := make([]byte, 4096)
		for {
			n, err := console.Read(buf)
			if n > 0 {
				c <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

// says waits until a console has said a text.
func (g *tested) says(t *testing.T, from <-chan string, want string) {
	t.Helper()
	var said strings.Builder
	bound := time.NewTimer(g.Wait)
	defer bound.Stop()
	for !strings.Contains(said.String(), want) {
		select {
		case piece, ok := <-from:
			if !ok {
				t.Fatalf("the console ended before it said %q; it said %q", want, said.String())
			}
			said.WriteString(piece)
		case <-bound.C:
			t.Fatalf("the console did not say %q within %v; it said %q", want, g.Wait, said.String())
		}
	}
}

// ended waits until a console gives no more.
func (g *tested) ended(t *testing.T, from <-chan string, why string) {
	t.Helper()
	bound := time.NewTimer(g.Wait)
	defer bound.Stop()
	for {
		select {
		case _, ok := <-from:
			if !ok {
				return
			}
		case <-bound.C:
			t.Fatalf("the console goes on %v after %s", g.Wait, why)
		}
	}
}

func (g *tested) console(t *testing.T) {
	if g.Abilities.Console == nil {
		lacking(t, "Console")
	}
	first, err := g.Host.Console(t.Context(), g.spec.VM)
	if err != nil {
		t.Fatalf("Console: %v", err)
	}
	defer func() { _ = first.Close() }() // a second close may be an error
	old := reads(first)
	second, err := g.Host.Console(t.Context(), g.spec.VM)
	if err != nil {
		t.Fatalf("Console, taking it over: %v", err)
	}
	g.ended(t, old, "another took it over")

	// A guest that still boots takes no commands, so ask until it answers.
	heard := reads(second)
	answered := make(chan struct{})
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		tick := time.NewTicker(max(g.Wait/60, 10*time.Millisecond))
		defer tick.Stop()
		for {
			if _, err := io.WriteString(second, g.Abilities.Console.Send); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-answered:
				return
			}
		}
	}()
	func() {
		defer func() { close(answered); <-asking }()
		g.says(t, heard, g.Abilities.Console.Expect)
	}()
	if err := second.Close(); err != nil {
		t.Errorf("Close of the console: %v", err)
	}
	g.ended(t, heard, "it was closed")
	must(t, g.Host, g.spec.VM)
}
