package watchdog

import (
	"bufio"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/test/patience"
)

// The agent wants exactly this.
var _ agent.Watchdog = (*Guard)(nil)

// outside is an outside watchdog that answers with the time-out that it takes, and can close its host's connection.
type outside struct {
	path  string
	takes chan string   // answers, one for each connection
	conns chan net.Conn // that were answered
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{path: filepath.Join(t.TempDir(), "dog"), takes: make(chan string, 10), conns: make(chan net.Conn, 10)}
	l, err := net.Listen("unix", o.path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for len(o.conns) > 0 {
			_ = (<-o.conns).Close()
		}
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// One byte at a time, so that what follows the line is left for the test.
			for b := make([]byte, 1); b[0] != '\n'; {
				if _, err := io.ReadFull(c, b); err != nil {
					break
				}
			}
			_, _ = io.WriteString(c, <-o.takes)
			o.conns <- c
		}
	}()
	return o
}

// next is the next connection of a host.
func (o *outside) next(t *testing.T) net.Conn {
	t.Helper()
	return patience.Receive(t, patience.Stall, "the host connects", o.conns)
}

// rest is what the host sent over a connection until it ended it.
func rest(t *testing.T, c net.Conn) string {
	t.Helper()
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(patience.Within(patience.Stall))); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(bufio.NewReader(c))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGuard(t *testing.T) {
	o := newOutside(t)
	g, err := NewGuard(o.path, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Pet(); !errors.Is(err, ErrClosed) {
		t.Errorf("pet before it was armed: %v", err)
	}
	o.takes <- "armed 15 x\n"
	for range 2 { // the second is a pet
		if took, err := g.Arm(); err != nil || took != 15*time.Second {
			t.Fatalf("Arm = %v, %v", took, err)
		}
	}
	if err := errors.Join(g.Pet(), g.Stop()); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, o.next(t)); got != "ppV" {
		t.Errorf("sent %q", got)
	}
	if err := g.Pet(); !errors.Is(err, ErrClosed) {
		t.Errorf("pet after it was disarmed: %v", err)
	}

	// Armed again, and then the watchdog hangs up: an error, and the next pet finds it again.
	o.takes <- "armed 15 x\n"
	if _, err := g.Arm(); err != nil {
		t.Fatal(err)
	}
	_ = o.next(t).Close()
	if err := g.Pet(); err == nil {
		t.Error("pet of a watchdog that hung up says nothing")
	}
	o.takes <- "armed 15 x\n"
	if err := errors.Join(g.Pet(), g.Pet()); err != nil {
		t.Errorf("pet after it is back: %v", err)
	}
	c := o.next(t)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if got := rest(t, c); got != "p" {
		t.Errorf("sent %q, want it left counting", got)
	}

	// Lost and counting, it is opened to be disarmed.
	o.takes <- "armed 15 x\n"
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if got := rest(t, o.next(t)); got != "V" {
		t.Errorf("sent %q, want it disarmed", got)
	}
}

// TestGuardLonger: a watchdog that comes back with a longer time-out than the
// leader counts with guards nothing.
func TestGuardLonger(t *testing.T) {
	o := newOutside(t)
	g, err := NewGuard(o.path, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	o.takes <- "armed 15 x\n"
	if _, err := g.Arm(); err != nil {
		t.Fatal(err)
	}
	_ = o.next(t).Close()
	_ = g.Pet()
	for range 2 {
		o.takes <- "armed 20 x\n"
		if err := g.Pet(); err == nil || !strings.Contains(err.Error(), "20s") {
			t.Errorf("pet = %v, want an error with the other time-out", err)
		}
	}
	// The agent may arm it again, and report it to the leader.
	o.takes <- "armed 20 x\n"
	if took, err := g.Arm(); err != nil || took != 20*time.Second {
		t.Errorf("Arm = %v, %v", took, err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewGuard(o.path, time.Second); err == nil {
		t.Error("NewGuard takes a second")
	}
}

func TestParseGuard(t *testing.T) {
	for _, path := range []string{"/dev/watchdog", "/run/a dog/socket"} {
		g, err := NewGuard(path, 15*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseGuard(g.String()); err != nil || *back != *g {
			t.Errorf("%q is read as %+v, %v", g, back, err)
		}
	}
	for _, bad := range []string{"", "/dev/watchdog", "/dev/watchdog soon", "/dev/watchdog 1s"} {
		if g, err := ParseGuard(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, g)
		}
	}
}
