package member

import (
	"context"
	"time"
)

// A server that was started counts as caught up once it has applied all of its log, and heard of the leader, for caughtUpFor. Entries
// that it missed while it was away come in batches, with less time than that between them.
const (
	caughtUpFor   = 2 * time.Second
	caughtUpEvery = 100 * time.Millisecond
	maxUnderWay   = 64 // entries that it may have yet to apply all the same: on a busy server some always are
)

// CaughtUp says whether this server has all that was acknowledged before it was started. Then an object that its state lacks does not
// exist, unless it was made in the last moment.
func (m *Member) CaughtUp() bool {
	here, _ := m.Leader()
	return here || m.caughtUp.Load()
}

// watchCatchUp waits until this server has caught up.
func (m *Member) watchCatchUp(ctx context.Context) {
	tick := time.NewTicker(caughtUpEvery)
	defer tick.Stop()
	since := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s := m.node.Stats()
			_, made := m.State.Snapshot().Meta()
			heard := s.Contact >= 0 && s.Contact <= caughtUpFor
			if s.Down != "" || !made || !heard || s.Applied+maxUnderWay < s.Index {
				since = now
			}
			if now.Sub(since) >= caughtUpFor {
				m.caughtUp.Store(true)
				return
			}
		}
	}
}
