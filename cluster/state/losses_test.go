package state_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// restartable makes a VC of one VM each on the hosts, running, to be restarted if its host is lost.
func restartable(t *testing.T, k *cluster, name string, hosts ...string) {
	t.Helper()
	p := planOf(k.Snapshot(), name, 0.5, gib, hosts...)
	p.VC.OnHostLoss = state.RestartOnLoss
	k.must(t, state.KindPlan, p)
	for _, vm := range k.Snapshot().VMsOf(p.VC.ID) {
		k.must(t, state.KindVMReport, report(vm.Host, vm.ID, 1, state.Running))
	}
}

func guard(t *testing.T, k *cluster, host string) {
	t.Helper()
	k.must(t, state.KindFencing, state.HostFencing{Host: host, Fencing: state.Fencing{Enforcing: true, Watchdog: 15_000}})
}

// freezeAfter puts the present state in force again, at so many seconds since 1970, as a restore or a recovery does.
func freezeAfter(t *testing.T, k *cluster, reason string, at int64) {
	t.Helper()
	var saved, frozen bytes.Buffer
	if err := k.Snapshot().Save(&saved); err != nil {
		t.Fatal(err)
	}
	if err := state.PrepareRestore(&saved, &frozen, reason, time.Unix(at, 0), nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(&frozen); err != nil {
		t.Fatal(err)
	}
}

func phase(t *testing.T, k *cluster, id string, want state.Phase) state.VM {
	t.Helper()
	vm, ok := k.Snapshot().VM(id)
	if !ok || vm.Phase != want {
		t.Errorf("VM %s is %q, want %q", id, vm.Phase, want)
	}
	return vm
}

func TestHostLost(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "r", "h1")
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "k", 0.5, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-k-0", 1, state.Running))
	lease := state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"}
	if err := k.apply(t, state.KindHostLost, lease); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a lease without a watchdog proves something: %v", err)
	}
	guard(t, k, "h1")
	k.must(t, state.KindHostLost, lease)
	phase(t, k, "vm-r-0", state.Lost)
	phase(t, k, "vm-k-0", state.Running) // the end of a lease says nothing of it
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "n", 0.1, gib, "h1")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a VM placed on a lost host: %v", err)
	}
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofFence, Text: "fence_lab says off"})
	phase(t, k, "vm-k-0", state.Lost)
	if l := k.Snapshot().LoadOf("h1"); l.VMs != 0 || l.Memory != 0 {
		t.Errorf("a host that is off has load %+v", l)
	}
	k.must(t, state.KindHostReport, hostReport("h1", 2, 4*gib))
	if h, _ := k.Snapshot().Host("h1"); h.Lost != (state.Loss{}) {
		t.Errorf("h1 reports, and is still %+v", h.Lost)
	}
}

// While a move is open both hosts must be proved to run it no more, the target after the source.
func TestLossDuringMove(t *testing.T) {
	for _, order := range [][]string{{"h1", "h2"}, {"h2", "h1"}} {
		k := small(t, 3)
		restartable(t, k, "r", "h1")
		guard(t, k, "h1")
		guard(t, k, "h2")
		k.must(t, state.KindMove, k.opens("vm-r-0", "h2"))
		for _, h := range []string{"h1", "h2"} {
			if l := k.Snapshot().LoadOf(h); l.VMs != 1 {
				t.Errorf("%s counts %d VMs while one moves", h, l.VMs)
			}
		}
		k.must(t, state.KindHostLost, state.HostLost{Host: order[0], Proof: state.ProofLease, Text: "silent"})
		k.must(t, state.KindHostLost, state.HostLost{Host: order[0], Proof: state.ProofFence, Text: "off"})
		phase(t, k, "vm-r-0", state.Running)
		before := k.Snapshot().Index()
		k.must(t, state.KindHostLost, state.HostLost{Host: order[1], Proof: state.ProofLease, Text: "silent", Basis: before})
		if order[1] == "h1" { // it may have come to h2 after that was proved, and before this
			phase(t, k, "vm-r-0", state.Running)
			k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofFence, Text: "was off before", Basis: before})
			phase(t, k, "vm-r-0", state.Running)
			k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofFence, Text: "off", Basis: k.Snapshot().Index()})
		}
		if vm := phase(t, k, "vm-r-0", state.Lost); vm.MovingTo != "" || k.migration("vm-r-0") != (state.Migration{}) {
			t.Errorf("the move is still open: %+v", vm)
		}
	}
}

