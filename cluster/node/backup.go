package node

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// backupFormat names the file that Save writes: a line with a Header, and the state as
// state.Snapshot.Save writes it, with its own seal.
const (
	backupFormat  = "evenkeel-snapshot"
	backupVersion = 1
	maxHeader     = 64 << 10 // bytes of the first line
)

// errEmpty says that there is nothing to save.
var errEmpty = errors.New("this server holds no cluster yet")

// Header is the first line of a saved snapshot.
type Header struct {
	Format   string    `json:"format"`
	Version  int       `json:"v"`
	Cluster  string    `json:"cluster"`
	Epoch    uint64    `json:"epoch"`
	Index    uint64    `json:"index"` // of the last entry in it
	Term     uint64    `json:"term"`  // in which it was saved
	Time     time.Time `json:"time"`  // by the clock of the server that saved it
	Server   string    `json:"server"`
	Software string    `json:"software"`
	SHA256   string    `json:"sha256"` // of this line without this field
}

func (h Header) seal() (string, error) {
	h.SHA256 = ""
	b, err := json.Marshal(h)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Saved describes a saved snapshot.
type Saved struct {
	Header
	Hosts      int `json:"hosts"`
	Members    int `json:"members"`
	VCs        int `json:"virtualClusters"`
	VMs        int `json:"vms"`
	Images     int `json:"images"`
	Operations int `json:"operations"`
	Events     int `json:"events"`
}

// Save writes the state to a file that Inspect and Restore read. It has everything that was acknowledged before the call; only
// the leader can give that.
func (n *Node) Save(ctx context.Context, w io.Writer) error {
	if err := n.Linearize(ctx); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	_, err := n.save(w)
	return err
}

// save writes the state as it is on this server.
func (n *Node) save(w io.Writer) (Header, error) {
	term, snap := n.Term(), n.state.Snapshot()
	meta, ok := snap.Meta()
	if !ok {
		return Header{}, fmt.Errorf("save snapshot: %w", errEmpty)
	}
	h := Header{Format: backupFormat, Version: backupVersion, Cluster: meta.ID, Epoch: meta.Epoch, Index: snap.Index(), Term: term,
		Time: time.Now().UTC(), Server: n.id, Software: n.o.Version}
	var err error
	if h.SHA256, err = h.seal(); err == nil {
		err = json.NewEncoder(w).Encode(h)
	}
	if err == nil {
		err = snap.Save(w)
	}
	if err != nil {
		return h, fmt.Errorf("save snapshot: %w", err)
	}
	return h, nil
}

// Inspect reads a saved snapshot, checks that it is whole and unchanged, and describes it.
func Inspect(r io.Reader) (Saved, error) {
	saved, _, err := inspect(r)
	if err != nil {
		return Saved{}, fmt.Errorf("inspect snapshot: %w", err)
	}
	return saved, nil
}

// inspect also returns the state's part of the file.
func inspect(r io.Reader) (Saved, []byte, error) {
	in := bufio.NewReaderSize(r, maxHeader)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return Saved{}, nil, fmt.Errorf("first line: %w", err)
	}
	h, err := parseHeader(line)
	if err != nil {
		return Saved{}, nil, fmt.Errorf("first line: %w", err)
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return Saved{}, nil, err
	}
	s := state.New()
	if err := s.Restore(bytes.NewReader(body)); err != nil {
		return Saved{}, nil, err
	}
	snap := s.Snapshot()
	meta, _ := snap.Meta()
	if meta.ID != h.Cluster || meta.Epoch != h.Epoch || snap.Index() != h.Index {
		return Saved{}, nil, fmt.Errorf("the first line is of cluster %q, epoch %d, index %d, the state below it of %q, %d, %d",
			h.Cluster, h.Epoch, h.Index, meta.ID, meta.Epoch, snap.Index())
	}
	return Saved{Header: h, Hosts: len(snap.Hosts()), Members: len(snap.Members()), VCs: len(snap.VCs()), VMs: len(snap.VMs()), Images: len(snap.Images()),
		Operations: len(snap.Operations()), Events: len(snap.EventsAfter(0, 0))}, body, nil
}

func parseHeader(line []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(line, &h); err != nil {
		return h, err
	}
	if h.Format != backupFormat || h.Version < 1 || h.Version > backupVersion {
		return h, fmt.Errorf("format %q version %d, this program knows %q 1 to %d", h.Format, h.Version, backupFormat, backupVersion)
	}
	if want, err := h.seal(); err != nil || want != h.SHA256 {
		return h, errors.Join(errors.New("it was changed since it was saved"), err)
	}
	return h, nil
}

// restorePart is how many bytes of a saved state go into one entry of the log, where nothing else is set: Raft sends up to 64
// entries at once. maxRestored is how many bytes of a saved state a server accepts: all servers have them in memory, several
// times over, while the saved state replaces theirs.
const (
	restorePart = 128 << 10
	maxRestored = 256 << 20
)

