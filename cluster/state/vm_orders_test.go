package state_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

// order makes a plan that changes one VM, for an operation of that kind.
func (c *cluster) order(id, kind string, change func(*state.VM, state.Group)) state.Plan {
	s := c.Snapshot()
	vm, _ := s.VM(id)
	vc, _ := s.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	op := state.Operation{ID: "op-" + kind, Kind: kind, VC: vc.ID, Name: vc.Name, VM: vm.ID, VMName: vm.Name, Generation: vm.Generation}
	if kind == "restart" || kind == "start" {
		op.Generation++
	}
	change(&vm, g)
	return state.Plan{Basis: s.Index(), Verb: kind, VC: &vc, VCVersion: vc.ModifyIndex, VMs: []state.VM{vm}, AffectedHosts: []string{vm.Host}, Operation: &op, Text: "asked for"}
}

func stopAlone(vm *state.VM, g state.Group) { *vm = vm.StopAlone(g, "ann") }
func restart(vm *state.VM, g state.Group)   { *vm = vm.Restarting(g, "restarted by ann", false) }
func reset(vm *state.VM, _ state.Group) {
	vm.Order.Reset = state.Reset{ID: "op-reset", State: state.ResetAsked}
}

// alone is a VC with two VMs on h1 that run.
func alone(t *testing.T) *cluster {
	c := small(t, 2)
	c.must(t, state.KindPlan, planOf(c.Snapshot(), "a", 1, gib, "h1", "h1"))
	for _, vm := range []string{"vm-a-0", "vm-a-1"} {
		c.must(t, state.KindVMReport, report("h1", vm, 1, state.Running))
	}
	return c
}

func (c *cluster) vm(id string) state.VM { vm, _ := c.Snapshot().VM(id); return vm }

func (c *cluster) progress(kind string) state.Progress {
	op, _ := c.Snapshot().Operation("op-" + kind)
	return c.Snapshot().ProgressOf(op, func(string) uint64 { return 0 })
}

func (c *cluster) stateOf(name string) state.VCState {
	vc, _ := c.Snapshot().VCNamed(name)
	return state.StateOf(vc, c.Snapshot().VMsOf(vc.ID))
}

// A VM that was stopped alone stays stopped, its host keeps its memory and no CPU, and its VC is degraded.
func TestStoppedAlone(t *testing.T) {
	c := alone(t)
	before := c.Snapshot().LoadOf("h1")
	c.must(t, state.KindPlan, c.order("vm-a-0", "stop", stopAlone))
	if p := c.progress("stop"); p.State != state.OpPending {
		t.Errorf("%+v", p)
	}
	c.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Stopped))
	vm, now := c.vm("vm-a-0"), c.Snapshot().LoadOf("h1")
	if vm.Phase != state.Stopped || !vm.KeepsMemory() || vm.Reason != "stopped by ann" || now.Memory != before.Memory || now.CPU != 1 || now.VMs != 1 {
		t.Errorf("%+v, load %+v, before %+v", vm, now, before)
	}
	if p := c.progress("stop"); p.State != state.OpDone {
		t.Errorf("%+v", p)
	}
	if got := c.stateOf("a"); got != state.VCDegraded {
		t.Errorf("its VC is %s", got)
	}
	c.must(t, state.KindPlan, c.order("vm-a-0", "stop", stopAlone))
	if vm := c.vm("vm-a-0"); !vm.KeepsMemory() {
		t.Errorf("asked for again: %+v", vm)
	}
	if got := state.StoppedAloneText(state.StoppedAlone(c.Snapshot().VMs())); got != "1 VM stopped by ann" {
		t.Error(got)
	}
	c.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it burnt", Basis: c.Snapshot().Index()})
	if vm := c.vm("vm-a-0"); vm.Phase != state.Stopped || vm.Goal != state.GoalStop {
		t.Errorf("its host is lost: %+v", vm)
	}
	if other := c.vm("vm-a-1"); other.Phase != state.Lost || other.Goal != state.GoalRun {
		t.Errorf("another on that host: %+v", other)
	}
	stop := leave(c.Snapshot(), "a", state.GoalStop)
	for i, vm := range stop.VMs {
		stop.VMs[i] = vm.Leaving(stop.VC.Groups[0], state.GoalStop)
	}
	stop.AffectedHosts = nil
	c.must(t, state.KindPlan, stop)
	if vm := c.vm("vm-a-0"); vm.Order != (state.VMOrder{}) {
		t.Errorf("its VC was stopped: %+v", vm)
	}
}

// A VM that is stopped while its host is lost does not come back with the host's VMs.
func TestStoppingAloneAtALoss(t *testing.T) {
	c := alone(t)
	c.must(t, state.KindPlan, c.order("vm-a-0", "stop", stopAlone))
	c.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it burnt", Basis: c.Snapshot().Index()})
	if vm := c.vm("vm-a-0"); vm.Phase != state.Stopped || vm.KeepsMemory() || vm.Order.StoppedBy != "ann" {
		t.Errorf("%+v", vm)
	}
}

