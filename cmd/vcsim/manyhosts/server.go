package manyhosts

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"evenkeel/api/server"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// ServerOptions of one server's process.
type ServerOptions struct {
	Dir     string
	Listen  string // and advertise
	Gossip  string // "" = none
	Token   string // of the API; recorded once this server leads, "" = it is there
	Log     io.Writer
	Version string
}

// Serve is one server's process. It prints "ready" once its port is open, answers the lines of in
// until they end, and stops then or at SIGTERM.
func Serve(ctx context.Context, o ServerOptions, in io.Reader, out io.Writer) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer cancel()
	log := slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	set := state.DefaultSettings()
	set.OnFull = state.Reject
	m, err := member.Start(ctx, member.Options{Dir: o.Dir, Listener: l, Advertise: o.Listen, Gossip: o.Gossip, GossipAdvertise: o.Gossip,
		Settings: set, Version: o.Version, Log: log, Autopilot: node.Autopilot{},
		API: func(m *member.Member) transport.Handler {
			return server.New(m, server.Options{Members: m, Version: o.Version, Logger: log})
		}})
	if err != nil {
		return err
	}
	defer m.PaceGC(os.Getenv("GOGC"))()
	if o.Token != "" {
		if err := found(ctx, m, o.Token); err != nil {
			_ = m.Close()
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return m.Close()
		case err := <-m.Failed():
			return fmt.Errorf("a part of the server ended: %w", err)
		case line, more := <-lines:
			if !more {
				return m.Close()
			}
			fmt.Fprintln(out, answer(m, line))
		}
	}
}

// answer a line of the parent.
func answer(m *member.Member, line string) string {
	text, file, _ := strings.Cut(line, " ")
	var err error
	switch text {
	case "index":
		return fmt.Sprint(m.Index())
	case "leads":
		here, _ := m.Leader()
		return fmt.Sprint(here)
	case "memory":
		return memory()
	case "profile":
		var f *os.File
		if f, err = os.Create(file); err == nil {
			err = pprof.StartCPUProfile(f)
		}
	case "profiled":
		pprof.StopCPUProfile()
		if file != "" {
			var f *os.File
			if f, err = os.Create(file); err == nil {
				err = pprof.Lookup("heap").WriteTo(f, 0)
				_ = f.Close()
			}
		}
	default:
		err = fmt.Errorf("unknown word %q", text)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

// memory of this process by what it is for, MiB.
func memory() string {
	classes := []struct{ name, metric string }{
		{"live", "/gc/heap/live:bytes"}, {"objects", "/memory/classes/heap/objects:bytes"}, {"between", "/memory/classes/heap/unused:bytes"},
		{"free", "/memory/classes/heap/free:bytes"}, {"stacks", "/memory/classes/heap/stacks:bytes"}, {"released", "/memory/classes/heap/released:bytes"},
	}
	samples := make([]metrics.Sample, len(classes))
	for i, c := range classes {
		samples[i].Name = c.metric
	}
	metrics.Read(samples)
	var out []string
	for i, c := range classes {
		out = append(out, fmt.Sprintf("%s %d", c.name, samples[i].Value.Uint64()>>20))
	}
	return strings.Join(out, ", ")
}

// found the cluster: wait to lead, and record the token of the API.
func found(ctx context.Context, m *member.Member, token string) error {
	if err := until(ctx, 30*time.Second, "the first server leads", func() bool { here, _ := m.Leader(); return here }); err != nil {
		return err
	}
	row, err := server.RowOf(token)
	if err != nil {
		return err
	}
	row.Name, row.Role = "bench", state.RoleAdmin
	return m.Propose(ctx, state.KindAdminToken, row)
}

// until polls what only another process or goroutine brings about.
func until(ctx context.Context, max time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s", max, what)
		case <-tick.C:
		}
	}
	return nil
}
