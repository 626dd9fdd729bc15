package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"evenkeel/cluster/state"
)

// Recovered is what a server had when it was made the only voter.
type Recovered struct {
	Cluster string
	Index   uint64 // of the last entry of its log
	Term    uint64 // of that entry
	Epoch   uint64 // the new one
	Servers []Server
	Hosts   []string // that the state knows, by name: those that are waited for
}

// stopped is the log of a server that does not run, and a transport that leads nowhere.
type stopped struct {
	node      *Node
	disk      disk
	snaps     raft.SnapshotStore
	transport *raft.InmemTransport
}

// openStopped opens the log of a stopped server, lists the servers of its configuration, and calls f. doing is for errors. It fails
// while the directory is in use.
func openStopped(doing string, o Options, f func(stopped, *Recovered) error) (r Recovered, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s server %s: %w", doing, o.ID, err)
		}
	}()
	if o.Memory == nil {
		if _, err := os.Stat(o.Dir); err != nil { // a new log is not to be made
			return r, err
		}
	}
	s := stopped{node: &Node{o: o, id: o.ID, log: o.Log.With("part", "raft")}}
	s.node.hclog = newHclog(s.node.log, false)
	if s.disk, s.snaps, err = openDisk(o, s.node.hclog); err != nil {
		return r, err
	}
	defer func() {
		if p := recover(); p != nil { // an entry that this program does not know
			err = fmt.Errorf("%v", p)
		}
		err = errors.Join(err, s.disk.Close())
	}()
	_, s.transport = raft.NewInmemTransport(raft.ServerAddress(cmp.Or(o.Advertise, o.ID)))
	defer s.transport.Close()
	if has, err := raft.HasExistingState(s.disk, s.disk, s.snaps); err != nil || !has {
		return r, errors.Join(errors.New("there is no log in its directory"), err)
	}
	conf, err := raft.GetConfiguration(s.node.config(), &fsm{store: state.New()}, s.disk, s.disk, s.snaps, s.transport)
	if err != nil {
		return r, fmt.Errorf("who the servers were: %w", err)
	}
	for _, v := range conf.Servers {
		r.Servers = append(r.Servers, Server{ID: string(v.ID), Address: string(v.Address), Voter: v.Suffrage == raft.Voter})
	}
	err = f(s, &r)
	return r, err
}

// describe takes the cluster and its hosts from a state.
func (r *Recovered) describe(s *state.Snapshot) {
	meta, _ := s.Meta()
	r.Cluster, r.Epoch, r.Hosts = meta.ID, meta.Epoch, hostNames(s)
}

// Recover makes the stopped server whose directory the options name the only voter of its cluster, with all that its log has:
// for a cluster that has lost its majority for good. What other servers acknowledged and this one never received is lost, and
// what was under way may be in force. The state is under a recovery freeze (see state.PrepareRestore). The other servers must
// not come back on their old directories: they would form the old cluster again.
//
// The recovery freeze waits for the hosts in waitFor as well: they joined by the log of the lost servers, and this one never
// received that.
//
// Of the options Recover needs Dir (or Memory), ID, Advertise and Log. It fails while the directory is in use.
func Recover(o Options, waitFor ...string) (Recovered, error) {
	return openStopped("recover", o, func(l stopped, r *Recovered) error {
		f := &recoveringFSM{fsm{store: state.New()}, waitFor}
		only := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(o.ID), Address: l.transport.LocalAddr()}}}
		if err := raft.RecoverCluster(l.node.config(), f, l.disk, l.disk, l.snaps, l.transport, only); err != nil {
			return err
		}
		list, err := l.snaps.List()
		if err != nil || len(list) == 0 {
			return errors.Join(errors.New("the recovered state is not there"), err)
		}
		r.Index, r.Term = list[0].Index, list[0].Term
		_, in, err := l.snaps.Open(list[0].ID)
		if err != nil {
			return err
		}
		s := state.New()
		if err := (&fsm{store: s}).Restore(in); err != nil {
			return err
		}
		r.describe(s.Snapshot())
		return nil
	})
}

// Examine returns what the stopped server whose directory the options name has: the servers and the hosts by its state, and the
// last entry of its log. It changes nothing. It fails while the directory is in use.
func Examine(o Options) (Recovered, error) {
	return openStopped("examine", o, func(l stopped, r *Recovered) error {
		last, err := l.disk.LastIndex()
		if err != nil {
			return err
		}
		s := state.New()
		if err := replay(s, l.disk, l.snaps, last); err != nil {
			return err
		}
		r.describe(s.Snapshot())
		if list, err := l.snaps.List(); err == nil && len(list) > 0 && list[0].Index >= last {
			r.Index, r.Term = list[0].Index, list[0].Term
			return nil
		}
		var entry raft.Log
		if err := l.disk.GetLog(last, &entry); err != nil {
			return fmt.Errorf("entry %d of its log: %w", last, err)
		}
		r.Index, r.Term = entry.Index, entry.Term
		return nil
	})
}

// replay applies the newest snapshot and the log after it to a state, as a recovery does: also entries that were never known to
// be in force.
func replay(s *state.Store, logs raft.LogStore, snaps raft.SnapshotStore, last uint64) error {
	list, err := snaps.List()
	if err != nil {
		return fmt.Errorf("its snapshots: %w", err)
	}
	f, from := &fsm{store: s}, uint64(1)
	if len(list) > 0 {
		_, in, err := snaps.Open(list[0].ID)
		if err == nil {
			err = f.Restore(in)
		}
		if err != nil {
			return fmt.Errorf("its snapshot %s: %w", list[0].ID, err)
		}
		from = list[0].Index + 1
	}
	for index := from; index <= last; index++ {
		var entry raft.Log
		if err := logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("entry %d of its log: %w", index, err)
		}
		if entry.Type == raft.LogCommand {
			f.Apply(&entry)
		}
	}
	return nil
}

func hostNames(s *state.Snapshot) (out []string) {
	for _, h := range s.Hosts() {
		out = append(out, h.Name)
	}
	return out
}

// recoveringFSM saves the state that it was given, under a recovery freeze.
type recoveringFSM struct {
	fsm
	waitFor []string
}

// Snapshot implements raft.FSM.
func (f *recoveringFSM) Snapshot() (raft.FSMSnapshot, error) {
	snap := f.store.Snapshot()
	return saved{save: func(w io.Writer) error {
		in, out := io.Pipe()
		go func() { out.CloseWithError(snap.Save(out)) }()
		defer in.Close()
		return state.PrepareRestore(in, w, "recovery", time.Now(), snap, f.waitFor...)
	}}, nil
}
