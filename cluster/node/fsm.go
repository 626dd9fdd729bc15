package node

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// fsm lets raft apply entries to the state.
type fsm struct {
	store *state.Store
	// has is the index up to which the state had everything when raft was started; 0 once the state was replaced.
	has uint64
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any {
	if l.Index <= f.has {
		return nil // the log is read again from an older snapshot on
	}
	return f.store.Apply(l.Index, l.Data)
}

// ApplyBatch implements raft.BatchingFSM.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	var entries []state.Entry
	var of []int // which of the logs each is
	for i, l := range logs {
		if l.Type == raft.LogCommand && l.Index > f.has {
			entries, of = append(entries, state.Entry{Index: l.Index, Data: l.Data}), append(of, i)
		}
	}
	for i, err := range f.store.ApplyAll(entries) {
		if err != nil {
			out[of[i]] = err
		}
	}
	return out
}

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	return saved{save: f.store.Snapshot().Save}, nil
}

// Restore implements raft.FSM.
func (f *fsm) Restore(from io.ReadCloser) error {
	defer from.Close()
	f.has = 0
	return f.store.Restore(from)
}

type saved struct{ save func(io.Writer) error }

// Persist implements raft.FSMSnapshot.
func (s saved) Persist(sink raft.SnapshotSink) error {
	if err := s.save(&unhurried{to: sink, since: time.Now()}); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// unhurried writes with pauses: no caller waits for a snapshot, and all servers take theirs at about the same time, while
// requests do wait.
type unhurried struct {
	to     io.Writer
	since  time.Time     // the last write was done
	paused time.Duration // in all
}

// How an unhurried writer pauses: for pauseTimes the time worked, at most maxPause at once and pauseInAll in all: a server that
// is stopped waits for its snapshot.
const (
	pauseTimes = 3
	maxPause   = 20 * time.Millisecond
	pauseInAll = 2 * time.Second
)

func (u *unhurried) Write(p []byte) (int, error) {
	n, err := u.to.Write(p)
	if pause := min(pauseTimes*time.Since(u.since), maxPause); u.paused < pauseInAll {
		time.Sleep(pause) // sleep: leaves the CPU to others
		u.paused += pause
	}
	u.since = time.Now()
	return n, err
}

// Release implements raft.FSMSnapshot.
func (saved) Release() {}
