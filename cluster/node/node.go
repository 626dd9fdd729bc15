package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"evenkeel/cluster/state"
)

var (
	// ErrNotLeader: this server does not lead now; ask another, or later.
	ErrNotLeader = errors.New("not the leader")
	// ErrClosed: the node was closed.
	ErrClosed = errors.New("node is closed")
	// ErrUnknown: the entry may or may not be in the log.
	ErrUnknown = errors.New("outcome unknown")
)

// Options of a node.
type Options struct {
	Dir       string         // holds raft.db and snapshots/
	ID        string         // of this server, for ever
	Transport raft.Transport // nil: a server alone, reachable by nobody
	State     *state.Store
	Log       *slog.Logger
	// Used: the directory was used before, so that a missing or empty log is an
	// error and not a new cluster.
	Used bool
	// SnapshotEvery so many log entries; 0 = 8192. Trailing are kept behind it.
	SnapshotEvery uint64
	Trailing      uint64

	// voters of a new cluster; nil: this server alone. Only tests set it, as long as there is
	// no way to join a cluster.
	voters []raft.Server
}

// Node is one Raft server.
type Node struct {
	raft  *raft.Raft
	store *raftboltdb.BoltStore
	state *state.Store
	id    string
	// settled is the last term in which this server led and had applied all that was
	// committed before it.
	settled atomic.Uint64
}

// Open starts the server on what its directory holds. A directory without a
// log becomes a cluster of this one voter.
func Open(o Options) (*Node, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open node %s: %w", o.ID, err)
	}
	store, err := raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(o.Dir, "raft.db"),
		BoltOptions: &bbolt.Options{Timeout: 2 * time.Second},
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open node %s: %s is in use by another process", o.ID, filepath.Join(o.Dir, "raft.db"))
	}
	if err != nil {
		return nil, fmt.Errorf("open node %s: log: %w", o.ID, err)
	}
	n, err := start(o, store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open node %s: %w", o.ID, err), store.Close())
	}
	return n, nil
}

func start(o Options, store *raftboltdb.BoltStore) (*Node, error) {
	logger := &hclogAdapter{log: o.Log.With("part", "raft"), alone: o.Transport == nil}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, 3, logger)
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(o.ID)
	conf.Logger = logger
	conf.SnapshotThreshold, conf.TrailingLogs = 8192, 4096
	if o.SnapshotEvery > 0 {
		conf.SnapshotThreshold, conf.TrailingLogs = o.SnapshotEvery, o.Trailing
		conf.SnapshotInterval = time.Second
	}
	transport := o.Transport
	if transport == nil {
		_, transport = raft.NewInmemTransport(raft.ServerAddress(o.ID))
		// Nobody else votes, so nobody's network needs patience.
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	}
	has, err := raft.HasExistingState(store, store, snaps)
	if err != nil {
		return nil, fmt.Errorf("look for an earlier log: %w", err)
	}
	if !has && o.Used {
		return nil, fmt.Errorf("%s was used before, but its log is empty: bring raft.db back, or start anew in another directory (VMs of the old cluster run on as strangers)", o.Dir)
	}
	if !has {
		first := raft.Configuration{Servers: o.voters}
		if o.voters == nil {
			first.Servers = []raft.Server{{ID: conf.LocalID, Address: transport.LocalAddr()}}
		}
		if err := raft.BootstrapCluster(conf, store, store, snaps, transport, first); err != nil {
			return nil, fmt.Errorf("bootstrap: %w", err)
		}
	}
	r, err := raft.NewRaft(conf, fsm{o.State}, store, store, snaps, transport)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return &Node{raft: r, store: store, state: o.State, id: o.ID}, nil
}

// Apply puts an entry into the log and returns once it is committed and
// applied here. outcome is what state.Store.Apply said of it; err means that it is not
// known to be in the log: ErrNotLeader says that it is not, ErrUnknown that it may be.
func (n *Node) Apply(ctx context.Context, entry []byte) (index uint64, outcome, err error) {
	timeout := 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Millisecond, time.Until(deadline))
	}
	f := n.raft.Apply(entry, timeout)
	if err := wait(ctx, f); err != nil {
		return 0, nil, fmt.Errorf("apply entry: %w", err)
	}
	if e, ok := f.Response().(error); ok {
		outcome = e
	}
	return f.Index(), outcome, nil
}

// Linearize returns once the state here holds every entry that was
// acknowledged by anyone before the call.
func (n *Node) Linearize(ctx context.Context) error {
	// What this server acknowledged in its term it has applied. What others did before is
	// applied once a barrier of this term has come through; neither the commit index nor
	// the applied index says so (a new leader does not know yet what is committed, and
	// raft counts an entry as applied when it is handed over, not when it is in the state).
	for {
		term := n.raft.CurrentTerm()
		if n.settled.Load() != term {
			if err := wait(ctx, n.raft.Barrier(10*time.Second)); err != nil {
				return fmt.Errorf("linearizable read: %w", err)
			}
			n.settled.Store(term)
		}
		if err := wait(ctx, n.raft.VerifyLeader()); err != nil {
			return fmt.Errorf("linearizable read: %w", err)
		}
		if n.raft.CurrentTerm() == term {
			return nil
		}
	}
}

// Lead waits until this server leads and its state holds all that was
// committed before its term.
func (n *Node) Lead(ctx context.Context) error {
	for {
		err := wait(ctx, n.raft.Barrier(time.Second))
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return fmt.Errorf("wait for leadership: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-n.raft.LeaderCh():
		case <-time.After(20 * time.Millisecond): // raft signals leadership before the first entry of the term is in
		}
	}
}

// Leader is the id of the server that leads, "" if none is known.
func (n *Node) Leader() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// Leads says whether this server believes that it leads.
func (n *Node) Leads() bool { return n.raft.State() == raft.Leader }

// Status in words and figures, for people.
func (n *Node) Status() map[string]string { return n.raft.Stats() }

// Snapshot saves the state now and lets the log before it go.
func (n *Node) Snapshot() error {
	if err := n.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Close stops the server. What was acknowledged is on disk already.
func (n *Node) Close() error {
	err := n.raft.Shutdown().Error()
	return errors.Join(err, n.store.Close())
}

// wait for a future, translated to our errors.
func wait(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// fsm lets raft drive the state.
type fsm struct{ store *state.Store }

// Apply implements raft.FSM.
func (f fsm) Apply(l *raft.Log) any { return f.store.Apply(l.Index, l.Data) }

// Snapshot implements raft.FSM.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) { return saved{f.store.Snapshot()}, nil }

// Restore implements raft.FSM.
func (f fsm) Restore(from io.ReadCloser) error {
	defer from.Close()
	return f.store.Restore(from)
}

type saved struct{ *state.Snapshot }

// Persist implements raft.FSMSnapshot.
func (s saved) Persist(sink raft.SnapshotSink) error {
	if err := s.Save(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (saved) Release() {}