func TestMove(t *testing.T) {
	k := small(t, 3)
	restartable(t, k, "r", "h1")
	open := k.opens("vm-r-0", "h2")
	k.must(t, state.KindMove, open)
	if err := k.apply(t, state.KindMove, open); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a second move of a VM on its way: %v", err)
	}
	k.must(t, state.KindVMReport, report("h1", "vm-r-0", 1, state.Failed)) // it left, which is not its end
	phase(t, k, "vm-r-0", state.Running)
	k.must(t, state.KindMove, state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Arrived: true, Move: k.migration("vm-r-0").Open})
	if vm := phase(t, k, "vm-r-0", state.Running); vm.Host != "h2" || vm.MovingTo != "" || k.migration("vm-r-0").Open != 0 || vm.Frozen != 0 || vm.Generation != 1 {
		t.Errorf("moved VM is %+v", vm)
	}
	if err := k.apply(t, state.KindMove, k.opens("vm-r-0", "h9")); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a move to nowhere: %v", err)
	}
}

// A late report of one move changes nothing of another, in whichever direction the VM moved.
func TestMovesAreDistinguished(t *testing.T) {
	k := small(t, 3)
	restartable(t, k, "r", "h1")
	open := func(to string) uint64 {
		t.Helper()
		k.must(t, state.KindMove, k.opens("vm-r-0", to))
		return k.migration("vm-r-0").Open
	}
	over := func(to string, move uint64, arrived bool) error {
		t.Helper()
		return k.apply(t, state.KindMove, state.Move{VM: "vm-r-0", Generation: 1, To: to, Arrived: arrived, Move: move})
	}
	report := func(host string, move uint64, st state.VMStatus) state.Migration {
		t.Helper()
		st.VM, st.Generation, st.Move = "vm-r-0", 1, move
		k.must(t, state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}})
		phase(t, k, "vm-r-0", state.Running)
		return k.migration("vm-r-0")
	}
	lost := state.VMStatus{Phase: state.Lost, Reason: "does not run here"}

	first := open("h2")
	if err := over("h2", first, false); err != nil {
		t.Fatal(err)
	}
	second := open("h2")
	if first == second || second == 0 {
		t.Fatalf("moves %d and %d", first, second)
	}
	for _, arrived := range []bool{false, true} {
		if err := over("h2", first, arrived); !errors.Is(err, state.ErrConflict) {
			t.Errorf("the end of an older move (arrived: %v): %v", arrived, err)
		}
	}
	for _, stale := range []uint64{0, first} {
		if m := report("h1", stale, lost); m.SourceLost != 0 {
			t.Errorf("gone from its source by the word of move %d, in move %d", stale, second)
		}
		if m := report("h2", stale, state.VMStatus{Room: true}); m.Ready {
			t.Errorf("the target is ready for move %d by the word of move %d", second, stale)
		}
	}
	if m := report("h1", second, state.VMStatus{Room: true}); m.Ready {
		t.Error("ready by the word of the source")
	}
	if m := report("h1", second, state.VMStatus{Permit: true}); m.Permit != 0 {
		t.Error("a permit to hand over before the target has room")
	}
	if m := report("h2", second, state.VMStatus{Room: true}); !m.Ready || m.SourceLost != 0 {
		t.Errorf("its target is ready: %+v", m)
	}
	if m := report("h2", second, state.VMStatus{Permit: true}); m.Permit != 0 {
		t.Error("a permit to hand over what the target does not have")
	}
	permit := report("h1", second, state.VMStatus{Permit: true}).Permit
	again := report("h1", second, state.VMStatus{Permit: true}).Permit
	if permit == 0 || again <= permit {
		t.Errorf("permits %d and %d", permit, again)
	}
	for _, old := range []uint64{0, permit} { // by an agent that knew nothing of the last attempt
		m := state.Move{VM: "vm-r-0", Generation: 1, To: "h2", Move: second, Permit: old}
		if err := k.apply(t, state.KindMove, m); !errors.Is(err, state.ErrConflict) {
			t.Errorf("it stayed, by the word of permit %d: %v", old, err)
		}
	}
	if m := report("h1", second, lost); m.SourceLost == 0 {
		t.Errorf("gone from its source: %+v", m)
	}
	if err := over("h2", second, true); err != nil {
		t.Fatal(err)
	}
	// It moved: what was said on its way, or is said of the next move, does not end it.
	report("h2", second, lost)
	if m, vm := report("h2", first, state.VMStatus{Phase: state.Failed}), phase(t, k, "vm-r-0", state.Running); m != (state.Migration{}) || vm.MovingTo != "" || vm.Host != "h2" {
		t.Errorf("it moved: %+v, %+v", vm, m)
	}
}

