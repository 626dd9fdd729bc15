package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// inTransfer is what raft answers to an entry while leadership is handed over.
type inTransfer struct{}

func (inTransfer) Error() error { return raft.ErrLeadershipTransferInProgress }

// A raft that refuses all entries for a transfer that is no longer made is begun again, and no earlier than that is certain.
func TestStuckTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := Open(Options{ID: "s1", Memory: NewMemory(), State: state.New(), Log: slog.New(slog.DiscardHandler), Bootstrap: true})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() //nolint:errcheck // of no matter here
		leads := func() *life {
			t.Helper()
			for range 200 {
				if l := n.cur.Load(); l != nil && n.Leads() {
					return l
				}
				time.Sleep(100 * time.Millisecond) // sleep: simulated time
			}
			t.Fatal("it does not lead")
			return nil
		}
		ctx := context.Background()
		first := leads()
		refuse := func(times int) {
			for range times {
				if err := n.wait(ctx, first, inTransfer{}); !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
					t.Errorf("an entry that is refused: %v", err)
				}
				time.Sleep(first.election / 2) // sleep: simulated time
			}
		}
		refuse(2*stuckFor - 2)
		init, err := state.Encode(state.KindInit, time.Now(), state.Init{ID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.Apply(ctx, init); err != nil { // it was no more than slow
			t.Fatal(err)
		}
		first.transfers.Add(1)
		refuse(4 * stuckFor) // one of ours takes its time
		first.transfers.Add(-1)
		refuse(2*stuckFor - 2)
		if n.cur.Load() != first {
			t.Fatal("begun again too early")
		}
		refuse(4)
		if leads() == first {
			t.Fatal("it goes on as it is")
		}
		if _, _, err := n.Apply(ctx, init); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}
