package loop_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// overfull is a cluster whose first host has two VMs of 4 cores, and whose others are empty.
func overfull(t failer, hosts ...string) *cluster {
	c := newCluster(t, hosts...)
	for _, h := range hosts[1:] {
		c.must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
	}
	for _, name := range []string{"x", "y"} {
		c.enact(name, loop.Create(c.Snapshot(), vc(name, 0, group(1, 4, gib)), c.env()).Plan)
	}
	c.run()
	for _, h := range hosts[1:] {
		c.must(state.KindHostCordon, state.HostCordon{Host: h})
	}
	return c
}

func (c *cluster) rebalance(see loop.FleetObservation, o loop.FleetOptions, budget int64) state.MovePlan {
	c.t.Helper()
	p, err := loop.Rebalance(loop.NewFleet(c.Snapshot(), c.env(), see, o), budget, 0.1, false)
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	return p
}

func TestRebalance(t *testing.T) {
	c := overfull(t, "a", "b")
	p := c.rebalance(loop.FleetObservation{}, loop.FleetOptions{}, 4*gib)
	if len(p.Steps) != 1 || p.MinYieldBefore != 0.5 || p.MinYieldAfter != 1 || p.Bytes > 4*gib || p.Steps[0].Allotment > 4*gib || p.Steps[0].Allotment < p.Bytes {
		t.Fatalf("plan: %+v", p)
	}
	if s := p.Steps[0]; s.From != "a" || s.To != "b" || s.VMName == "" || s.Reason == "" || s.Seconds <= 0 || s.State != state.StepWaiting {
		t.Errorf("step: %+v", s)
	}
	if p := c.rebalance(loop.FleetObservation{}, loop.FleetOptions{}, -1); len(p.Steps) != 1 || p.Steps[0].Allotment != -1 {
		t.Errorf("without a bound: %+v", p)
	}
	for what, o := range map[string]struct {
		see    loop.FleetObservation
		o      loop.FleetOptions
		budget int64
		change func(c *cluster)
		why    string
	}{
		"no budget":     {budget: gib / 2, why: "within 512 MiB"},
		"target closed": {budget: -1, change: func(c *cluster) { c.must(state.KindHostCordon, state.HostCordon{Host: "b", Cordoned: true}) }},
		"other CPU": {budget: -1, see: loop.FleetObservation{Partners: map[string]hypervisor.Partner{
			"a": {CPUModel: "old"}, "b": {CPUModel: "new"}}}},
		"other machines": {budget: -1, see: loop.FleetObservation{Partners: map[string]hypervisor.Partner{
			"a": {Machines: []string{"q35-9"}}, "b": {Machines: []string{"q35-8"}}}}},
		"just moved": {budget: -1, o: loop.FleetOptions{MinResidency: time.Hour}, change: func(c *cluster) {
			for _, vm := range []state.VM{c.vmOf("x"), c.vmOf("y")} {
				for _, to := range []string{"b", "a"} {
					id := vm.ID + to
					c.must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Open: true, ID: id})
					c.must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Arrived: true, Move: c.index})
				}
			}
		}},
		"another plan's": {budget: -1, change: func(c *cluster) {
			c.expect("p", c.vmOf("x"), "b")
			c.expect("q", c.vmOf("y"), "b")
		}},
	} {
		c := overfull(t, "a", "b")
		if o.change != nil {
			o.change(c)
		}
		p := c.rebalance(o.see, o.o, o.budget)
		if len(p.Steps) != 0 || !strings.Contains(p.Reason, "no beneficial move") || !strings.Contains(p.Reason, o.why) || p.MinYieldAfter != p.MinYieldBefore {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// Disks that lie on one host keep VMs there, unless they may be copied, and then their bytes count.
func TestRebalanceDisks(t *testing.T) {
	for _, kind := range []string{"local", "copied", "shared"} {
		c := newCluster(t, "a", "b")
		if kind == "shared" {
			m, _ := c.Snapshot().Meta()
			set := state.DefaultSettings()
			set.SharedPools = []string{"default"}
			c.must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
		}
		c.must(state.KindHostCordon, state.HostCordon{Host: "b", Cordoned: true})
		for _, name := range []string{"x", "y"} {
			g := group(1, 4, gib)
			g.Disk = state.Disk{Size: 3 * gib, Pool: "default"}
			c.enact(name, loop.Create(c.Snapshot(), vc(name, 0, g), c.env()).Plan)
		}
		c.run()
		c.must(state.KindHostCordon, state.HostCordon{Host: "b"})
		p := c.rebalance(loop.FleetObservation{}, loop.FleetOptions{CopyStorage: kind == "copied"}, -1)
		switch {
		case kind == "local" && len(p.Steps) != 0, kind != "local" && len(p.Steps) != 1:
			t.Errorf("%s: %+v", kind, p)
		case kind == "copied" && (p.Bytes < 4*gib || !p.Steps[0].CopyStorage), kind == "shared" && p.Bytes > 3*gib/2:
			t.Errorf("%s: %d bytes, %+v", kind, p.Bytes, p.Steps)
		}
	}
}

// A busy guest costs more, one that uses little of its memory less.
func TestMoveBytes(t *testing.T) {
	bytes := func(u loop.Use) int64 {
		c := overfull(t, "a", "b")
		p := c.rebalance(loop.FleetObservation{Use: map[string]loop.Use{c.vmOf("x").ID: u, c.vmOf("y").ID: u}}, loop.FleetOptions{}, -1)
		return p.Bytes
	}
	if b := bytes(loop.Use{}); b < gib || b > gib*11/10 {
		t.Errorf("a quiet one: %d bytes", b)
	}
	if b := bytes(loop.Use{Resident: gib / 4}); b < gib/4 || b > gib/3 {
		t.Errorf("one that uses little: %d bytes", b)
	}
	if b := bytes(loop.Use{Dirty: 62_500_000}); b < gib*19/10 || b > gib*22/10 { // half the link
		t.Errorf("one that writes half as fast as can be sent: %d bytes", b)
	}
	if b := bytes(loop.Use{Dirty: 1e12}); b < 3*gib || b > gib*33/10 {
		t.Errorf("one that writes faster than can be sent: %d bytes", b)
	}
	if b := bytes(loop.Use{Sent: 2 * gib}); b < 2*gib {
		t.Errorf("one whose last move sent 2 GiB: %d bytes", b)
	}
}

// A VC that waits for want of room is answered which moves room would take, and gets it within the budget.
func TestRoom(t *testing.T) {
	c := newCluster(t, "a", "b")
	for name, shut := range map[string]string{"x": "a", "y": "b"} { // one on each host
		c.must(state.KindHostCordon, state.HostCordon{Host: shut, Cordoned: true})
		c.enact(name, loop.Create(c.Snapshot(), vc(name, 0, group(1, 1, 3*gib)), c.env()).Plan)
		c.must(state.KindHostCordon, state.HostCordon{Host: shut})
	}
	c.run()
	big := vc("big", 0, group(1, 1, 6*gib))
	if a := loop.Create(c.Snapshot(), big, c.env()); a.Plan == nil || !a.Queued {
		t.Fatalf("%+v", a)
	} else {
		c.must(state.KindPlan, a.Plan)
	}
	waits, _ := c.Snapshot().VC("vc-big")
	room := func(budget int64) (state.MovePlan, float64) {
		p, takes, err := loop.PlanRoom(loop.NewFleet(c.Snapshot(), c.env(), loop.FleetObservation{}, loop.FleetOptions{}, waits), budget)
		if err != nil {
			t.Fatal(err)
		}
		return p, takes
	}
	if p, takes := room(gib); len(p.Steps) != 0 || takes < 3*float64(gib) || takes > 4*float64(gib) {
		t.Errorf("within 1 GiB: %v bytes would do: %+v", takes, p)
	}
	p, _ := room(4 * gib)
	if len(p.Steps) != 1 || p.Bytes < 3*gib || p.Bytes > 4*gib || p.Kind != state.MovesRoom {
		t.Errorf("within 4 GiB: %+v", p)
	}
	waits.Groups[0].Memory = 9 * gib
	if p, takes := room(-1); len(p.Steps) != 0 || !math.IsInf(takes, 1) {
		t.Errorf("larger than a host: %v bytes would do: %+v", takes, p)
	}
}
