package node

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// away is a transport to a server that is down until it is not.
type away struct {
	preVoter
	down atomic.Bool
}

func (a *away) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if a.down.Load() {
		return errors.New("connection refused")
	}
	resp.Term, resp.Success = args.Term, true
	return nil
}

// That entries did not get through is reported once the server answers again, or after a while; that a heartbeat did not, at
// once.
func TestErrorsOfEntriesAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{}
		w := newWire(a, nil)
		send := func(args raft.AppendEntriesRequest) error {
			args.Term = 3
			return w.AppendEntries("s2", "s2", &args, &raft.AppendEntriesResponse{})
		}
		beat := raft.AppendEntriesRequest{}
		entries := raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: []*raft.Log{{Index: 8}}}
		took := func(what string, f func() error, fails bool, limit time.Duration) time.Duration {
			t.Helper()
			began := time.Now()
			if err := f(); (err != nil) != fails {
				t.Errorf("%s: %v", what, err)
			}
			if d := time.Since(began); d > limit {
				t.Errorf("%s: %s", what, d)
			}
			return time.Since(began)
		}
		took("entries", func() error { return send(entries) }, false, 0)
		a.down.Store(true)
		took("a heartbeat", func() error { return send(beat) }, true, 0)
		if d := took("entries", func() error { return send(entries) }, true, delayFor); d < delayFor {
			t.Errorf("reported after %s of a server that is down", d)
		}
		go func() {
			time.Sleep(300 * time.Millisecond) // sleep: in a bubble of synctest, where time is fake
			a.down.Store(false)
			if err := send(beat); err != nil {
				t.Error(err)
			}
		}()
		if d := took("entries", func() error { return send(entries) }, true, delayFor); d != 300*time.Millisecond {
			t.Errorf("reported after %s, the server answered after 300ms", d)
		}
		a.down.Store(true)
		go func() {
			time.Sleep(100 * time.Millisecond) // sleep: in a bubble of synctest, where time is fake
			w.interrupt(false)
		}()
		took("entries when raft ends", func() error { return send(entries) }, true, 100*time.Millisecond)
	})
}
