package transport

import (
	"context"
	"errors"
	"slices"
	"time"
)

// serverStats is what is known of how a server answers.
type serverStats struct {
	hung time.Time // when it was found to hang last
	// up ends when the server is found to hang: calls that wait for it go on to the next one.
	up  context.Context
	cut context.CancelCauseFunc
}

// errHangs says that a server took the connection and does not answer. Its process may stand still.
var errHangs = errors.New("the server hangs")

// serverTo returns the statistics of a server. The lock is held.
func (a *Agent) serverTo(address string) *serverStats {
	w := a.perServer[address]
	if w == nil {
		w = &serverStats{}
		a.perServer[address] = w
	}
	if w.up == nil || w.up.Err() != nil {
		w.up, w.cut = context.WithCancelCause(context.Background())
	}
	return w
}

// hangs notes that a server hangs: it is asked last for a while, and what waits for it is given up.
func (a *Agent) hangs(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.serverTo(address)
	w.hung = time.Now()
	w.cut(errHangs)
}

// order is the order in which servers are asked: from one on, those that hang last, the latest last of all.
func (a *Agent) order(from int) []string {
	around := slices.Concat(a.servers[from:], a.servers[:from])
	hung := func(address string) (at time.Time) {
		if w := a.perServer[address]; w != nil && time.Since(w.hung) < hungFor {
			at = w.hung
		}
		return at
	}
	slices.SortStableFunc(around, func(a, b string) int { return hung(a).Compare(hung(b)) })
	return around
}

// waiting returns the context of a call that waits for one answer of a server.
func (a *Agent) waiting(ctx context.Context, address string, limit time.Duration) (context.Context, func()) {
	a.mu.Lock()
	up := a.serverTo(address).up
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(up, cancel)
	return ctx, func() { stop(); cancel() }
}
