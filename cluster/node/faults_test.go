package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"evenkeel/test/patience"
)

// full is a disk that has no room while it is set.
type full struct {
	on    atomic.Bool
	asked atomic.Int64
	only  string       // this kind of write; "" = all
	takes atomic.Int64 // how long each write takes, nanoseconds
}

func (f *full) fault(write string) error {
	if d := time.Duration(f.takes.Load()); d > 0 {
		time.Sleep(d) // sleep: the disk is slow
	}
	if f.on.Load() && (f.only == "" || f.only == write) {
		f.asked.Add(1)
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	return nil
}

// fullGroup is three servers, each with a disk that can be full, or slow.
func fullGroup(t *testing.T, only string, tune ...func(*Autopilot)) (*group, map[string]*full) {
	disks := map[string]*full{}
	g := newGroup(t, 1)
	g.stop(g.members["s1"])
	for _, f := range tune {
		f(&g.pilot)
	}
	g.members["s1"].o.Autopilot = g.pilot
	disks["s1"] = &full{only: only}
	g.members["s1"].o.Fault = disks["s1"].fault
	g.restart(g.members["s1"])
	g.leader()
	for _, id := range []string{"s2", "s3"} {
		disks[id] = &full{only: only}
		m := g.start(id, Options{Fault: disks[id].fault})
		g.add(m)
	}
	return g, disks
}

// A leader with a full disk acknowledges nothing, hands over by ending, and is back once there is room.
func TestFullDiskOfLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, disks := fullGroup(t, "")
		g.put(0, 10)
		first := g.leader()
		disks[first.id].on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, _, err := first.Apply(ctx, entry(999)); err == nil || errors.Is(err, ErrNotLeader) {
			t.Errorf("a write on a full disk: %v", err)
		}
		second := g.leader(first)
		g.until("it is down", func() bool { return first.Down() != nil })
		if now, _ := first.Leadership(); now.Leads || first.Leads() {
			t.Error("it still leads")
		}
		if _, _, err := first.Apply(t.Context(), entry(999)); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a write while it is down: %v", err)
		}
		if s := first.Stats(); !strings.Contains(s.Down, "no space left") {
			t.Errorf("its stats do not say that it is down: %+v", s)
		}
		g.put(10, 30)
		g.until("the leader sees it", func() bool {
			second = g.leader(first)
			s := g.seen(second, first.id)
			return s != nil && !s.Healthy && s.Trouble != ""
		})
		tries := disks[first.id].asked.Load()
		g.until("it tries again", func() bool { return disks[first.id].asked.Load() > tries+1 })
		if n := first.images(); n < 10 {
			t.Errorf("a state that was there is gone: %d entries", n)
		}
		disks[first.id].on.Store(false)
		g.until("it is back in step", func() bool { return first.Down() == nil && first.images() >= 30 })
		want := ""
		g.until("same state", func() bool {
			want = save(t, g.leader().store)
			return save(t, first.store) == want
		})
		g.put(30, 35)
		g.stop(first)
		g.restart(first)
		want = save(t, g.leader().store)
		g.until("same state after a restart", func() bool { return save(t, first.store) == want })
	})
}

// A follower with a full disk stops no other server. With two of three full nothing is acknowledged. All is well when there is
// space again.
func TestFullDiskOfFollowers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, disks := fullGroup(t, "")
		g.put(0, 10)
		first := g.leader()
		var followers []*member
		for id, m := range g.members {
			if id != first.id {
				followers = append(followers, m)
			}
		}
		disks[followers[0].id].on.Store(true)
		g.put(10, 20)
		g.until("down", func() bool { return followers[0].Down() != nil })
		disks[followers[1].id].on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for n := 900; n < 903; n++ {
			if _, _, err := first.Apply(ctx, entry(n)); err == nil {
				t.Error("acknowledged by one of three")
			}
		}
		g.until("no leader", func() bool { now, _ := first.Leadership(); return !now.Leads })
		for _, m := range followers {
			disks[m.id].on.Store(false)
		}
		g.put(20, 30)
		want := ""
		g.until("all have the same state", func() bool {
			want = save(t, g.leader().store)
			for _, m := range g.members {
				if save(t, m.store) != want {
					return false
				}
			}
			return true
		})
		for n := range 30 {
			if !strings.Contains(want, fmt.Sprintf("i%06d", n)) {
				t.Errorf("entry %d is lost", n)
			}
		}
	})
}

