package node

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// Two of three servers are gone for good: the third goes on alone with all it has, under a recovery freeze, and adds new ones.
func TestRecoverFromLostQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, 3)
		first := g.leader()
		first.found(t, "c1")
		g.put(0, 20)
		survivor := g.members[anyBut(g, first.id)]
		g.until("the survivor has it all", func() bool { return survivor.images() == 20 })
		for _, m := range g.members {
			if m != survivor {
				g.stop(m)
			}
		}
		o := survivor.o
		o.Log, o.Stream = quiet(), nil
		if _, err := Recover(o); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("recovered under a running server: %v", err)
		}
		g.stop(survivor)
		r, err := Recover(o)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range r.Servers {
			ids = append(ids, s.ID)
			if !s.Voter || s.Address != g.members[s.ID].address {
				t.Errorf("server %+v", s)
			}
		}
		slices.Sort(ids)
		if r.Cluster != "c1" || !slices.Equal(ids, []string{"s1", "s2", "s3"}) || r.Index < 22 || r.Term == 0 || r.Epoch == 0 {
			t.Errorf("recovered %+v", r)
		}
		g.restart(survivor)
		survivor.lead(t)
		meta, _ := survivor.store.Snapshot().Meta()
		if !meta.RecoveryFreeze.On() || meta.Epoch != r.Epoch || survivor.images() != 20 {
			t.Errorf("%d images, meta %+v", survivor.images(), meta)
		}
		if s := survivor.Servers(); len(s) != 1 || s[0].ID != survivor.id || !s[0].Voter || s[0].Address != survivor.address {
			t.Errorf("servers %+v", s)
		}
		g.put(20, 25)
		m := g.start("s9", Options{})
		if err := survivor.AddServer(t.Context(), "s9", m.address, false); err != nil {
			t.Fatal(err)
		}
		g.until("the new one votes", func() bool { s := g.seen(survivor, "s9"); return s.Voter && s.Healthy })
		want := save(t, survivor.store)
		g.until("the new one has the state", func() bool { return save(t, m.store) == want })
	})
}

func TestRecoverWhatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		if _, err := Recover(Options{Dir: t.TempDir() + "/none", ID: "s1", Log: quiet()}); err == nil {
			t.Error("no directory")
		}
		if _, err := Recover(Options{Dir: t.TempDir(), ID: "s1", Log: quiet()}); err == nil || !strings.Contains(err.Error(), "no log") {
			t.Errorf("an empty directory: %v", err)
		}
		m := NewMemory()
		s := open(t, Options{Memory: m}).lead(t)
		s.put(t, 0, 3) // but no cluster was ever made
		s.close(t)
		if _, err := Recover(Options{Memory: m, ID: "s1", Log: quiet()}); err == nil || !strings.Contains(err.Error(), "no cluster") {
			t.Errorf("a log without a cluster: %v", err)
		}
		if n := len(open(t, Options{Memory: m}).lead(t).store.Snapshot().Images()); n != 3 {
			t.Errorf("a recovery that failed left %d of 3 entries", n)
		}
	})
}

// A leader without followers acknowledges nothing; a recovered one with an older log has a greater epoch all the same.
func TestRecoverIsNewer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := NewMemory()
		s := open(t, Options{Memory: m}).lead(t)
		s.found(t, "c1")
		file := s.backup(t)
		if _, err := s.Restore(t.Context(), bytes.NewReader(file), false); err != nil {
			t.Fatal(err)
		}
		before, _ := s.store.Snapshot().Meta()
		s.close(t)
		r, err := Recover(Options{Memory: m, ID: "s1", Log: quiet()})
		if err != nil || r.Epoch <= before.Epoch {
			t.Fatalf("epoch %d, then %+v, %v", before.Epoch, r, err)
		}
		s = open(t, Options{Memory: m}).lead(t)
		b, err := state.Encode(state.KindImagePut, time.Unix(1, 0), state.Image{Name: "x", Kind: state.DiskImage})
		if err != nil {
			t.Fatal(err)
		}
		if index, outcome, err := s.Apply(t.Context(), b); err != nil || outcome != nil || index <= r.Index {
			t.Errorf("index %d after %d: %v, %v", index, r.Index, outcome, err)
		}
		if _, _, err := s.Apply(t.Context(), b); err != nil && !errors.Is(err, state.ErrConflict) {
			t.Error(err)
		}
	})
}
