package control

import (
	"context"
	"time"

	"evenkeel/cluster/waits"
)

// waitsEvery is how often the leader looks at what waits.
const waitsEvery = 10 * time.Second

// watchWaits until ctx ends: since when things wait is known since this server leads.
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

// Late is what waits for longer than it should, the longest first; none is known to a server that does not lead.
func (c *Control) Late() []waits.Late {
	if !c.o.Log.Leads() {
		c.waiting.Lock()
		defer c.waiting.Unlock()
		c.waiting.tracker = waits.Tracker{}
		return nil
	}
	s := c.o.State.Snapshot()
	all := waits.Of(s, c.unavailable(s))
	c.waiting.Lock()
	defer c.waiting.Unlock()
	return c.waiting.tracker.Evaluate(c.o.Now(), all)
}
