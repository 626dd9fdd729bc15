package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
	"evenkeel/internal/statefile"
)

var (
	// ErrNotLeader: this server does not lead now; ask another, or later.
	ErrNotLeader = errors.New("not the leader")
	// ErrClosed: the node was closed.
	ErrClosed = errors.New("node is closed")
	// ErrUnknown: the entry may or may not be in the log.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused: a change of the servers would put the cluster at risk; the text says what to do.
	ErrRefused = errors.New("refused")
	// ErrBadSnapshot: a file is no snapshot, was changed since it was saved, or is of a later version.
	ErrBadSnapshot = errors.New("no good snapshot")
)

// errDown says that raft does not run now because the log cannot be written.
var errDown = errors.New("this server's log cannot be written")

// Options are the options of a node.
type Options struct {
	Dir string // holds raft.db and snapshots/
	ID  string // of this server, for ever
	// Stream carries Raft; nil: a server alone, which no other reaches. Advertise is the address under which others reach it.
	// The node closes it.
	Stream    Stream
	Advertise string
	State     *state.Store
	Log       *slog.Logger
	// Removed says whether the cluster is known to have removed this server: Raft's warnings are no news then. nil: it is not.
	Removed func() bool
	// Bootstrap makes this server the first and only voter of a new cluster, if there is no log yet. Without it,
	// a server with a Stream and no log waits until the leader of a cluster adds it.
	Bootstrap bool
	// Used: the directory was used before, so that a missing or empty log is an
	// error and not a new cluster.
	Used bool
	// SnapshotEvery is after how many log entries a snapshot is saved; 0 = 8192. Trailing is how many entries are kept behind
	// it.
	SnapshotEvery uint64
	Trailing      uint64
	// Timers of Raft; zero values are the usual ones.
	Timers Timers
	// Health asks another server for its Stats, and gives up when its context is done; nil: the leader knows of the
	// others only whether they answer Raft's messages, and Autopilot is off.
	Health    func(ctx context.Context, of Server) (Stats, error)
	Autopilot Autopilot

	// Version of the program, for the files that Save writes.
	Version string

	// Memory is the disk instead of Dir, for simulations.
	Memory *Memory
	// Fault is asked before every write to the disk (WriteLog and so on); its error is
	// what the write fails with. For tests and simulations.
	Fault func(write string) error

	// RestorePart is how much of a state that is restored goes into an entry of the log, bytes; 0 = 128 KiB.
	RestorePart int

	// Only tests of this package set these: another transport, several first voters.
	transport preVoter
	voters    []raft.Server
}

// cachedEntries is how many entries of the log are kept in memory, the newest ones.
const cachedEntries = 256

// usualBeat is the heartbeat where Timers.Heartbeat is not set.
const usualBeat = 700 * time.Millisecond

// Timers are the timers of Raft.
type Timers struct {
	// Heartbeat is how long a server waits for a message of the leader before it stands for election itself; 0 = 0.7 s (100 ms
	// for a server alone). Elections take as long at most. A leader that has no answer of a majority for half as long gives up
	// leadership.
	Heartbeat time.Duration
	// Retry is how long a server whose log cannot be written waits before it tries again, longer each time; 0 = 1 s.
	Retry time.Duration
}

// Node is one Raft server.
type Node struct {
	o      Options
	log    *slog.Logger
	hclog  *hclogAdapter
	wire   *wire
	state  *state.Store
	id     string
	cur    atomic.Pointer[life]  // nil while the log cannot be written
	why    atomic.Pointer[error] // of it
	closed chan struct{}         // closed by Close
	end    context.CancelFunc    // ends what runs beside raft
	group  sync.WaitGroup

	// appliedTerm is the last term in which this server led and had applied all that was
	// committed before it.
	appliedTerm atomic.Uint64
	lead        leadership
	verify      verifier
	intake      intake
	pilot       pilot
	appends     appendTimes
	members     turn // one change of the servers at a time

	closing sync.Once
	failure error // of Close
}

// life is an instance of raft, from one opening of the disk to its end.
type life struct {
	raft   *raft.Raft
	disk   disk
	snaps  raft.SnapshotStore
	notify chan bool
	failed chan error    // a write failed, or raft did; the first counts
	over   chan struct{} // closed when this raft has ended

	waits    atomic.Int64  // callers that wait for an outcome
	answered chan struct{} // has a place for one: some have stopped waiting

	handing
	election time.Duration // its time, after which raft gives a transfer up
}

