package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"evenkeel/internal/statefile"
)

// The writes for which Options.Fault is asked.
const (
	WriteLog      = "log"      // entries of the log
	WriteTrim     = "trim"     // entries taken off one of its ends
	WriteVote     = "vote"     // the term, and the server for which this one voted
	WriteSnapshot = "snapshot" // a part of a snapshot
)

// disk has what a server must not forget.
type disk interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// openDisk opens what the options name: the directory's files, or memory.
func openDisk(o Options, logger *hclogAdapter) (d disk, snapshots raft.SnapshotStore, err error) {
	if o.Memory != nil {
		if err := o.Memory.disk.open(); err != nil {
			return nil, nil, err
		}
		return o.Memory.disk, o.Memory.disk, nil
	}
	file := filepath.Join(o.Dir, "raft.db")
	if err := checkDB(file); err != nil {
		return nil, nil, err
	}
	defer func() {
		if p := recover(); p != nil { // of bbolt, about what the check did not find
			err = &statefile.Damaged{Path: file, Err: fmt.Errorf("%v", p)}
		}
	}()
	store, err := raftboltdb.New(raftboltdb.Options{Path: file, BoltOptions: &bbolt.Options{
		Timeout: 2 * time.Second,
		// Which pages are free is found out when the file is opened, not written with every entry: pages of trimmed entries
		// are used again, so that the file stays as large as the log once was, most of it free.
		NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("%s is in use by another process", file)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("log: %w", err)
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, 3, logger)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("snapshots: %w", err), store.Close())
	}
	if err := checkLog(store, snaps, o.Dir); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, snaps, nil
}

// storage is a disk as one life of a server uses it. The first write that fails ends that life: nothing is written after it, as
// if the server had crashed there.
type storage struct {
	disk
	fault   func(write string) error
	appends *appendTimes
	// failed is called with the first failed write once the server runs; before that a failure is an error of opening.
	failed  func(error)
	running atomic.Bool
	dead    atomic.Bool
}

var errDead = errors.New("an earlier write failed")

func (s *storage) write(what string, f func() error) error {
	if s.dead.Load() {
		return errDead
	}
	var err error
	if s.fault != nil {
		err = s.fault(what)
	}
	if err == nil {
		err = f()
	}
	if err != nil && s.running.Load() && s.dead.CompareAndSwap(false, true) {
		s.failed(fmt.Errorf("write %s: %w", what, err))
	}
	return err
}

// StoreLog implements raft.LogStore.
func (s *storage) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *storage) StoreLogs(l []*raft.Log) error {
	s.appends.begin(time.Now())
	err := s.write(WriteLog, func() error { return s.disk.StoreLogs(l) })
	s.appends.end(time.Now())
	return err
}

// DeleteRange implements raft.LogStore.
func (s *storage) DeleteRange(from, to uint64) error {
	return s.write(WriteTrim, func() error { return s.disk.DeleteRange(from, to) })
}

// Set implements raft.StableStore.
func (s *storage) Set(key, value []byte) error {
	return s.write(WriteVote, func() error { return s.disk.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (s *storage) SetUint64(key []byte, value uint64) error {
	err := s.write(WriteVote, func() error { return s.disk.SetUint64(key, value) })
	if err != nil && s.running.Load() {
		// The library answers a term that it cannot save with a panic, which would take agents and VMs' leases down with this
		// server. Its goroutine ends here instead: it runs its deferred functions, on which others wait, and nothing after.
		runtime.Goexit()
	}
	return err
}

// probe tests whether there is space again, with more than one usual entry.
func (s *storage) probe() error {
	key := []byte("evenkeel-probe")
	if err := s.Set(key, make([]byte, 1<<20)); err != nil {
		return err
	}
	if err := s.Set(key, nil); err != nil {
		return err
	}
	if s.fault != nil {
		return s.fault(WriteLog)
	}
	return nil
}

// faultySnapshots asks Options.Fault about each part of a snapshot that is written.
type faultySnapshots struct {
	raft.SnapshotStore
	fault func(write string) error
}

// Create implements raft.SnapshotStore.
func (f faultySnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := f.SnapshotStore.Create(v, index, term, c, ci, t)
	if err != nil {
		return nil, err
	}
	return faultySink{sink, f.fault}, nil
}

type faultySink struct {
	raft.SnapshotSink
	fault func(write string) error
}

// Write implements io.Writer.
func (f faultySink) Write(b []byte) (int, error) {
	if err := f.fault(WriteSnapshot); err != nil {
		return 0, err
	}
	return f.SnapshotSink.Write(b)
}
