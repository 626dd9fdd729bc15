package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// hclogAdapter hands raft's log lines to slog. raft's level info is of interest only for debugging. What raft does not call is that
// of a logger that drops everything.
type hclogAdapter struct {
	hclog.Logger
	log       *slog.Logger
	args      []any
	unbatched bool // no other server: that none answers is no news
	last      *repeatedMessage
	// removed says whether the cluster has removed this server, so that no other one answers it; nil: it has not.
	removed func() bool
}

// repeatedMessage remembers warnings: raft repeats them twice a second for each server that is away.
type repeatedMessage struct {
	mu sync.Mutex
	at map[string]time.Time
}

// repeatAfter is how long after a warning the same one is logged again.
const repeatAfter = time.Minute

// again says whether the warning was given a short time ago, and remembers it if not.
func (s *repeatedMessage) again(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.at[what]; ok && time.Since(at) < repeatAfter {
		return true
	}
	if len(s.at) > 1000 {
		clear(s.at)
	}
	s.at[what] = time.Now()
	return false
}

func newHclog(log *slog.Logger, alone bool) *hclogAdapter {
	return &hclogAdapter{Logger: hclog.NewNullLogger(), log: log, unbatched: alone, last: &repeatedMessage{at: map[string]time.Time{}}}
}

// subject is the peer that a warning names, if it names one.
func subject(msg string, args []any) string {
	for n := 0; n+1 < len(args); n += 2 {
		if args[n] == "peer" || args[n] == "server-id" || args[n] == "target" {
			return fmt.Sprintf("%s %v", msg, args[n+1])
		}
	}
	return msg
}

// Log implements hclog.Logger.
func (a *hclogAdapter) Log(level hclog.Level, msg string, args ...any) {
	l := slog.LevelDebug
	switch level {
	case hclog.Warn:
		l = slog.LevelWarn
		if a.unbatched && strings.HasPrefix(msg, "heartbeat timeout reached") {
			l = slog.LevelDebug
		}
	case hclog.Error:
		l = slog.LevelError
	}
	if a.removed != nil && a.removed() {
		l = slog.LevelDebug
	}
	if l > slog.LevelDebug && a.last.again(subject(msg, args)) {
		l = slog.LevelDebug
	}
	a.log.Log(context.Background(), l, msg, append(append([]any{}, a.args...), args...)...)
}

// The levels of hclog.Logger.
func (a *hclogAdapter) Trace(msg string, args ...any) { a.Log(hclog.Trace, msg, args...) }
func (a *hclogAdapter) Debug(msg string, args ...any) { a.Log(hclog.Debug, msg, args...) }
func (a *hclogAdapter) Info(msg string, args ...any)  { a.Log(hclog.Info, msg, args...) }
func (a *hclogAdapter) Warn(msg string, args ...any)  { a.Log(hclog.Warn, msg, args...) }
func (a *hclogAdapter) Error(msg string, args ...any) { a.Log(hclog.Error, msg, args...) }

// With implements hclog.Logger.
func (a *hclogAdapter) With(args ...any) hclog.Logger {
	with := *a
	with.args = append(append([]any{}, a.args...), args...)
	return &with
}

// Named implements hclog.Logger: slog has no names.
func (a *hclogAdapter) Named(string) hclog.Logger { return a }
