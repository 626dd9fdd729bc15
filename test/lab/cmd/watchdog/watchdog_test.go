package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"evenkeel/cluster/watchdog"
)

// TestGuard goes through the lives of a watchdog second by second.
func TestGuard(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name string
		do   func(g *guard)
		want int // first second of the first minute in which it expires; -1: never
	}{
		{"never armed", func(*guard) {}, -1},
		{"armed and left alone", func(g *guard) { arm(t, g, 1, at(0)) }, 10},
		{"petted", func(g *guard) { arm(t, g, 1, at(0)); g.bytes(1, []byte("p"), at(9)) }, 19},
		{"disarmed", func(g *guard) { arm(t, g, 1, at(0)); g.bytes(1, []byte("pV"), at(3)); g.end(1) }, -1},
		{"V and then another byte", func(g *guard) { arm(t, g, 1, at(0)); g.bytes(1, []byte("Vp"), at(3)); g.end(1) }, 13},
		{"V without an end", func(g *guard) { arm(t, g, 1, at(0)); g.bytes(1, []byte("V"), at(3)) }, 13},
		{"ended without V", func(g *guard) { arm(t, g, 1, at(0)); g.end(1) }, 10},
		{"taken over", func(g *guard) { arm(t, g, 1, at(0)); g.end(1); arm(t, g, 2, at(8)) }, 18},
		{"the old connection has no say", func(g *guard) {
			arm(t, g, 1, at(0))
			arm(t, g, 2, at(4))
			g.bytes(1, []byte("V"), at(5))
			g.end(1)
		}, 14},
		{"a V of the one before does not count", func(g *guard) {
			arm(t, g, 1, at(0))
			g.bytes(1, []byte("V"), at(1))
			arm(t, g, 2, at(2))
			g.end(2)
		}, 12},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var g guard
			tt.do(&g)
			got := -1
			for s := range 60 {
				if g.expired(at(s)) {
					if got >= 0 {
						t.Fatal("expired twice")
					}
					got = s
				}
			}
			if got != tt.want {
				t.Errorf("expired at %d s, want %d", got, tt.want)
			}
		})
	}
}

// A watchdog without power counts nothing, and can be armed again.
func TestReset(t *testing.T) {
	var g guard
	at := time.Unix(100, 0)
	arm(t, &g, 1, at)
	g.end(1)
	g.reset()
	if g.expired(at.Add(time.Minute)) {
		t.Error("expired without power")
	}
	arm(t, &g, 2, at)
	if !g.expired(at.Add(time.Minute)) {
		t.Error("not armed again")
	}
}

func arm(t *testing.T, g *guard, conn int, now time.Time) {
	t.Helper()
	if _, err := g.firstLine(conn, "timeout 10\n", now); err != nil {
		t.Fatal(err)
	}
}

func TestFirstLine(t *testing.T) {
	for _, line := range []string{"", "\n", "timeout\n", "timeout x\n", "timeout 0\n", "timeout -5\n", "timeout 601\n", "timeout 15 s\n", "p"} {
		var g guard
		if n, err := g.firstLine(1, line, time.Unix(1, 0)); err == nil || !g.deadline.IsZero() {
			t.Errorf("firstLine(%q) = %d, %v; want an error and nothing armed", line, n, err)
		}
	}
}

// start runs a watchdog whose command is a shell script, and returns its socket and its log.
func start(t *testing.T, script string) (socket string, next func(want string) event) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "dog")
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, socket, []string{"/bin/sh", "-c", script}, w, nil)
		_ = w.Close()
	}()
	events := make(chan event, 100)
	go func() {
		defer close(events)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			var e event
			if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
				t.Errorf("log line %q: %v", scan.Text(), err)
			}
			events <- e
		}
	}()
	t.Cleanup(func() {
		stop()
		for range events { // until the log's end, so that no writer of the log is blocked
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	next = func(want string) event {
		t.Helper()
		limit := time.After(30 * time.Second)
		select {
		case e := <-events:
			if e.Event != want {
				t.Fatalf("event %+v, want %s", e, want)
			}
			return e
		case <-limit:
			t.Fatalf("no event %s", want)
		}
		return event{}
	}
	next("ready")
	return socket, next
}

// TestExpiry: a host that does not pet is cut off, not before its time, and by a command that is tried again.
func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	socket, next := start(t, `cd `+dir+` && if [ -e tried ]; then echo cut; else : > tried; echo not yet; exit 3; fi`)
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "timeout 1\n"); err != nil {
		t.Fatal(err)
	}
	armed := next("armed")
	if text, err := bufio.NewReader(c).ReadString('\n'); err != nil || text != "armed 1 lab watchdog\n" {
		t.Fatalf("answer %q, %v", text, err)
	}
	_ = c.Close()
	next("disconnected")
	expired := next("expired")
	if took := expired.Time.Sub(armed.Time); took < time.Second {
		t.Errorf("expired after %v, before its time of 1s", took)
	}
	if e := next("failed"); e.Detail != "try 1: exit status 3: not yet" {
		t.Errorf("failed try: %q", e.Detail)
	}
	if e := next("done"); e.Detail != "cut" {
		t.Errorf("second try: %q", e.Detail)
	}
	if _, err := os.Stat(filepath.Join(dir, "tried")); err != nil {
		t.Error(err)
	}
}

// TestProduct: the product's own side of the socket.
func TestProduct(t *testing.T) {
	socket, next := start(t, "exit 0")
	w, err := watchdog.Open(socket, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if w.Timeout() != 15*time.Second || w.Name() != "lab watchdog" {
		t.Errorf("armed with %v of %q", w.Timeout(), w.Name())
	}
	if e := next("armed"); e.Seconds != 15 {
		t.Errorf("armed: %+v", e)
	}
	if err := errors.Join(w.Pet(), w.Close()); err != nil {
		t.Fatal(err)
	}
	next("petted")
	next("disconnected")
	w, err = watchdog.Open(socket, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	next("armed")
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	next("petted")
	next("disarmed")
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := bufio.NewReader(c).ReadString('\n'); err != nil || text != "refused the first line must be \"timeout SECONDS\"\n" {
		t.Errorf("answer %q, %v", text, err)
	}
	next("refused")
}
