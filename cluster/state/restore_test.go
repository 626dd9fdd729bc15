package state_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

// parts of a restore of what was saved, so many.
func parts(id, saved string, of int) (out []state.Restore) {
	size := (len(saved) + of - 1) / of
	for n := range of {
		out = append(out, state.Restore{ID: id, Part: n, Of: of, Data: []byte(saved[min(len(saved), n*size):min(len(saved), (n+1)*size)]), Text: "of yesterday"})
	}
	return out
}

// withRestore adds a restore to the newest log, and one that is begun only.
func withRestore(t *testing.T, k *cluster) {
	for _, p := range parts("r1", save(t, k.Snapshot()), 3) {
		p.Foreign, p.WaitFor = true, []string{"h99"}
		k.must(t, state.KindRestore, p)
	}
	k.must(t, state.KindRestore, parts("r2", "never ended", 2)[0])
}

// A saved state replaces the whole state once its last part is there, under the recovery freeze of PrepareRestore. Until then
// nothing is changed.
func TestRestoreInTheLog(t *testing.T) {
	k := small(t, 3)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "old", 1, gib, "h1", "h2"))
	k.must(t, state.KindVMReport, report("h1", "vm-old-0", 1, state.Running))
	saved := save(t, k.Snapshot())
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "new", 1, gib, "h2"))
	k.must(t, state.KindAdminToken, token("a1", state.RoleAdmin))
	before := k.Snapshot()
	woken := k.WatchHost("h2")
	for i, p := range parts("r", saved, 3) {
		if i == 1 { // a part of another, and the same once more
			other := p
			other.ID = "else"
			if err := k.apply(t, state.KindRestore, other); !errors.Is(err, state.ErrConflict) {
				t.Errorf("a part of another restore: %v", err)
			}
			if err := k.apply(t, state.KindRestore, parts("r", saved, 3)[2]); !errors.Is(err, state.ErrConflict) {
				t.Errorf("the last part before the second: %v", err)
			}
		}
		if _, there := k.Snapshot().VCNamed("new"); !there {
			t.Fatalf("changed after %d of 3 parts", i)
		}
		k.must(t, state.KindRestore, p)
	}
	select {
	case <-woken:
	default:
		t.Error("no watcher of a host was woken")
	}
	got := k.Snapshot()
	var frozen bytes.Buffer
	if err := state.PrepareRestore(strings.NewReader(saved), &frozen, "restore", start.Add(time.Duration(len(k.log))*time.Second), before); err != nil {
		t.Fatal(err)
	}
	want := state.New()
	if err := want.Restore(&frozen); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Snapshot().VMs(), got.VMs()); diff != "" {
		t.Errorf("VMs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Snapshot().Hosts(), got.Hosts()); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	m, _ := got.Meta()
	wanted, _ := want.Snapshot().Meta()
	if diff := cmp.Diff(wanted, m); diff != "" || !m.RecoveryFreeze.On() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, there := got.VCNamed("new"); there {
		t.Error("what came after the snapshot is still there")
	}
	if tokens := got.Tokens(); len(tokens) != 1 || tokens[0].Name != "a1" {
		t.Error("who may come in is not as it was before the restore")
	}
	events := got.EventsAfter(0, 0)
	if last := events[len(events)-1]; last.Kind != "snapshot-restored" || last.Text != "of yesterday" || last.Seq != got.LastEvent() {
		t.Errorf("%+v", last)
	}
	if got.Index() <= before.Index() {
		t.Errorf("index %d after %d", got.Index(), before.Index())
	}
	// It goes on from there: another copy that reads the same log comes to the same, and so does one that restores a snapshot of it.
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	again := state.New()
	for i, entry := range k.log {
		_ = again.Apply(uint64(i)+1, entry)
	}
	if save(t, again.Snapshot()) != save(t, k.Snapshot()) {
		t.Error("another copy differs")
	}
	// What is refused after it leaves it as it is, also where all come at once.
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "held", 1, gib, "h2")); err == nil {
		t.Error("a plan is applied during the hold")
	}
	all := state.New()
	var entries []state.Entry
	for i, entry := range k.log {
		entries = append(entries, state.Entry{Index: uint64(i) + 1, Data: entry})
	}
	all.ApplyAll(entries)
	if save(t, all.Snapshot()) != save(t, k.Snapshot()) {
		t.Error("applied at once it differs")
	}
}

func TestRestoreInTheLogIsRefused(t *testing.T) {
	k := small(t, 2)
	ahead := small(t, 9)
	whole := save(t, k.Snapshot())
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	for name, saved := range map[string]string{
		"cut off":   whole[:len(whole)-20],
		"changed":   strings.Replace(whole, "h1", "h7", 1),
		"empty":     "",
		"no state":  "hello\n",
		"too new":   save(t, ahead.Snapshot()),
		"no schema": "{\"format\":\"evenkeel-state\",\"v\":4}\n",
	} {
		before := save(t, k.Snapshot())
		if err := k.apply(t, state.KindRestore, parts("r", saved, 1)[0]); !errors.Is(err, state.ErrInvalid) && !errors.Is(err, state.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if now := save(t, k.Snapshot()); strings.Count(now, "\n") != strings.Count(before, "\n") {
			t.Errorf("%s: the state was changed", name)
		}
	}
	other := state.New()
	entry := func(index uint64, kind state.Kind, body any) {
		b, err := state.Encode(kind, start, body)
		if err == nil {
			err = other.Apply(index, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	entry(1, state.KindInit, state.Init{ID: "other", Settings: state.DefaultSettings()})
	p := parts("r", save(t, other.Snapshot()), 1)[0]
	if err := k.apply(t, state.KindRestore, p); !errors.Is(err, state.ErrConflict) {
		t.Errorf("another cluster's: %v", err)
	}
	p.Foreign = true
	k.must(t, state.KindRestore, p)
	if m, _ := k.Snapshot().Meta(); m.ID != "other" {
		t.Errorf("%+v", m)
	}
	for _, bad := range []state.Restore{{ID: "r"}, {ID: "r", Part: 1, Of: 1}, {ID: "r", Part: -1, Of: 1}, {Of: 1}, {ID: "r", Of: 1 << 20}, {ID: "r", Of: 1, WaitFor: []string{""}}} {
		if err := k.apply(t, state.KindRestore, bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Parts of a restore that no client goes on with are dropped.
func TestRestoreThatIsNotEnded(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindRestore, parts("r", strings.Repeat("x", 100), 2)[0])
	with := save(t, k.Snapshot())
	if !strings.Contains(with, "\"t\":\"restore\"") {
		t.Fatal("it is not kept")
	}
	for range 1024 { // a second each
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1"})
	}
	if strings.Contains(save(t, k.Snapshot()), "\"t\":\"restore\"") {
		t.Error("it is kept for ever")
	}
}