// What a moving VM may take on either host is what it had when its move began, and no less: its host changes nothing of
// it on its way.
func TestShareOnTheWay(t *testing.T) {
	k := small(t, 3)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 2, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
	share := func(cpu float64) {
		t.Helper()
		k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "reallocated", Allocations: []state.Allocation{{VC: "vc-a", Group: "g", CPU: cpu}}})
	}
	loads := func(what string, h1, h2 float64) {
		t.Helper()
		if a, b := k.Snapshot().LoadOf("h1").CPU, k.Snapshot().LoadOf("h2").CPU; a != h1 || b != h2 {
			t.Errorf("%s: h1 has %v cores taken and h2 %v, want %v and %v", what, a, b, h1, h2)
		}
	}
	k.must(t, state.KindMove, k.opens("vm-a-0", "h2"))
	loads("on its way", 2, 2)
	share(1)
	loads("given less on its way", 2, 2)
	share(3)
	loads("given more on its way", 3, 3)
	share(1)
	k.must(t, state.KindMove, state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Arrived: true, Move: k.migration("vm-a-0").Open})
	loads("there", 0, 1)
}

// After a restore nothing changes until every host has reported what it runs, and what runs counts.
func TestRecoveryFreeze(t *testing.T) {
	k := small(t, 3)
	restartable(t, k, "a", "h1", "h2")
	freezeAfter(t, k, "restore", 1000)
	m, _ := k.Snapshot().Meta()
	if m.Epoch != 1000 || len(m.RecoveryFreeze.Pending) != 3 {
		t.Fatalf("held cluster is %+v", m)
	}
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "n", 0.1, gib, "h3")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a plan during the hold: %v", err)
	}
	// Meanwhile vm-a-0 moved to h3, vm-a-1 ended, and a VM was made that the state never heard of.
	k.must(t, state.KindInventory, state.Inventory{Host: "h3", VMs: []state.Instance{{VM: "vm-a-0", Generation: 2}, {VM: "vm-new", Generation: 1}}})
	k.must(t, state.KindInventory, state.Inventory{Host: "h1"})
	if m, _ := k.Snapshot().Meta(); !m.RecoveryFreeze.On() {
		t.Error("the hold ended before h2 was heard of")
	}
	k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofOperator, Text: "it burnt"})
	if m, _ := k.Snapshot().Meta(); m.RecoveryFreeze.On() {
		t.Errorf("still held: %+v", m.RecoveryFreeze)
	}
	if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h3" || vm.Generation != 2 {
		t.Errorf("the VM that moved is %+v", vm)
	}
	phase(t, k, "vm-a-1", state.Lost)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "n", 0.1, gib, "h3"))
}

// What runs counts also if the state has permitted a later generation that never came to run: else its host would hold the
// instance for one that it must not touch, and neither its share nor its end would ever reach it.
func TestInventoryOfAnEarlierGeneration(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "a", "h1")
	guard(t, k, "h1")
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"})
	again := planOf(k.Snapshot(), "a", 0.5, gib, "h2")
	vc, _ := k.Snapshot().VC(again.VC.ID)
	again.VC, again.VCVersion = &vc, vc.ModifyIndex
	again.VMs[0].Generation = 2
	k.must(t, state.KindPlan, again)
	phase(t, k, "vm-a-0", state.Starting)
	freezeAfter(t, k, "restore", 1000)
	// The proof was wrong, by an operator's word say, or the world went on from before it: generation 1 runs on h1.
	k.must(t, state.KindInventory, state.Inventory{Host: "h1", VMs: []state.Instance{{VM: "vm-a-0", Generation: 1}}})
	if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h1" || vm.Generation != 1 {
		t.Errorf("generation 1 runs on h1, and the VM is %+v", vm)
	}
	// A later one that is heard of after that counts more.
	k.must(t, state.KindInventory, state.Inventory{Host: "h2", VMs: []state.Instance{{VM: "vm-a-0", Generation: 2}}})
	if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h2" || vm.Generation != 2 {
		t.Errorf("generation 2 runs on h2, and the VM is %+v", vm)
	}
}

