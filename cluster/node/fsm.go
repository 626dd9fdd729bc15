package node

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// fsm lets raft drive the state.
type fsm struct {
	store *state.Store
	// has is the index up to which the state held everything when raft was started; 0 once
	// the state was replaced.
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
	if err := s.save(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (saved) Release() {}
