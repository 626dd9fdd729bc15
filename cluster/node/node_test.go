package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"evenkeel/cluster/state"
	"evenkeel/test/patience"
)

// childDir is the environment variable that makes this binary a server to be killed.
const childDir = "EVENKEEL_TEST_NODE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// server is a node and the state it drives.
type server struct {
	*Node
	store *state.Store
}

func open(t testing.TB, o Options) *server {
	t.Helper()
	s, err := tryOpen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func tryOpen(o Options) (*server, error) {
	s := &server{store: state.New()}
	o.State, o.Log = s.store, quiet()
	if o.ID == "" {
		o.ID = "s1"
	}
	var err error
	s.Node, err = Open(o)
	return s, err
}

func (s *server) lead(t *testing.T) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	led := make(chan error, 1)
	go func() { led <- s.Lead(ctx) }()
	until(t, s.id+" leads", doing(s), func() bool { return len(led) > 0 })
	if err := <-led; err != nil {
		t.Fatal(err)
	}
	return s
}

// doing is how far servers are, for await and until to follow.
func doing(servers ...*server) func() any {
	return func() any {
		var out []string
		for _, s := range servers {
			at, now := s.Stats(), s.Leader()
			out = append(out, fmt.Sprintf("%s: leader %q, term %d, index %d, commit %d, applied %d, down %q", s.id, now, s.Term(), at.Index, at.Commit, at.Applied, at.Down))
		}
		return out
	}
}

// entry number n puts image n into the catalogue.
func entry(n int) []byte {
	b, err := state.Encode(state.KindImagePut, time.Unix(int64(n), 0), state.Image{Name: fmt.Sprintf("i%06d", n), Kind: state.DiskImage})
	if err != nil {
		panic(err)
	}
	return b
}

func (s *server) put(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, outcome, err := s.Apply(t.Context(), entry(n)); outcome != nil || err != nil {
			t.Fatalf("entry %d: %v, %v", n, outcome, err)
		}
	}
}

func save(t *testing.T, s *state.Store) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot().Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (s *server) close(t *testing.T) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, Options{Dir: dir}).lead(t)
		if !s.Leads() || s.Leader() != "s1" {
			t.Errorf("leads %v, leader %q", s.Leads(), s.Leader())
		}
		s.put(t, 0, 50)
		if _, outcome, err := s.Apply(t.Context(), entry(0)); err != nil || !errors.Is(outcome, state.ErrConflict) {
			t.Errorf("an image again: outcome %v, error %v", outcome, err)
		}
		before := save(t, s.store)
		s.close(t)
		if _, _, err := s.Apply(t.Context(), entry(1000)); !errors.Is(err, ErrClosed) {
			t.Errorf("apply on a closed node: %v", err)
		}
		s = open(t, Options{Dir: dir}).lead(t)
		if after := save(t, s.store); after != before {
			t.Errorf("state differs after a restart:\n%s\nbefore:\n%s", after, before)
		}
		s.put(t, 50, 60)
	})
}

// A snapshot lets the log before it go, and together they give the same state.
func TestSnapshotAndReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Dir: dir, SnapshotEvery: 20, Trailing: 5}
	s := open(t, o).lead(t)
	s.put(t, 0, 100)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(); err != nil {
		t.Errorf("a second one with nothing new: %v", err)
	}
	if n, err := s.cur.Load().disk.FirstIndex(); err != nil || n < 90 {
		t.Errorf("the log begins at %d (%v) after a snapshot at 100 and more", n, err)
	}
	s.put(t, 100, 110)
	before := save(t, s.store)
	s.close(t)
	s = open(t, o).lead(t)
	if after := save(t, s.store); after != before {
		t.Errorf("state differs:\n%s\nbefore:\n%s", after, before)
	}
	s.put(t, 110, 120)
}

func TestSecondOpener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		open(t, Options{Dir: dir}).lead(t)
		if s, err := tryOpen(Options{Dir: dir}); err == nil {
			s.close(t)
			t.Fatal("opened twice")
		} else if !strings.Contains(err.Error(), "is in use by another process") || !strings.Contains(err.Error(), filepath.Join(dir, "raft.db")) {
			t.Errorf("error %q, want it to name the file and the cause", err)
		}
	})
}

// A snapshot that cannot be read is an error at the start, not an empty state.
func TestBadSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		o := Options{Dir: dir, SnapshotEvery: 20, Trailing: 5}
		s := open(t, o).lead(t)
		s.put(t, 0, 50)
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
		s.close(t)
		files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no snapshot (%v)", err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, b[:len(b)/2], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := tryOpen(o); err == nil {
			s.close(t)
			t.Fatal("opened on half a snapshot")
		}
	})
}

func TestContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()}).lead(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Apply(ctx, entry(0)); err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, context.Canceled) {
			t.Errorf("apply: %v", err)
		}
		s.close(t)
		if err := s.Lead(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("lead on a closed node: %v", err)
		}
		if err := s.Linearize(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("linearize on a closed node: %v", err)
		}
	})
}

