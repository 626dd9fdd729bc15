package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lastAnswers keeps what members logged last, to explain a run in which a check failed. Only then is it formatted.
type lastAnswers struct {
	began time.Time
	mu    sync.Mutex
	said  []spoken
	n     int // in all
}

type spoken struct {
	slog.Record
	with []slog.Attr
}

// maxAnswers that are kept.
const maxAnswers = 300

func (w *lastAnswers) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := ""
	for i := range w.said {
		s := w.said[(w.n+i)%len(w.said)]
		out += fmt.Sprintf("%9.3fs %s %s", s.Time.Sub(w.began).Seconds(), s.Level, s.Message)
		for _, a := range s.with {
			out += " " + a.String()
		}
		s.Attrs(func(a slog.Attr) bool { out += " " + a.String(); return true })
		out += "\n"
	}
	return out
}

// speaker implements slog.Handler.
type speaker struct {
	to   *lastAnswers
	with []slog.Attr
}

func (speaker) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (s speaker) Handle(_ context.Context, r slog.Record) error {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	if len(s.to.said) < maxAnswers {
		s.to.said = append(s.to.said, spoken{r, s.with})
	} else {
		s.to.said[s.to.n%maxAnswers] = spoken{r, s.with}
	}
	if s.to.n++; s.to.n == 2*maxAnswers {
		s.to.n = maxAnswers
	}
	return nil
}

func (s speaker) WithAttrs(with []slog.Attr) slog.Handler {
	return speaker{s.to, append(s.with[:len(s.with):len(s.with)], with...)}
}

func (s speaker) WithGroup(string) slog.Handler { return s }
