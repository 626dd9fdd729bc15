package control

import (
	"context"
	"time"

	"evenkeel/cluster/state"
)

// fencing is the fencing of one host by its device.
type fencing struct {
	busy bool
	said string // why it was in vain
	next time.Time
}

// fenceAgain is how long after a device did not confirm it is tried again.
const fenceAgain = 30 * time.Second

// fence starts the host's fence device, unless it is at work.
func (c *Control) fence(ctx context.Context, host string, basis uint64) {
	c.mu.Lock()
	f := c.fencing[host]
	if f == nil {
		f = &fencing{}
		c.fencing[host] = f
	}
	busy := f.busy || c.o.Now().Before(f.next)
	if !busy {
		f.busy = true
	}
	term := c.term
	c.mu.Unlock()
	if busy {
		return
	}
	go func() {
		proof, err := c.off(ctx, host)
		if err == nil && c.termNow() != term { // the power may be on again since
			err = ErrNoLeader
		}
		if err == nil {
			err = c.hostFailed(ctx, host, basis, state.ProofFence, proof)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		f.busy, f.next, f.said = false, c.o.Now().Add(fenceAgain), ""
		if err != nil {
			f.said = err.Error()
			c.log.Error("fence", "host", host, "error", err)
		}
	}()
}
