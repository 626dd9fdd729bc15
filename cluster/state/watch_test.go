package state_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
	"evenkeel/test/patience"
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
				case <-time.After(patience.Within(patience.Stall)):
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
	if len(all) != keep || all[keep-1].Seq != last {
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
	later := state.New() // began with what was saved in the middle
	half := 0
	for n := range keep + 2*slack {
		if n == keep-100 {
			if err := later.Restore(strings.NewReader(save(t, k.Snapshot()))); err != nil {
				t.Fatal(err)
			}
			half = len(k.log)
		}
		if n%1000 == 7 { // one that is refused
			if err := k.apply(t, state.KindPlan, state.Plan{Basis: 1 << 40, Operation: &state.Operation{ID: "never", Kind: "scale", VC: "vc-a"}}); !errors.Is(err, state.ErrConflict) {
				t.Fatal(err)
			}
		}
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
	for i, entry := range k.log[half:] {
		later.ApplyAll([]state.Entry{{Index: uint64(half + i + 1), Data: entry}})
	}
	if save(t, later.Snapshot()) != save(t, k.Snapshot()) {
		t.Error("who was started again forgets other operations")
	}
	if amiss := slices.Concat(k.SeenAmiss(), later.SeenAmiss()); len(amiss) > 0 {
		t.Error(amiss)
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

// concernOf is the whole desired state of a host, in one text.
func concernOf(s *state.Snapshot, host string) string {
	var b strings.Builder
	meta, _ := s.Meta()
	h, _ := s.Host(host)
	fmt.Fprintln(&b, meta, h, s.Images())
	for _, vm := range append(s.VMsOn(host), s.VMsMovingTo(host)...) {
		vc, _ := s.VC(vm.VC)
		to, _ := s.Host(vm.MovingTo)
		m, _ := s.MigrationOf(vm.ID)
		fmt.Fprintln(&b, vm, vc, m, to.MigrateURI)
	}
	return b.String()
}

// moveStep is a report of a host of a VM that moves.
func (d *drawn) moveStep(vm state.VM) (state.Kind, any) {
	host := d.pick("reporting host", []string{vm.Host, vm.MovingTo})
	st := state.VMStatus{VM: vm.ID, Generation: vm.Generation, Move: d.k.migration(vm.ID).Open}
	switch d.pick("step", []string{"room", "permit", "lost", "left"}) {
	case "room":
		st.Room, st.Resumes = true, true
	case "permit":
		st.Permit = true
	case "left":
		st.Phase, st.Left = state.Lost, true
	default:
		st.Phase = state.Lost
	}
	return state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}}
}

// checkMigrations: a VM is on its way exactly while it has one running migration, from its host to its target.
func checkMigrations(t failer, s *state.Snapshot) {
	t.Helper()
	running := map[string]state.Migration{}
	for _, m := range s.Migrations() {
		if m.State != state.MigrationRunning {
			continue
		}
		if _, twice := running[m.VM]; twice {
			t.Fatalf("VM %s has two running migrations", m.VM)
		}
		running[m.VM] = m
	}
	for _, vm := range s.VMs() {
		m, moves := running[vm.ID]
		if found, ok := s.MigrationOf(vm.ID); ok != moves || found != m {
			t.Fatalf("the index has the migration %+v of VM %s, and the table %+v", found, vm.ID, m)
		}
		if moves != (vm.MovingTo != "") || moves && (m.From != vm.Host || m.To != vm.MovingTo) {
			t.Fatalf("VM %+v has the migration %+v", vm, m)
		}
		delete(running, vm.ID)
	}
	if len(running) > 0 {
		t.Fatalf("migrations of no VM: %+v", running)
	}
}

// Whatever changes in a host's desired state, its watch fires before Apply returns.
func TestWatchHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := small(t, len(hostNames))
		d := drawn{t: t, k: k}
		hosts := append([]string{"h9"}, hostNames...)
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			before, watches := map[string]string{}, map[string]<-chan struct{}{}
			for _, h := range hosts {
				watches[h] = k.WatchHost(h)
				before[h] = concernOf(k.Snapshot(), h)
			}
			kind, body := d.command()
			if vms := k.Snapshot().VMs(); len(vms) > 0 && d.chance("move", 4) {
				vm := rapid.SampledFrom(vms).Draw(t, "VM")
				m := state.Move{VM: vm.ID, Generation: vm.Generation, To: d.pick("to", hostNames), Open: vm.MovingTo == "", Arrived: d.chance("arrived", 2), ID: fmt.Sprint("mg-", len(k.log))}
				if vm.MovingTo != "" {
					m.To = vm.MovingTo
				}
				kind, body = state.KindMove, m
				if vm.MovingTo != "" && d.chance("a step of it", 2) {
					kind, body = d.moveStep(vm)
				}
			}
			err := k.apply(t, kind, body)
			for _, h := range hosts {
				if after := concernOf(k.Snapshot(), h); after != before[h] && !fired(watches[h]) {
					t.Fatalf("%s %+v (%v) did not wake %s:\n%s%s", kind, body, err, h, before[h], after)
				}
				checkMigrations(t, k.Snapshot())
				if err != nil && fired(watches[h]) {
					t.Fatalf("%s %+v was refused (%v) and woke %s", kind, body, err, h)
				}
			}
		}
	})
	k := small(t, 2)
	one, two := k.WatchHost("h1"), k.WatchHost("h2")
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	if !fired(one) || fired(two) {
		t.Error("a VM on h1 wakes h1 alone")
	}
	if err := k.Restore(strings.NewReader(save(t, k.Snapshot()))); err != nil || !fired(two) {
		t.Errorf("a restore (%v) wakes all", err)
	}
}

// Each step of a migration wakes both of its hosts, and no other: what they are to do is in its row.
func TestWatchMigration(t *testing.T) {
	k := small(t, 3)
	restartable(t, k, "r", "h1")
	step := func(what string, kind state.Kind, body any) {
		t.Helper()
		from, to, other := k.WatchHost("h1"), k.WatchHost("h2"), k.WatchHost("h3")
		k.must(t, kind, body)
		if !fired(from) || !fired(to) || fired(other) {
			t.Errorf("%s: the source is woken: %v, the target: %v, another host: %v", what, fired(from), fired(to), fired(other))
		}
		checkMigrations(t, k.Snapshot())
	}
	step("open", state.KindMove, k.opens("vm-r-0", "h2"))
	report := func(what, host string, st state.VMStatus) {
		t.Helper()
		st.VM, st.Generation, st.Move = "vm-r-0", 1, k.migration("vm-r-0").Open
		step(what, state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}})
	}
	report("room", "h2", state.VMStatus{Room: true, Resumes: true})
	report("permit", "h1", state.VMStatus{Permit: true})
	step("abort", state.KindMigrationAbort, state.MigrationAbort{ID: k.migration("vm-r-0").ID, Reason: "ann"})
	report("lost at its source", "h1", state.VMStatus{Phase: state.Lost})
	report("left", "h1", state.VMStatus{Phase: state.Lost, Left: true})
	step("arrived", state.KindMove, state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Arrived: true, Move: k.migration("vm-r-0").Open})
}