// What a migration left on a host does not run there, and is not taken for the start that follows a restore, of whichever generation
// the saved state has the VM.
func TestInventoryOfALeftover(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "a", "h1")
	freezeAfter(t, k, "restore", 1000)
	left := state.Instance{VM: "vm-a-0", Generation: 2, Leftover: true}
	k.must(t, state.KindInventory, state.Inventory{Host: "h1", VMs: []state.Instance{left, {VM: "vm-foreign", Generation: 1, Leftover: true}}})
	k.must(t, state.KindInventory, state.Inventory{Host: "h2", VMs: []state.Instance{}})
	if vm := phase(t, k, "vm-a-0", state.Lost); vm.Generation != 2 {
		t.Errorf("generation 2 is left on h1, and the VM is %+v", vm)
	}
}

// A host that joined after the snapshot was saved may run its VMs: it is waited for, too. And
// what was taken away since then does not come back with the snapshot.
func TestRestoreKnowsWhatCameSince(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "a", "h1")
	member := func(name, serial string) {
		k.must(t, state.KindMemberPut, state.Member{Name: name, Agent: true, Address: name + ":1", Format: state.FormatVersion})
		k.must(t, state.KindCertificate, state.Certificate{Member: name, Serial: state.Serial{Number: serial, Until: time.Unix(1e11, 0)}})
	}
	join := state.Join{Token: "t1", Hash: "x", Member: state.Member{Name: "h4", Agent: true, Address: "h4:1", Format: state.FormatVersion}}
	k.must(t, state.KindTokenPut, state.JoinToken{ID: "t1", Hash: "x", Agent: true, Until: time.Unix(1e11, 0)})
	member("thief", "0a")
	var old, frozen bytes.Buffer
	if err := k.Snapshot().Save(&old); err != nil {
		t.Fatal(err)
	}
	k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "thief"})
	k.must(t, state.KindJoin, join)
	member("h3", "0b")
	k.must(t, state.KindHostReport, hostReport("h3", 2, 4*gib))
	if err := state.PrepareRestore(&old, &frozen, "restore", time.Unix(1000, 0), k.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(&frozen); err != nil {
		t.Fatal(err)
	}
	if _, is := k.Snapshot().Member("thief"); is || !k.Snapshot().Revoked("0a") {
		t.Error("a member that was removed is one again")
	}
	if _, is := k.Snapshot().Member("h3"); !is {
		t.Error("a member that joined since is none")
	}
	join.Member.Name = "h5"
	if err := k.apply(t, state.KindJoin, join); !errors.Is(err, state.ErrToken) {
		t.Errorf("a join token is used twice: %v", err)
	}
	k.must(t, state.KindInventory, state.Inventory{Host: "h1"})
	k.must(t, state.KindInventory, state.Inventory{Host: "h2"})
	if vm, _ := k.Snapshot().VM("vm-a-0"); vm.Phase == state.Lost {
		t.Fatal("lost, though h3 has not said what it runs")
	}
	k.must(t, state.KindInventory, state.Inventory{Host: "h3", VMs: []state.Instance{{VM: "vm-a-0", Generation: 2}}})
	if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h3" {
		t.Errorf("it runs on h3, and is %+v", vm)
	}
}