// child serves until it is killed: it puts images and prints which were acknowledged.
func child(dir string) {
	s, err := tryOpen(Options{Dir: dir, SnapshotEvery: 40, Trailing: 10})
	if err == nil {
		err = s.Lead(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for n := len(s.store.Snapshot().Images()); ; n++ {
		if _, outcome, err := s.Apply(context.Background(), entry(n)); outcome != nil || err != nil {
			fmt.Fprintln(os.Stderr, n, outcome, err)
			os.Exit(1)
		}
		fmt.Println(n)
		if n%40 == 39 {
			if err := s.Snapshot(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}

// Killed at any moment, a server keeps every entry that it acknowledged.
func TestKilled(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	acknowledged := -1
	for _, entries := range []int{1, 17, 38, 41, 60, 25} {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == entries {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} // and go on: what it said before it died counts
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
			t.Fatalf("the server ended by itself: %v", err)
		}
	}
	s := open(t, Options{Dir: dir}).lead(t)
	if n := len(s.store.Snapshot().Images()); n < acknowledged+1 || n > acknowledged+2 {
		t.Errorf("%d entries are there, %d were acknowledged and one may have been under way", n, acknowledged+1)
	}
}

// trio is three servers that reach each other within this process.
type trio struct {
	servers []*server
	wires   []*raft.InmemTransport
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	g := &trio{}
	var voters []raft.Server
	for n := range 3 {
		id := fmt.Sprintf("s%d", n+1)
		addr, wire := raft.NewInmemTransport(raft.ServerAddress(id))
		g.wires = append(g.wires, wire)
		voters = append(voters, raft.Server{ID: raft.ServerID(id), Address: addr})
	}
	for _, a := range g.wires {
		for _, b := range g.wires {
			a.Connect(b.LocalAddr(), b)
		}
	}
	for n, v := range voters {
		g.servers = append(g.servers, open(t, Options{Dir: t.TempDir(), ID: string(v.ID), transport: g.wires[n], voters: voters}))
	}
	return g
}

// leader waits until one of the servers other than those in but leads.
func (g *trio) leader(t *testing.T, but ...*server) *server {
	t.Helper()
	return await(t, "a leader", doing(g.servers...), func() *server {
		for _, s := range g.servers {
			if s.Leads() && !contains(but, s) {
				return s
			}
		}
		return nil
	})
}

func contains(in []*server, s *server) bool {
	for _, x := range in {
		if x == s {
			return true
		}
	}
	return false
}

// await polls for what f finds: Raft has no event for when followers have applied.
func await[T any](t testing.TB, what string, progress func() any, f func() *T) (found *T) {
	t.Helper()
	until(t, what, progress, func() bool { found = f(); return found != nil })
	return found
}

func until(t testing.TB, what string, progress func() any, done func() bool) {
	t.Helper()
	patience.Eventually(t, patience.Stall, what, progress, done)
}

func (g *trio) agree(t *testing.T, want string, but *server) {
	t.Helper()
	for _, s := range g.servers {
		if s != but {
			until(t, "server "+s.id+" has the state", doing(g.servers...), func() bool { return save(t, s.store) == want })
		}
	}
}

// Three servers hold the same state; a follower refuses writes and linearizable reads; when the
// leader ends another takes over with all that was acknowledged.
func TestThreeServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newTrio(t)
		first := g.leader(t).lead(t)
		first.put(t, 0, 30)
		if err := first.Linearize(t.Context()); err != nil {
			t.Error(err)
		}
		g.agree(t, save(t, first.store), nil)
		for _, s := range g.servers {
			if s == first {
				continue
			}
			if _, _, err := s.Apply(t.Context(), entry(999)); !errors.Is(err, ErrNotLeader) {
				t.Errorf("apply on a follower: %v", err)
			}
			if err := s.Linearize(t.Context()); !errors.Is(err, ErrNotLeader) {
				t.Errorf("linearize on a follower: %v", err)
			}
			if s.Leader() != first.id {
				t.Errorf("%s follows %q, want %s", s.id, s.Leader(), first.id)
			}
		}
		first.close(t)
		second := g.leader(t, first)
		if err := second.Linearize(t.Context()); err != nil { // at once, without Lead
			t.Fatal(err)
		}
		if n := len(second.store.Snapshot().Images()); n != 30 {
			t.Errorf("a linearizable read on the new leader sees %d of 30 entries", n)
		}
		second.put(t, 30, 40)
		g.agree(t, save(t, second.store), first)
	})
}

// A leader that lost its followers acknowledges nothing and serves no linearizable read.
func TestLeaderCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newTrio(t)
		first := g.leader(t).lead(t)
		first.put(t, 0, 5)
		for n, s := range g.servers {
			if s == first {
				g.wires[n].DisconnectAll()
			}
			for m := range g.servers {
				if g.servers[m] == first {
					g.wires[n].Disconnect(g.wires[m].LocalAddr())
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, _, err := first.Apply(ctx, entry(5)); err == nil || errors.Is(err, ErrClosed) {
			t.Errorf("acknowledged without a quorum: %v", err)
		} else if errors.Is(err, ErrNotLeader) && !errors.Is(err, raft.ErrNotLeader) {
			t.Errorf("said to be in no log: %v", err)
		}
		if err := first.Linearize(ctx); err == nil {
			t.Error("a linearizable read without a quorum")
		}
		second := g.leader(t, first).lead(t)
		if n := len(second.store.Snapshot().Images()); n != 5 {
			t.Errorf("the others have %d entries", n)
		}
		second.put(t, 6, 10)
	})
}