func (l *life) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// Open starts the server on the content of its directory.
func Open(o Options) (*Node, error) {
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{o: o, state: o.State, id: o.ID, members: make(turn, 1), closed: make(chan struct{}), end: cancel}
	n.log = o.Log.With("part", "raft")
	n.hclog = newHclog(n.log, n.alone())
	n.hclog.removed = o.Removed
	n.lead.init()
	n.appends.limit = o.Autopilot.defaults().SlowAppend
	if o.Memory == nil {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			cancel()
			return nil, fmt.Errorf("open node %s: %w", o.ID, err)
		}
	}
	n.wire = n.openWire()
	go n.wire.pass()
	l, err := n.startTerm(true)
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("open node %s: %w", o.ID, err), n.wire.close())
	}
	n.cur.Store(l)
	n.pilot.init(n)
	n.group.Go(func() { n.live(ctx, l) })
	return n, nil
}

// alone says whether no other server can reach this one.
func (n *Node) alone() bool { return n.o.Stream == nil && n.o.transport == nil }

func (n *Node) openWire() *wire {
	switch {
	case n.o.transport != nil:
		return newWire(n.o.transport, nil)
	case n.o.Stream == nil:
		_, t := raft.NewInmemTransport(raft.ServerAddress(n.o.ID))
		return newWire(t, nil)
	}
	l := &layer{Stream: n.o.Stream, advertise: n.o.Advertise, conns: map[*conn]struct{}{}}
	return newWire(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: n.hclog, Stream: l, MaxPool: 3, Timeout: 10 * time.Second, MsgpackUseNewTimeFormat: true}), l)
}

func (n *Node) config() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.o.ID)
	conf.Logger = n.hclog
	// After a restart a server applies the log since the last snapshot again. All servers have about as many entries at a time. A long
	// interval, at random times, keeps servers that share a machine or a disk from saving at once. TrailingLogs is some 15 s of a busy
	// cluster: a server that restarts within that needs no snapshot.
	conf.SnapshotThreshold, conf.TrailingLogs, conf.SnapshotInterval = 8192, 8192, 8*time.Second
	if n.o.SnapshotEvery > 0 {
		conf.SnapshotThreshold, conf.TrailingLogs = n.o.SnapshotEvery, n.o.Trailing
		conf.SnapshotInterval = time.Second
	}
	beat := n.o.Timers.Heartbeat
	if beat == 0 && n.alone() {
		beat = 100 * time.Millisecond // no other server votes, so no network needs patience
	}
	// A follower waits for one to two heartbeat time-outs, and once more if the last message came just before. So it may take three
	// until it stands for election, and more than 3 s without a leader are too many.
	conf.HeartbeatTimeout, conf.ElectionTimeout = usualBeat, usualBeat
	if beat > 0 {
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = beat, beat, max(5*time.Millisecond, beat/2)
		conf.CommitTimeout = min(conf.CommitTimeout, max(time.Millisecond, beat/4))
	}
	return conf
}

// startTerm opens the disk and starts raft on it.
func (n *Node) startTerm(first bool) (l *life, err error) {
	d, snaps, err := openDisk(n.o, n.hclog)
	if err != nil {
		return nil, err
	}
	defer func() {
		// The library panics when it cannot write its term, or cannot read its log.
		if p := recover(); p != nil {
			err = fmt.Errorf("start raft: %v", p)
		}
		if err != nil {
			l, err = nil, errors.Join(err, d.Close())
		}
	}()
	l = &life{disk: d, snaps: snaps, notify: make(chan bool, 1), failed: make(chan error, 1), over: make(chan struct{}), answered: make(chan struct{}, 1)}
	store := &storage{disk: d, fault: n.o.Fault, failed: l.fail, appends: &n.appends}
	if n.o.Fault != nil {
		l.snaps = faultySnapshots{snaps, n.o.Fault}
	}
	conf := n.config()
	conf.NotifyCh, l.election = l.notify, conf.ElectionTimeout
	if !first {
		if err := store.probe(); err != nil {
			return nil, err
		}
	}
	has, err := raft.HasExistingState(store, store, l.snaps)
	if err != nil {
		return nil, fmt.Errorf("look for an earlier log: %w", err)
	}
	if !has {
		if err := n.bootstrap(conf, store, l.snaps); err != nil {
			return nil, err
		}
	}
	// A state that goes on after a failed write must not fall back to the last snapshot: what it has was committed, and does
	// not change.
	have := n.state.Snapshot().Index()
	saved, err := l.snaps.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	conf.NoSnapshotRestoreOnStart = !first && len(saved) > 0 && saved[0].Index <= have
	// Entries are read again at once: to be sent to others, or to be applied.
	cached, err := raft.NewLogCache(cachedEntries, store)
	if err != nil {
		return nil, fmt.Errorf("cache of the log: %w", err)
	}
	l.raft, err = raft.NewRaft(conf, &fsm{store: n.state, has: have}, cached, store, l.snaps, n.wire)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	running := l.raft
	servers := func() []raft.Server { return running.GetConfiguration().Configuration().Servers }
	n.wire.servers.Store(&servers)
	if err := l.hurry(n.o.ID); err != nil {
		return nil, errors.Join(fmt.Errorf("start raft: %w", err), l.raft.Shutdown().Error())
	}
	store.running.Store(true)
	return l, nil
}