// A cluster that takes another one's state over keeps its own members and tokens beside those of the state. It admits members
// of the old cluster again while they have yet to report what they run: their VMs run on.
func TestRestoreOfAnotherCluster(t *testing.T) {
	lost := small(t, 2)
	restartable(t, lost, "a", "h1", "h2")
	for _, name := range []string{"h1", "h2"} {
		lost.must(t, state.KindMemberPut, state.Member{Name: name, Server: true, Agent: true, Address: "old-" + name + ":1", Format: state.FormatVersion})
	}
	lost.must(t, state.KindAdminToken, token("old", state.RoleAdmin))
	var saved, frozen bytes.Buffer
	if err := lost.Snapshot().Save(&saved); err != nil {
		t.Fatal(err)
	}
	k := newCluster()
	k.must(t, state.KindInit, state.Init{ID: "cluster-2", Settings: state.DefaultSettings()})
	k.must(t, state.KindMemberPut, state.Member{Name: "h1", Server: true, Agent: true, Address: "new-h1:1", Format: state.FormatVersion})
	k.must(t, state.KindCertificate, state.Certificate{Member: "h1", Serial: state.Serial{Number: "0a", Until: time.Unix(1e11, 0)}})
	k.must(t, state.KindAdminToken, token("new", state.RoleAdmin))
	k.must(t, state.KindHostReport, hostReport("h9", 2, 4*gib))
	if err := state.PrepareRestore(&saved, &frozen, "restore", time.Unix(1000, 0), k.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(&frozen); err != nil {
		t.Fatal(err)
	}
	if m, _ := k.Snapshot().Member("h1"); m.Address != "new-h1:1" || len(m.Serials) != 1 {
		t.Errorf("the server that there is is registered as %+v", m)
	}
	if n := len(k.Snapshot().Tokens()); n != 2 {
		t.Errorf("%d admin tokens are good, want the old and the new", n)
	}
	if m, _ := k.Snapshot().Meta(); m.ID != "cluster-1" || len(m.RecoveryFreeze.Pending) != 3 {
		t.Errorf("%+v", m)
	}
	k.must(t, state.KindTokenPut, state.JoinToken{ID: "t1", Hash: "x", Agent: true, For: "h2", Until: time.Unix(1e11, 0)})
	join := state.Join{Token: "t1", Hash: "x", Member: state.Member{Name: "h2", Agent: true, Address: "h2:1", Format: state.FormatVersion}}
	k.must(t, state.KindJoin, join)
	for _, h := range []string{"h1", "h2", "h9"} {
		a := state.Inventory{Host: h}
		if h == "h2" {
			a.VMs = []state.Instance{{VM: "vm-a-1", Generation: 1}}
		}
		k.must(t, state.KindInventory, a)
	}
	phase(t, k, "vm-a-0", state.Lost)
	phase(t, k, "vm-a-1", state.Running)
	k.must(t, state.KindTokenPut, state.JoinToken{ID: "t2", Hash: "x", Agent: true, For: "h2", Until: time.Unix(1e11, 0)})
	join.Token = "t2"
	if err := k.apply(t, state.KindJoin, join); !errors.Is(err, state.ErrConflict) {
		t.Errorf("the name of a host that has said that it runs VMs is taken: %v", err)
	}
}

// The recovery freeze waits also for a host of which only the operator knows that it had joined. The wait ends with the host's
// report, or with the confirmation that it is dead.
func TestRestoreWaitsForNamedHosts(t *testing.T) {
	for _, dead := range []bool{false, true} {
		k := small(t, 1)
		restartable(t, k, "a", "h1")
		var old, frozen bytes.Buffer
		if err := k.Snapshot().Save(&old); err != nil {
			t.Fatal(err)
		}
		if err := state.PrepareRestore(&old, &frozen, "recovery", time.Unix(1000, 0), k.Snapshot(), "h9", "h1"); err != nil {
			t.Fatal(err)
		}
		if err := k.Restore(&frozen); err != nil {
			t.Fatal(err)
		}
		if m, _ := k.Snapshot().Meta(); !slices.Equal(m.RecoveryFreeze.Pending, []string{"h1", "h9"}) {
			t.Fatalf("%+v", m.RecoveryFreeze)
		}
		if row, is := k.Snapshot().Member("h9"); !is || !row.Agent || row.Server {
			t.Errorf("its agent is listened to by %+v", row)
		}
		k.must(t, state.KindInventory, state.Inventory{Host: "h1"})
		if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h1" {
			t.Errorf("before h9 has said what it runs: %+v", vm)
		}
		if dead {
			k.must(t, state.KindHostLost, state.HostLost{Host: "h9", Proof: state.ProofOperator, Text: "it burnt"})
			phase(t, k, "vm-a-0", state.Lost)
			k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "h9"})
			continue
		}
		k.must(t, state.KindHostReport, hostReport("h9", 2, 4*gib))
		k.must(t, state.KindInventory, state.Inventory{Host: "h9", VMs: []state.Instance{{VM: "vm-a-0", Generation: 2}}})
		if vm := phase(t, k, "vm-a-0", state.Running); vm.Host != "h9" || vm.Generation != 2 {
			t.Errorf("it runs on h9, and is %+v", vm)
		}
	}
}

// What the leader read of a member before it was removed does not make it one again. And a host that is waited
// for after a restore is not removed unheard.
func TestRemovedMemberStaysOut(t *testing.T) {
	k := small(t, 2)
	for _, name := range []string{"h1", "h2"} {
		k.must(t, state.KindMemberPut, state.Member{Name: name, Agent: true, Address: name + ":1", Format: state.FormatVersion})
	}
	row, _ := k.Snapshot().Member("h1")
	k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "h1"})
	row.Version = "2"
	if err := k.apply(t, state.KindMemberPut, row); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a member that was removed is registered again: %v", err)
	}
	if _, is := k.Snapshot().Member("h1"); is {
		t.Error("a member that was removed is one again")
	}
	freezeAfter(t, k, "restore", 1)
	if err := k.apply(t, state.KindMemberDrop, state.MemberDrop{Name: "h2"}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a host is removed that has not said what it runs: %v", err)
	}
	k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofOperator, Text: "it burnt"})
	k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "h2"})
}

