package node

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Heartbeats do not touch the disk. So Raft does not notice a leader whose log takes long to write, though every change takes
// as long. Such a leader transfers leadership, if a voter's log is quick.

// Appends sums up a server's writes to its log in the last 30 s.
type Appends struct {
	Count   int           `json:"count"`
	Slowest time.Duration `json:"slowest"` // nanoseconds
	// Slow is the time spent in appends that took over Autopilot.SlowAppend, since the last one that did not, nanoseconds.
	Slow time.Duration `json:"slow,omitempty"`
}

// appendWindow is how far back Appends go, in seconds.
const appendWindow = 30

// appendTimes measures a server's appends, which are made one at a time.
type appendTimes struct {
	limit time.Duration // over which an append is slow

	mu      sync.Mutex
	began   time.Time     // of the one under way; zero: none is
	slow    time.Duration // see Appends
	seconds [appendWindow]appendSecond
}

// appendSecond sums up the appends that ended in one second.
type appendSecond struct {
	at      int64 // since 1970
	count   int
	slowest time.Duration
}

func (a *appendTimes) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = now
}

func (a *appendTimes) end(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := now.Sub(a.began)
	a.began = time.Time{}
	if took > a.limit {
		a.slow += took
	} else {
		a.slow = 0
	}
	s := &a.seconds[now.Unix()%appendWindow]
	if s.at != now.Unix() {
		*s = appendSecond{at: now.Unix()}
	}
	s.count, s.slowest = s.count+1, max(s.slowest, took)
}

// lately returns the appends up to now. Of an append under way that is slow already the time so far counts.
func (a *appendTimes) lately(now time.Time) Appends {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Appends{}
	for _, s := range a.seconds {
		if s.at > now.Unix()-appendWindow {
			out.Count, out.Slowest = out.Count+s.count, max(out.Slowest, s.slowest)
		}
	}
	if out.Count > 0 {
		out.Slow = a.slow
	}
	if !a.began.IsZero() && now.Sub(a.began) > a.limit {
		out.Slow += now.Sub(a.began)
		out.Slowest = max(out.Slowest, now.Sub(a.began))
	}
	return out
}

// quickAppends is how many appends a voter's log must have in the window to count as quick, all of them at most half as long as a slow
// one. So no log counts as quick if all are equally slow. A log that was slow counts as quick only after a whole window without a slow
// append.
const quickAppends = 2

// successor is the voter to which a leader transfers leadership, "" if the leader keeps it: its own log must have been slow for
// SlowFor, and the voter's quick.
func (a Autopilot) successor(leader string, servers []Server) string {
	to, shortest := "", time.Duration(0)
	for _, s := range servers {
		lately := s.Stats.Appends
		switch {
		case s.ID == leader:
			if lately.Slow < a.SlowFor {
				return ""
			}
		case !s.Voter || !s.Healthy || lately.Count < quickAppends || lately.Slow > 0 || lately.Slowest > a.SlowAppend/2:
		case to == "" || lately.Slowest < shortest:
			to, shortest = s.ID, lately.Slowest
		}
	}
	return to
}

// slowLog describes a server's log that is slow; "": it is not.
func (a Autopilot) slowLog(lately Appends) string {
	if lately.Slow < a.SlowFor {
		return ""
	}
	return fmt.Sprintf("its log is slow: each append to it took over %s for %s, the longest %s; look at its disk",
		a.SlowAppend, lately.Slow.Round(100*time.Millisecond), lately.Slowest.Round(100*time.Millisecond))
}

// handOnAgain is how long after an attempt in vain the leader tries again.
const handOnAgain = 30 * time.Second

// watchLog transfers leadership when this server's log is slow, until ctx ends.
func (p *pilot) watchLog(ctx context.Context) {
	wait := p.conf.Every
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = p.conf.Every
		servers := p.node.Servers()
		to := p.conf.successor(p.node.id, servers)
		if to == "" {
			continue
		}
		p.node.log.Warn("leadership is handed on", "to", to, "why", p.conf.slowLog(p.node.Stats().Appends))
		if err := p.node.TransferLeadership(ctx, to); err != nil && ctx.Err() == nil {
			p.node.log.Warn("leadership is not handed on", "to", to, "err", err)
			wait = handOnAgain
		}
	}
}