// hurry has the only voter of a cluster stand for election now: it need not wait for another leader, as there can be none.
func (l *life) hurry(id string) error {
	future := l.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read the servers of the log: %w", err)
	}
	if servers := future.Configuration().Servers; len(servers) != 1 || servers[0].ID != raft.ServerID(id) || servers[0].Suffrage != raft.Voter {
		return nil
	}
	// A server that follows takes a shorter time at once, and finds that it heard no leader.
	conf := l.raft.ReloadableConfig()
	conf.HeartbeatTimeout--
	return l.raft.ReloadConfig(conf)
}

// bootstrap writes the first entry of a new cluster's log, if this server is to make one.
func (n *Node) bootstrap(conf *raft.Config, store *storage, snaps raft.SnapshotStore) error {
	if n.o.Used {
		return &statefile.Damaged{Path: filepath.Join(n.o.Dir, "raft.db"), Err: errors.New("the log of this server was used before and is empty now")}
	}
	first := raft.Configuration{Servers: n.o.voters}
	switch {
	case n.o.voters != nil:
	case n.alone() || n.o.Bootstrap:
		first.Servers = []raft.Server{{ID: conf.LocalID, Address: n.wire.LocalAddr()}}
	default:
		return nil // to be added by a leader
	}
	if err := raft.BootstrapCluster(conf, store, store, snaps, n.wire, first); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// live runs beside raft: it reports leadership, and stops a server whose log cannot be written until it can.
func (n *Node) live(ctx context.Context, l *life) {
	retry := n.o.Timers.Retry
	if retry == 0 {
		retry = time.Second
	}
	var wait time.Duration
	for l != nil {
		began := time.Now()
		err := n.watch(ctx, l)
		if err != nil {
			n.why.Store(&err)
		}
		n.cur.Store(nil)
		n.lead.lost(l.raft.CurrentTerm(), "", "")
		if err == nil {
			l.awaitOutcomes()
		}
		ended := l.raft.Shutdown()
		n.wire.interrupt(err == nil)
		n.pilot.stop()
		n.pilot.runs.Wait()
		stopErr := ended.Error()
		close(l.over)
		closeErr := l.disk.Close()
		if err == nil { // closed
			n.failure = errors.Join(stopErr, closeErr)
			return
		}
		if errors.Is(err, errStuck) {
			n.log.Error("this server is down for a moment", "err", err)
		} else {
			n.log.Error("the log cannot be written: this server is down until it can", "err", err)
		}
		end := n.wire.refuse(err)
		if time.Since(began) > 16*retry {
			wait = 0
		}
		l, wait = n.comeBack(ctx, err, retry, wait)
		end()
		if l != nil {
			n.log.Warn("this server is back")
			n.cur.Store(l)
		}
	}
}

// awaitOutcomes waits for the outcomes that callers wait for, at most for an election's time: a raft that ends forgets the entries that
// it has committed and not applied. No caller can join them.
func (l *life) awaitOutcomes() {
	limit := time.After(l.election)
	for l.waits.Load() > 0 {
		select {
		case <-l.answered:
		case <-limit:
			return
		}
	}
}

// stopWaiting ends what counted one more in waits.
func (l *life) stopWaiting() {
	l.waits.Add(-1)
	select {
	case l.answered <- struct{}{}:
	default:
	}
}

// comeBack starts raft again as soon as the log can be written; nil if the node was closed meanwhile.
func (n *Node) comeBack(ctx context.Context, why error, retry, wait time.Duration) (*life, time.Duration) {
	for {
		wait = min(max(retry, 2*wait), 30*retry)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, wait
		case <-timer.C:
		}
		l, err := n.startTerm(false)
		if err == nil {
			return l, wait
		}
		if err.Error() != why.Error() {
			n.log.Error("the log still cannot be written", "err", err)
			why = err
			n.why.Store(&err)
		}
	}
}

// Down says why this server's log cannot be written; nil if it can.
func (n *Node) Down() error {
	if n.cur.Load() != nil {
		return nil
	}
	return n.gone()
}

// gone is the error of a node without raft.
func (n *Node) gone() error {
	select {
	case <-n.closed:
		return ErrClosed
	default:
		return fmt.Errorf("%w: %w: %w", ErrNotLeader, errDown, *n.why.Load())
	}
}

// Close stops the server. What was acknowledged is on disk already.
func (n *Node) Close() error {
	n.closing.Do(func() {
		close(n.closed)
		n.verify.mu.Lock()
		n.verify.shut = true
		n.verify.mu.Unlock()
		n.intake.mu.Lock()
		n.intake.shut = true
		n.intake.mu.Unlock()
		n.end()
		n.group.Wait()
		n.failure = errors.Join(n.failure, n.wire.close())
	})
	return n.failure
}