// A restart is one entry from the report that the VM stopped to its next start, on the same host, charged all the time.
func TestRestartAlone(t *testing.T) {
	c := alone(t)
	before := c.Snapshot().LoadOf("h1")
	c.must(t, state.KindPlan, c.order("vm-a-0", "restart", restart))
	for _, step := range []struct {
		generation uint64
		phase      state.Phase
		want       state.Phase
		op         state.OpState
	}{{0, "", state.Stopping, state.OpPending}, {1, state.Stopped, state.Starting, state.OpPending}, {1, state.Stopped, state.Starting, state.OpPending}, {2, state.Running, state.Running, state.OpDone}} {
		if step.phase != "" {
			c.must(t, state.KindVMReport, report("h1", "vm-a-0", step.generation, step.phase))
		}
		vm := c.vm("vm-a-0")
		if now := c.Snapshot().LoadOf("h1"); vm.Phase != step.want || !vm.ToRun() || now.CPU != before.CPU || now.Memory != before.Memory || vm.Host != "h1" {
			t.Errorf("after %s: %+v, load %+v", step.phase, vm, now)
		}
		if p := c.progress("restart"); p.State != step.op {
			t.Errorf("after %s: %+v", step.phase, p)
		}
	}
	if vm := c.vm("vm-a-0"); vm.Generation != 2 || vm.Order != (state.VMOrder{}) {
		t.Errorf("%+v", vm)
	}
}

// A restart whose host is lost meanwhile, or has no room any more, is to be started like any VM that was lost.
func TestRestartAloneWithoutItsHost(t *testing.T) {
	for name, hits := range map[string]func(c *cluster){
		"lost": func(c *cluster) {
			c.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it burnt", Basis: c.Snapshot().Index()})
		},
		"no room": func(c *cluster) { // the balloon was small, and its boot needs more than is left
			s := c.Snapshot()
			vc, _ := s.VC("vc-a")
			for _, vm := range s.VMsOf(vc.ID) {
				vm.Target, vm.ChargedMemory = gib/4, gib/4
				p := state.Plan{Basis: c.Snapshot().Index(), Verb: "x", VMs: []state.VM{vm}, AffectedHosts: []string{"h1"}}
				c.must(t, state.KindPlan, p)
			}
			c.must(t, state.KindHostReport, hostReport("h1", 4, gib))
			c.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Stopped))
		},
	} {
		c := alone(t)
		c.must(t, state.KindPlan, c.order("vm-a-0", "restart", restart))
		hits(c)
		if vm := c.vm("vm-a-0"); vm.Phase != state.Lost || vm.Goal != state.GoalRun || vm.Order.Restart || vm.Generation != 1 {
			t.Errorf("%s: %+v", name, vm)
		}
		if p := c.progress("restart"); p.State != state.OpPending {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// One reset has one permit, for the generation and host it is asked for; what ends the VM ends it.
func TestResetOnceOrNever(t *testing.T) {
	good := state.VMReset{VM: "vm-a-0", Generation: 1, ID: "op-reset", Host: "h1", Permit: true}
	ask := func(t *testing.T) *cluster {
		c := alone(t)
		c.must(t, state.KindPlan, c.order("vm-a-0", "reset", reset))
		return c
	}
	c := ask(t)
	for name, change := range map[string]func(*state.VMReset){
		"another generation": func(b *state.VMReset) { b.Generation = 2 },
		"another host":       func(b *state.VMReset) { b.Host = "h2" },
		"another reset":      func(b *state.VMReset) { b.ID = "op-other" },
		"an end before":      func(b *state.VMReset) { b.Permit = false },
	} {
		b := good
		change(&b)
		if err := c.apply(t, state.KindVMReset, b); !errors.Is(err, state.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.must(t, state.KindVMReset, good)
	if err := c.apply(t, state.KindVMReset, good); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a second permit: %v", err)
	}
	done := good
	done.Permit = false
	c.must(t, state.KindVMReset, done)
	if p := c.progress("reset"); p.State != state.OpDone || c.vm("vm-a-0").Generation != 1 {
		t.Errorf("%+v", p)
	}
	for _, b := range []state.VMReset{good, done} {
		if err := c.apply(t, state.KindVMReset, b); !errors.Is(err, state.ErrConflict) {
			t.Errorf("after its end: %v", err)
		}
	}
	kinds := []string{}
	for _, e := range c.Snapshot().EventsWhere(state.EventFilter{}, 0, false, 1000) {
		if e.Object == "vm" && strings.HasPrefix(e.Kind, "vm-reset") {
			kinds = append(kinds, e.Kind)
		}
	}
	if !slices.Equal(kinds, []string{"vm-reset-requested", "vm-reset"}) {
		t.Errorf("events %v", kinds)
	}

	c = ask(t)
	c.must(t, state.KindVMReset, good)
	failed := done
	failed.Failed, failed.Text = true, "libvirt hangs"
	c.must(t, state.KindVMReset, failed)
	if p := c.progress("reset"); p.State != state.OpFailed || p.Text != "libvirt hangs" {
		t.Errorf("%+v", p)
	}
	c = ask(t)
	c.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Failed))
	if err := c.apply(t, state.KindVMReset, good); !errors.Is(err, state.ErrConflict) || c.progress("reset").State != state.OpFailed {
		t.Errorf("a VM that ended: %v, %+v", err, c.progress("reset"))
	}
}

// A server that does not know orders to single VMs is kept out while there are any.
func TestOlderServerAndVMOrders(t *testing.T) {
	c := alone(t)
	older := state.Member{Name: "h9", Server: true, Address: "10.0.0.9:7480", Format: 1}
	c.must(t, state.KindPlan, c.order("vm-a-0", "stop", stopAlone))
	if err := c.apply(t, state.KindMemberPut, older); !errors.Is(err, state.ErrConflict) {
		t.Errorf("%v", err)
	}
	k := alone(t)
	k.must(t, state.KindMemberPut, older)
	if _, err := k.Snapshot().Encode(state.KindPlan, start, k.order("vm-a-0", "stop", stopAlone)); !errors.Is(err, state.ErrTooNew) {
		t.Errorf("%v", err)
	}
}