// Restore puts a saved snapshot in force on all servers. Only the leader can. The new state is under a recovery freeze (see
// state.PrepareRestore): nothing is started or stopped until the hosts have reported what they run. A snapshot of another
// cluster is refused with ErrRefused unless foreign is set. What was in the log after the snapshot is gone. The recovery freeze
// waits for the hosts in waitFor, too. With ErrUnknown the snapshot may be in force.
func (n *Node) Restore(ctx context.Context, r io.Reader, foreign bool, waitFor ...string) (Saved, error) {
	saved, body, err := inspect(r)
	if err != nil {
		return saved, fmt.Errorf("restore snapshot: %w: %w", ErrBadSnapshot, err)
	}
	if err := n.members.take(ctx); err != nil {
		return saved, fmt.Errorf("restore snapshot: %w", err)
	}
	defer n.members.give()
	l, _, err := n.leading()
	if err == nil {
		err = n.Linearize(ctx)
	}
	if err != nil {
		return saved, fmt.Errorf("restore snapshot: %w", err)
	}
	if len(body) > maxRestored {
		return saved, fmt.Errorf("restore snapshot: %w: its state is of %d bytes; at most %d can be put in force", ErrRefused, len(body), maxRestored)
	}
	is := n.state.Snapshot()
	if now, ok := is.Meta(); ok && now.ID != saved.Cluster && !foreign {
		return saved, fmt.Errorf("restore snapshot: %w: it is of cluster %s, this is %s, whose hosts know none of its VMs; say so if it is to take this one's place",
			ErrRefused, saved.Cluster, now.ID)
	}
	what := state.Restore{ID: fmt.Sprintf("%d-%d", is.Index(), time.Now().UnixNano()), Foreign: foreign, WaitFor: waitFor,
		Text: fmt.Sprintf("the state of %s, index %d, is in force again", saved.Time.Format(time.RFC3339), saved.Index)}
	if saved.Index <= is.Index() {
		err = n.restoreInLog(ctx, is, body, what)
	} else {
		err = n.restorePastLog(ctx, l, is, saved, body, what)
	}
	if err != nil {
		return saved, fmt.Errorf("restore snapshot: %w", err)
	}
	return saved, nil
}

// restoreInLog writes the state as entries of the log: all servers change theirs at the same place in it, or none does.
func (n *Node) restoreInLog(ctx context.Context, is *state.Snapshot, body []byte, what state.Restore) error {
	size := cmp.Or(n.o.RestorePart, restorePart)
	what.Of = (len(body) + size - 1) / size
	for data := range slices.Chunk(body, size) {
		what.Data = data
		err := n.record(ctx, is, state.KindRestore, what)
		if what.Part++; errors.Is(err, ErrUnknown) && what.Part < what.Of {
			err = fmt.Errorf("%w: nothing is changed without the last part: %v", ErrNotLeader, err) //nolint:errorlint // known, as far as it counts
		}
		if err != nil {
			return fmt.Errorf("part %d of %d: %w", what.Part, what.Of, err)
		}
	}
	return nil
}

// restorePastLog is for a state whose index is above this log's, as that of another cluster may be. It uses Raft's own restore,
// which needs no quorum to begin with.
func (n *Node) restorePastLog(ctx context.Context, l *life, is *state.Snapshot, saved Saved, body []byte, what state.Restore) error {
	var buffered bytes.Buffer
	if err := state.PrepareRestore(bytes.NewReader(body), &buffered, "restore", time.Now(), is, what.WaitFor...); err != nil {
		return err
	}
	// The index must be past all logs, not only this one: a server that led once, and is away, may hold entries that were never
	// committed. If one is at the restored state's index, or after it, Raft's library finds its term in that server's log, not
	// in the snapshot that the server just took, refuses what comes next, and takes the snapshot again, for ever. No server has
	// as many such entries as there are from snapshot to snapshot. The index must not be further either: if this server loses
	// leadership before others have the restored state, it is out of step until the next leader's snapshots come past it.
	index := max(saved.Index, l.raft.LastIndex()) + l.raft.ReloadableConfig().SnapshotThreshold
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: index, Term: saved.Term, Size: int64(buffered.Len())}
	if err := n.wait(ctx, l, waited(func() error { return l.raft.Restore(meta, &buffered, changeTimeout) })); err != nil {
		return err
	}
	// Until an entry after it is applied, the state has the index with which it was saved: no reader must see that.
	if err := n.record(ctx, is, state.KindAudit, state.Audit{Kind: "snapshot-restored", Object: "cluster", Name: saved.Cluster, Text: what.Text}); err != nil {
		return fmt.Errorf("%w: it is in force, but that could not be recorded: %v", ErrUnknown, err) //nolint:errorlint // the client must not try again
	}
	return nil
}

// record puts a command into the log.
func (n *Node) record(ctx context.Context, is *state.Snapshot, kind state.Kind, body any) error {
	entry, err := is.Encode(kind, time.Now(), body)
	if err != nil {
		return err
	}
	_, outcome, err := n.Apply(ctx, entry)
	return errors.Join(err, outcome)
}

// waited makes a future of a call.
type waited func() error

// Error implements raft.Future.
func (w waited) Error() error { return w() }