// Terms and votes that cannot be written: no vote is given, and the process goes on.
func TestVoteThatCannotBeSaved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, disks := fullGroup(t, WriteVote)
		g.put(0, 5)
		first := g.leader()
		// A server that has not heard yet that another one votes gives it no vote.
		g.until("all have all of it", func() bool {
			for _, m := range g.members {
				if save(t, m.store) != save(t, first.store) {
					return false
				}
			}
			return true
		})
		for id := range g.members {
			if id != first.id {
				disks[id].on.Store(true)
			}
		}
		g.stop(first)
		// The first that stands for election goes down by it; the other gets no vote, or goes down as well.
		g.until("one is down", func() bool {
			for id, m := range g.members {
				if id != first.id && m.Down() != nil {
					return true
				}
			}
			return false
		})
		for id, m := range g.members {
			if now, _ := m.Leadership(); id != first.id && now.Leads {
				t.Errorf("%s leads by votes that are on no disk", id)
			}
		}
		for _, disk := range disks {
			disk.on.Store(false)
		}
		g.put(5, 10)
	})
}

// Snapshots that find no room are no harm.
func TestSnapshotWithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		disk := &full{only: WriteSnapshot}
		s := open(t, Options{Dir: t.TempDir(), Fault: disk.fault}).lead(t)
		s.put(t, 0, 10)
		disk.on.Store(true)
		if err := s.Snapshot(); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("snapshot: %v", err)
		}
		s.put(t, 10, 20)
		disk.on.Store(false)
		if err := s.Snapshot(); err != nil {
			t.Error(err)
		}
	})
}

// An opening that cannot write is an error, not a panic.
func TestOpenOnFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, Options{Dir: dir}).lead(t)
		s.put(t, 0, 3)
		s.close(t)
		disk := &full{}
		disk.on.Store(true)
		if s, err := tryOpen(Options{Dir: dir, Fault: disk.fault}); err == nil {
			s.close(t)
			t.Fatal("opened")
		} else if !strings.Contains(err.Error(), "no space left") {
			t.Errorf("error %v does not say why", err)
		}
		if n := len(open(t, Options{Dir: dir}).lead(t).store.Snapshot().Images()); n != 3 {
			t.Errorf("%d of 3 entries after it", n)
		}
	})
}

// A server that comes and goes in memory keeps its log and its snapshots.
func TestMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := NewMemory()
		o := Options{Memory: m, SnapshotEvery: 20, Trailing: 5}
		s := open(t, o).lead(t)
		s.put(t, 0, 50)
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
		s.put(t, 50, 60)
		if s2, err := tryOpen(o); err == nil {
			s2.close(t)
			t.Fatal("opened twice")
		}
		want := save(t, s.store)
		s.close(t)
		s = open(t, o).lead(t)
		if got := save(t, s.store); got != want {
			t.Errorf("state differs:\n%s\nbefore:\n%s", got, want)
		}
	})
}

// The same with a real disk that is full: a file system of a few MiB.
func TestRealFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m,mode=0700"); err != nil {
			t.Skipf("mount a small file system: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		o := Options{Dir: filepath.Join(dir, "raft"), Timers: Timers{Retry: 50 * time.Millisecond}}
		s := open(t, o).lead(t)
		s.put(t, 0, 10)
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		n := 10
		for ; ; n++ {
			if n > 5000 {
				t.Fatal("5000 entries on a full disk")
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience.Within(patience.Stall))
			_, _, err := s.Apply(ctx, entry(n))
			cancel()
			if err != nil {
				t.Logf("entry %d: %v", n, err)
				break
			}
		}
		until(t, "it is down", doing(s), func() bool { return s.Down() != nil })
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		s.lead(t)
		if have := len(s.store.Snapshot().Images()); have != n && have != n+1 { // the last one is not known to be in
			t.Errorf("%d entries, %d were acknowledged", have, n)
		}
		s.put(t, 6000, 6010)
		want := save(t, s.store)
		s.close(t)
		if got := save(t, open(t, o).lead(t).store); got != want {
			t.Errorf("state differs after a restart:\n%s\nbefore:\n%s", got, want)
		}
	})
}
