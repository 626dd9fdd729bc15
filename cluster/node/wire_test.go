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

// Raft judges a voter and a stranger by their own names, and a server without a vote as if it had one.
func TestNameInRequestsForVotes(t *testing.T) {
	w := newWire(nil, nil)
	if got := w.vouch(&raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("s3")}}).(*raft.RequestVoteRequest); string(got.ID) != "s3" {
		t.Errorf("no raft runs, and s3 is named %s", got.ID)
	}
	servers := func() []raft.Server {
		return []raft.Server{{ID: "s1", Suffrage: raft.Voter}, {ID: "s2", Suffrage: raft.Voter}, {ID: "s3", Suffrage: raft.Nonvoter}}
	}
	w.servers.Store(&servers)
	for candidate, want := range map[string]string{"s1": "s1", "s2": "s2", "s3": "s2", "s9": "s9", "": ""} {
		asked := &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte(candidate)}}
		if got := w.vouch(asked).(*raft.RequestPreVoteRequest); string(got.ID) != want || string(asked.ID) != candidate {
			t.Errorf("%q is named %q, not %q; the sender's own request names %q", candidate, got.ID, want, asked.ID)
		}
	}
	if beat := (&raft.AppendEntriesRequest{}); w.vouch(beat) != any(beat) {
		t.Error("another request was changed")
	}
}
