package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	firstLineTime = 3 * time.Second // for a connection to say what it wants
	maxLine       = 64              // bytes of it
	commandTime   = 30 * time.Second
	commandTries  = 10
	commandPause  = time.Second // between two tries
	maxOutput     = 4096        // bytes of the command's output that are logged
)

// event is a line of the log.
type event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Conn    int       `json:"conn,omitempty"`
	Seconds int       `json:"seconds,omitempty"` // the time-out, of armed and expired
	Bytes   int       `json:"bytes,omitempty"`   // of petted
	Detail  string    `json:"detail,omitempty"`
}

// server is one watchdog of one host.
type server struct {
	command []string
	out     *json.Encoder

	mu    sync.Mutex
	guard guard
	wake  chan struct{} // the deadline changed
}

// serve listens until ctx ends. unpowered says that the host lost its power.
func serve(ctx context.Context, socket string, command []string, out io.Writer, unpowered <-chan os.Signal) error {
	if info, err := os.Lstat(socket); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(socket); err != nil {
			return err
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &server{command: command, out: json.NewEncoder(out), wake: make(chan struct{}, 1)}
	s.log(event{Event: "ready", Detail: socket})
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.watch(ctx) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-unpowered:
				s.step(func(g *guard, _ time.Time) {
					g.reset()
					s.log(event{Event: "reset"})
				})
			}
		}
	})
	all.Go(func() {
		<-ctx.Done()
		_ = l.Close()
	})
	for conn := 1; ; conn++ {
		c, err := l.Accept()
		if err != nil {
			stop()
			all.Wait()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		all.Go(func() { s.connection(ctx, conn, c) })
	}
}

// log writes an event. Times of events are in order: its callers, those before the first connection apart, hold s.mu.
func (s *server) log(e event) {
	e.Time = time.Now()
	_ = s.out.Encode(e) // a log that cannot be written must not keep a host running
}

// step runs f on the guard, and has watch look at the deadline again.
func (s *server) step(f func(g *guard, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.guard, time.Now())
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// connection serves one host until it goes away.
func (s *server) connection(ctx context.Context, conn int, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(firstLineTime))
	r := bufio.NewReaderSize(c, maxLine)
	line, err := r.ReadSlice('\n')
	if err == nil {
		_ = c.SetReadDeadline(time.Time{})
		var seconds int
		s.step(func(g *guard, now time.Time) {
			if seconds, err = g.firstLine(conn, string(line), now); err == nil {
				s.log(event{Event: "armed", Conn: conn, Seconds: seconds})
			}
		})
		if err == nil {
			_, _ = fmt.Fprintf(c, "armed %d lab watchdog\n", seconds)
		}
	}
	if err != nil {
		s.step(func(*guard, time.Time) { s.log(event{Event: "refused", Conn: conn, Detail: err.Error()}) })
		_, _ = fmt.Fprintf(c, "refused %v\n", err)
		return
	}
	buf := make([]byte, maxLine)
	for {
		n, err := r.Read(buf)
		s.step(func(g *guard, now time.Time) {
			if g.bytes(conn, buf[:n], now) {
				s.log(event{Event: "petted", Conn: conn, Bytes: n})
			}
			if err != nil && ctx.Err() == nil {
				what := "disconnected"
				if g.end(conn) {
					what = "disarmed"
				}
				s.log(event{Event: what, Conn: conn})
			}
		})
		if err != nil {
			return
		}
	}
}

// watch runs the command whenever the host's time is up.
func (s *server) watch(ctx context.Context) {
	for {
		var up bool
		var rest time.Duration
		s.mu.Lock()
		if up = s.guard.expired(time.Now()); up {
			s.log(event{Event: "expired", Seconds: int(s.guard.timeout / time.Second)})
		} else if !s.guard.deadline.IsZero() {
			rest = time.Until(s.guard.deadline)
		}
		s.mu.Unlock()
		if up {
			s.cut(ctx)
			continue
		}
		var alarm <-chan time.Time
		if rest > 0 {
			alarm = time.After(rest)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-alarm:
		}
	}
}

// cut runs the command until it succeeds.
func (s *server) cut(ctx context.Context) {
	for try := 1; ; try++ {
		out, err := s.run(ctx)
		e := event{Event: "done", Detail: out}
		if err != nil {
			e = event{Event: "failed", Detail: strings.TrimSpace(fmt.Sprintf("try %d: %v: %s", try, err, out))}
		}
		s.step(func(*guard, time.Time) { s.log(e) })
		if err == nil || try == commandTries {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(commandPause):
		}
	}
}

func (s *server) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out[:min(len(out), maxOutput)])), err
}
