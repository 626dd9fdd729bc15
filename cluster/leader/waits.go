package leader

import (
	"context"
	"sync"
	"time"

	"evenkeel/cluster/waits"
)

// waiting is since when things wait, as far as a term knows.
type waiting struct {
	mu      sync.Mutex // protects tracker
	tracker waits.Tracker
}

// watchWaits notes since when things wait, until ctx ends. It knows that only since this server leads.
func (c *Service) watchWaits(ctx context.Context) {
	tick := time.NewTicker(waitsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		c.Late()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Late returns what waits for longer than it should, the longest first; a server that does not lead knows of none.
func (c *Service) Late() []waits.Late {
	if !c.o.Log.Leads() {
		return nil
	}
	t, s := c.current.Load(), c.o.State.Snapshot()
	all := waits.Of(s, func(host string) string { return t.unavailable(s, host) })
	t.waiting.mu.Lock()
	defer t.waiting.mu.Unlock()
	return t.waiting.tracker.Evaluate(c.o.Now(), all)
}
