package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Memory stands for a server's disk, for simulations: it outlives the node, so that a server can crash and come back.
type Memory struct{ disk *memoryDisk }

// NewMemory returns an empty disk.
func NewMemory() *Memory { return &Memory{&memoryDisk{InmemStore: raft.NewInmemStore()}} }

// Watch calls f with each entry that is written to the log from now on; data is nil where Raft wrote the entry for itself. An entry
// may be written again, by another leader. Call it before the disk is used.
func (m *Memory) Watch(f func(index, term uint64, data []byte)) { m.disk.watch = f }

// memoryDisk implements disk and raft.SnapshotStore.
type memoryDisk struct {
	*raft.InmemStore
	mu    sync.Mutex
	used  bool
	snaps []*memorySnapshot // newest last
	watch func(index, term uint64, data []byte)
}

// StoreLogs implements raft.LogStore.
func (m *memoryDisk) StoreLogs(logs []*raft.Log) error {
	if m.watch != nil {
		for _, l := range logs {
			if l.Type == raft.LogCommand {
				m.watch(l.Index, l.Term, l.Data)
			} else {
				m.watch(l.Index, l.Term, nil)
			}
		}
	}
	return m.InmemStore.StoreLogs(logs)
}

type memorySnapshot struct {
	meta  raft.SnapshotMeta
	bytes []byte
}

func (m *memoryDisk) open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used {
		return errors.New("this memory is in use by another node")
	}
	m.used = true
	return nil
}

// Close implements disk.
func (m *memoryDisk) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = false
	return nil
}

// List implements raft.SnapshotStore.
func (m *memoryDisk) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*raft.SnapshotMeta
	for _, s := range slices.Backward(m.snaps) {
		meta := s.meta
		out = append(out, &meta)
	}
	return out, nil
}

// Open implements raft.SnapshotStore.
func (m *memoryDisk) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.snaps {
		if s.meta.ID == id {
			meta := s.meta
			return &meta, io.NopCloser(bytes.NewReader(s.bytes)), nil
		}
	}
	return nil, nil, fmt.Errorf("no snapshot %s", id)
}

// Create implements raft.SnapshotStore.
func (m *memoryDisk) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memorySink{of: m, meta: raft.SnapshotMeta{Version: v, ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixNano()),
		Index: index, Term: term, Configuration: c, ConfigurationIndex: ci}}, nil
}

type memorySink struct {
	bytes.Buffer
	of   *memoryDisk
	meta raft.SnapshotMeta
	done bool
}

// ID implements raft.SnapshotSink.
func (s *memorySink) ID() string { return s.meta.ID }

// Cancel implements raft.SnapshotSink.
func (s *memorySink) Cancel() error {
	s.done = true
	return nil
}

// Close implements raft.SnapshotSink: only now the snapshot exists.
func (s *memorySink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	s.meta.Size = int64(s.Len())
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.snaps = append(s.of.snaps, &memorySnapshot{meta: s.meta, bytes: s.Bytes()})
	if n := len(s.of.snaps); n > 3 {
		s.of.snaps = slices.Delete(s.of.snaps, 0, n-3)
	}
	return nil
}
