package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

func (n *Node) transfer(ctx context.Context, l *life, to string) error {
	l.transfers.Add(1)
	defer l.transfers.Add(-1)
	f := l.raft.LeadershipTransfer
	if to != "" {
		for _, s := range l.raft.GetConfiguration().Configuration().Servers {
			if string(s.ID) == to {
				f = func() raft.Future { return l.raft.LeadershipTransferToServer(s.ID, s.Address) }
			}
		}
	}
	// Raft gives the other server one election time-out to take over. A busy disk alone may take as long.
	var err error
	for range 3 {
		if err = n.wait(ctx, l, f()); err == nil {
			return n.awaitLoss(ctx)
		}
		if now, _ := n.Leadership(); !now.Leads {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond): // until raft has given the last attempt up
		}
	}
	return fmt.Errorf("it did not take over: %w", err)
}

// awaitLoss returns once this server does not lead.
func (n *Node) awaitLoss(ctx context.Context) error {
	for {
		now, changed := n.Leadership()
		if !now.Leads {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handing detects a transfer of leadership that raft 1.7.3 never ends. A second transfer, to a server that hangs, waits to notify that
// server's replication. If leadership is lost, the replication ends without receiving that. This raft then believes for ever that a
// transfer is under way, and takes no entry, even if it leads again. Only a new instance of raft helps.
type handing struct {
	transfers atomic.Int32 // of ours that are under way
	refused   atomic.Int64 // since when entries are refused for one that is not, nanoseconds since 1970; 0: they are not
}

// stuckFor is how many election timeouts a transfer must last to count as stuck: longer than raft goes on with a transfer that
// was given up.
const stuckFor = 10

var errStuck = errors.New("raft does not end a transfer of leadership, and is begun again")

// hears takes in the outcome of an entry.
func (h *handing) hears(err error, now time.Time, election time.Duration) (stuck bool) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) || h.transfers.Load() > 0 {
		h.refused.Store(0)
		return false
	}
	h.refused.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, h.refused.Load())) > stuckFor*election
}
