package node

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// hclogAdapter hands raft's log lines to slog. What raft calls info is of
// interest while debugging only.
type hclogAdapter struct {
	log   *slog.Logger
	name  string
	args  []any
	alone bool // no other server: that none is heard of is no news
}

// Log implements hclog.Logger.
func (a *hclogAdapter) Log(level hclog.Level, msg string, args ...any) {
	l := slog.LevelDebug
	switch level {
	case hclog.Warn:
		l = slog.LevelWarn
		if a.alone && strings.HasPrefix(msg, "heartbeat timeout reached") {
			l = slog.LevelDebug
		}
	case hclog.Error:
		l = slog.LevelError
	}
	a.log.Log(context.Background(), l, msg, append(append([]any{}, a.args...), args...)...)
}

// The levels of hclog.Logger.
func (a *hclogAdapter) Trace(msg string, args ...any) { a.Log(hclog.Trace, msg, args...) }
func (a *hclogAdapter) Debug(msg string, args ...any) { a.Log(hclog.Debug, msg, args...) }
func (a *hclogAdapter) Info(msg string, args ...any)  { a.Log(hclog.Info, msg, args...) }
func (a *hclogAdapter) Warn(msg string, args ...any)  { a.Log(hclog.Warn, msg, args...) }
func (a *hclogAdapter) Error(msg string, args ...any) { a.Log(hclog.Error, msg, args...) }

// IsTrace and the like: slog drops what nobody wants.
func (a *hclogAdapter) IsTrace() bool { return false }
func (a *hclogAdapter) IsDebug() bool { return a.enabled(slog.LevelDebug) }
func (a *hclogAdapter) IsInfo() bool  { return a.enabled(slog.LevelDebug) }
func (a *hclogAdapter) IsWarn() bool  { return a.enabled(slog.LevelWarn) }
func (a *hclogAdapter) IsError() bool { return true }

func (a *hclogAdapter) enabled(l slog.Level) bool { return a.log.Enabled(context.Background(), l) }

// ImpliedArgs implements hclog.Logger.
func (a *hclogAdapter) ImpliedArgs() []any { return a.args }

// With implements hclog.Logger.
func (a *hclogAdapter) With(args ...any) hclog.Logger {
	return &hclogAdapter{log: a.log, name: a.name, alone: a.alone, args: append(append([]any{}, a.args...), args...)}
}

// Name implements hclog.Logger.
func (a *hclogAdapter) Name() string { return a.name }

// Named implements hclog.Logger.
func (a *hclogAdapter) Named(name string) hclog.Logger {
	return &hclogAdapter{log: a.log, name: name, alone: a.alone, args: a.args}
}

// ResetNamed implements hclog.Logger.
func (a *hclogAdapter) ResetNamed(name string) hclog.Logger { return a.Named(name) }

// SetLevel implements hclog.Logger: slog's handler has the say.
func (a *hclogAdapter) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (a *hclogAdapter) GetLevel() hclog.Level {
	if a.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

// StandardLogger implements hclog.Logger.
func (a *hclogAdapter) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
}

// StandardWriter implements hclog.Logger.
func (a *hclogAdapter) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return a.StandardLogger(o).Writer()
}
