package client

import (
	"context"
	"errors"
	"time"

	"evenkeel/api/v1"
)

// pollFor is how long one request for an operation may hang.
const pollFor = 30 * time.Second

// maxSeen is the longest text the server takes as seen, bytes. A text can name
// every host of the cluster; beyond this length only the end is waited for.
const maxSeen = 4096

// How long, and how often, a wait asks a server that went away, or that has no leader: one that is
// restarted is back in seconds, and so is a leader.
const (
	awayFor   = 30 * time.Second
	awayRetry = 500 * time.Millisecond
)

// Wait until an operation has ended or ctx does, and report each step on the
// way. It returns the operation as last seen, also beside an error.
func (c *Client) Wait(ctx context.Context, op v1.Operation, progress func(v1.Operation)) (v1.Operation, error) {
	if progress == nil {
		progress = func(v1.Operation) {}
	}
	progress(op)
	if op.Ended() {
		return op, nil
	}
	hang := func(s *sending) {
		s.timeout = pollFor + c.timeout
		switch {
		case op.Tenant != "":
			s.tenant = op.Tenant
		case op.VirtualCluster == "": // of a plan or a host: the cluster's own
			s.tenant = ""
		}
	}
	_, err := Watch(ctx, 0, func(ctx context.Context) (v1.Operation, error) {
		seen := op.Text
		if len(seen) > maxSeen {
			seen = ""
		}
		next, err := get[v1.Operation](ctx, c, []Option{query("wait", pollFor.String(), "seen", seen), hang}, "operations", op.ID)
		if err == nil {
			op = next
			progress(op)
		}
		return next, err
	}, v1.Operation.Ended)
	return op, err
}

// Watch reads again and again, at these intervals, until until says that it is enough or ctx ends. A server that
// went away, or has no leader, is waited for as in Wait. It returns what was last read, also beside an error.
func Watch[T any](ctx context.Context, every time.Duration, read func(context.Context) (T, error), until func(T) bool) (T, error) {
	var last T
	var away time.Time
	for {
		next, err := read(ctx)
		pause := every
		switch {
		case err == nil:
			last, away = next, time.Time{}
			if until(last) {
				return last, nil
			}
		case ctx.Err() != nil:
			return last, ctx.Err()
		case !(errors.Is(err, ErrUnreachable) || IsProblem(err, v1.ProblemNoLeader)) || (!away.IsZero() && time.Since(away) > awayFor):
			return last, err
		default:
			if away.IsZero() {
				away = time.Now()
			}
			pause = max(every, awayRetry)
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pause):
		}
	}
}
