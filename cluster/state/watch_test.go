package state_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

func fired(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A watch fires at the next command, whatever its outcome, and at a Restore.
func TestWatch(t *testing.T) {
	k := small(t, 1)
	w := k.Snapshot().Watch()
	if fired(w) {
		t.Fatal("fired with nothing changed")
	}
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	if !fired(w) {
		t.Error("did not fire at a change")
	}
	w = k.Snapshot().Watch()
	if err := k.apply(t, state.KindHostCordon, state.HostCordon{Host: "h9"}); err == nil || !fired(w) {
		t.Errorf("a refused command (%v) moves the index on: the watch must fire", err)
	}
	w = k.Snapshot().Watch()
	if err := k.Restore(strings.NewReader("")); err == nil || fired(w) {
		t.Errorf("a refused restore (%v) is no change", err)
	}
	saved := save(t, k.Snapshot())
	if err := k.Restore(strings.NewReader(saved)); err != nil || !fired(w) {
		t.Errorf("restore (%v) did not fire", err)
	}
	w = k.Snapshot().Watch()
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1"})
	if !fired(w) {
		t.Error("did not fire at the first change after a restore")
	}
	empty := state.New().Snapshot().Watch()
	if fired(empty) {
		t.Error("a watch on an empty store fired")
	}
}

// Readers that watch while the state is restored again and again always hear of it.
func TestWatchAcrossRestores(t *testing.T) {
	k := small(t, 1)
	saved := save(t, k.Snapshot())
	stop := make(chan struct{})
	var readers, writer sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 200 {
				select {
				case <-k.Snapshot().Watch():
				case <-time.After(10 * time.Second):
					t.Error("a watch slept through restores")
					return
				}
			}
		})
	}
	writer.Go(func() {
		for !fired(stop) {
			if err := k.Restore(strings.NewReader(saved)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	readers.Wait()
	close(stop)
	writer.Wait()
}

// A snapshot does not change under its reader.
func TestSnapshotIsConstant(t *testing.T) {
	k := small(t, 1)
	s := k.Snapshot()
	before := save(t, s)
	k.must(t, state.KindPlan, planOf(s, "a", 1, gib, "h1"))
	k.must(t, state.KindHostReport, hostReport("h1", 2, gib))
	if save(t, s) != before {
		t.Error("it changed")
	}
}

// The newest events and operations are kept, 10,000 of each; a reader resumes by number.
func TestRetention(t *testing.T) {
	const keep, more = 10_000, 50
	k := small(t, 1)
	for n := range keep + more {
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: n%2 == 0})
	}
	s := k.Snapshot()
	last := s.LastEvent()
	all := s.EventsAfter(0, 0)
	if len(all) != keep || all[0].Seq != last-keep+1 || all[keep-1].Seq != last {
		t.Fatalf("%d events, %d to %d, last %d", len(all), all[0].Seq, all[len(all)-1].Seq, last)
	}
	if page := s.EventsAfter(last-7, 3); len(page) != 3 || page[0].Seq != last-6 {
		t.Errorf("three events after %d: %+v", last-7, page)
	}
	if none := s.EventsAfter(last, 0); len(none) != 0 {
		t.Errorf("events after the last one: %+v", none)
	}
}

// Operations are forgotten by their age in the log; their ids come from clocks that may be set back.
func TestOperationRetention(t *testing.T) {
	const keep, slack = 10_000, 256
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	for n := range keep + 2*slack {
		op := state.Operation{ID: fmt.Sprintf("op-%06d", 900_000-n), Kind: "scale", VC: "vc-a"}
		k.must(t, state.KindPlan, state.Plan{Basis: uint64(len(k.log)), Operation: &op})
		if _, ok := k.Snapshot().Operation(op.ID); !ok {
			t.Fatalf("operation %d is forgotten as soon as it is made", n)
		}
	}
	if n := len(k.Snapshot().Operations()); n < keep || n > keep+slack {
		t.Errorf("%d operations are kept", n)
	}
	if _, ok := k.Snapshot().Operation("op-a"); ok {
		t.Error("the oldest one is still there")
	}
}

// Idempotency keys are refused while they are known and forgotten after a day.
func TestRememberedKeys(t *testing.T) {
	k := small(t, 1)
	p := planOf(k.Snapshot(), "a", 1, gib, "h1")
	p.Remembered = &state.Remembered{Key: "k", Operation: "op-a"}
	k.must(t, state.KindPlan, p)
	q := state.Plan{Basis: k.Snapshot().Index(), Remembered: &state.Remembered{Key: "k"}}
	if err := k.apply(t, state.KindPlan, q); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a key that is taken: %v", err)
	}
	if r, ok := k.Snapshot().Remembered("k"); !ok || r.Operation != "op-a" || r.Index == 0 {
		t.Errorf("remembered %+v", r)
	}
	for range 24*3600 + 256 { // a second each: see cluster.apply
		if _, ok := k.Snapshot().Remembered("k"); !ok {
			if age := len(k.log); age < 24*3600 {
				t.Errorf("forgotten after %d s", age)
			}
			return
		}
		k.log = append(k.log, nil)
		if len(k.log)%256 == 255 {
			k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1"})
		}
	}
	t.Error("not forgotten after a day")
}