// A deleted VM whose host is dead for good waits for no host: it leaves the state with its host. A VM that is not deleted keeps
// the host in the cluster. So does a deleted one while nothing proves that the host is dead.
func TestDeletedVMsGoWithTheirDeadHost(t *testing.T) {
	k := small(t, 2)
	for _, name := range []string{"h1", "h2"} {
		k.must(t, state.KindMemberPut, state.Member{Name: name, Agent: true, Address: name + ":1", Format: state.FormatVersion})
	}
	restartable(t, k, "gone", "h1", "h2")
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "kept", 0.5, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-kept-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "gone", state.GoalDelete))
	left := report("h2", "vm-gone-1", 1, state.Stopped)
	left.VMs[0].SourceLost = true
	k.must(t, state.KindVMReport, left)
	drop := state.MemberDrop{Name: "h1"}
	refused := func(why string, drop state.MemberDrop) {
		t.Helper()
		if err := k.apply(t, state.KindMemberDrop, drop); !errors.Is(err, state.ErrInUse) {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("a host is removed that may run VMs", drop)
	guard(t, k, "h1")
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"})
	refused("a host is removed whose lease ran out", drop)
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it burnt"})
	refused("a host is removed with a VM that is not deleted", drop)
	k.must(t, state.KindPlan, leave(k.Snapshot(), "kept", state.GoalDelete))
	if n := len(k.Snapshot().VMs()); n != 2 {
		t.Fatalf("%d VMs are left before the host is removed, want 2", n)
	}
	k.must(t, state.KindMemberDrop, drop)
	if s := k.Snapshot(); len(s.VMs()) != 0 || len(s.VCs()) != 0 {
		t.Errorf("left: %+v, %+v", s.VMs(), s.VCs())
	}
	if _, is := k.Snapshot().Host("h1"); is {
		t.Error("the host is there still")
	}
}

func TestVMOnTwoHostsIsSaidLoudly(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "a", "h1")
	freezeAfter(t, k, "recovery", 1)
	for i, h := range []string{"h1", "h2"} {
		k.must(t, state.KindInventory, state.Inventory{Host: h, VMs: []state.Instance{{VM: "vm-a-0", Generation: uint64(1 + i)}}})
	}
	for _, e := range k.Snapshot().EventsAfter(0, 0) {
		if e.Kind == "vm-duplicate" {
			return
		}
	}
	t.Error("no event says that the VM runs twice")
}

// A host that received that fencing is disabled, and did not report since, does not stop its VMs. What it reported before must
// prove nothing once fencing is enabled again.
func TestArmingForgetsWhatWasSaidBefore(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "r", "h1")
	guard(t, k, "h1")
	k.must(t, state.KindSetFencing, state.SetFencing{FencingDisabled: true})
	guard(t, k, "h1") // a renewal under way when it was disarmed
	k.must(t, state.KindSetFencing, state.SetFencing{})
	if err := k.apply(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("taken for lost: %v", err)
	}
	phase(t, k, "vm-r-0", state.Running)
	guard(t, k, "h1")
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"})
}

// A machine that takes the name of a silent member must not be taken for that member's machine, on which VMs may run.
func TestNameOfAHostWithVMsIsNotReused(t *testing.T) {
	k := small(t, 2)
	restartable(t, k, "r", "h1")
	k.must(t, state.KindMemberPut, state.Member{Name: "h1", Agent: true, Address: "10.0.0.1:7480"})
	k.must(t, state.KindTokenPut, state.JoinToken{ID: "t", Hash: "f00d", Agent: true, For: "h1", Until: start.Add(time.Hour)})
	again := state.Join{Token: "t", Hash: "f00d", Member: state.Member{Name: "h1", Agent: true, Address: "10.0.0.9:7480"}}
	if err := k.apply(t, state.KindJoin, again); !errors.Is(err, state.ErrConflict) {
		t.Errorf("let in while the old machine may run a VM: %v", err)
	}
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it is off"})
	k.must(t, state.KindJoin, again)
}
