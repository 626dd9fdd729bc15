package control

import (
	"context"
	"time"

	"evenkeel/cluster/waits"
)

// waitsEvery is how often the leader looks at what waits.
const waitsEvery = 10 * time.Second

// watchWaits notes since when things wait, until ctx ends. It knows that only since this server leads.
func (c *Control) watchWaits(ctx context.Context) {
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
func (c *Control) Late() []waits.Late {
	if !c.o.Log.Leads() {
		c.waiting.Lock()
		defer c.waiting.Unlock()
		c.waiting.tracker = waits.Tracker{}
		return nil
	}
	s := c.o.State.Snapshot()
	all := waits.Of(s, c.failover.Load().Unavailable(s))
	c.waiting.Lock()
	defer c.waiting.Unlock()
	return c.waiting.tracker.Evaluate(c.o.Now(), all)
}
