package rebalance_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/test/scheduling"
)

func plan(c *scheduling.Cluster, see moves.Observation, o moves.Options, budget int64) state.MovePlan {
	c.T.Helper()
	p, err := rebalance.Plan(moves.NewFleet(c.Snapshot(), c.Env(), see, o), budget, 0.1, false)
	if err != nil {
		c.T.Fatalf("%v", err)
	}
	return p
}

func TestRebalance(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b")
	p := plan(c, moves.Observation{}, moves.Options{}, 4*scheduling.GiB)
	if len(p.Steps) != 1 || p.MinYieldBefore != 0.5 || p.MinYieldAfter != 1 || p.Bytes > 4*scheduling.GiB || p.Steps[0].Allotment > 4*scheduling.GiB || p.Steps[0].Allotment < p.Bytes {
		t.Fatalf("plan: %+v", p)
	}
	if s := p.Steps[0]; s.From != "a" || s.To != "b" || s.VMName == "" || s.Reason == "" || s.Seconds <= 0 || s.State != state.StepWaiting {
		t.Errorf("step: %+v", s)
	}
	if p := plan(c, moves.Observation{}, moves.Options{}, -1); len(p.Steps) != 1 || p.Steps[0].Allotment != -1 {
		t.Errorf("without a bound: %+v", p)
	}
	for what, o := range map[string]struct {
		see    moves.Observation
		o      moves.Options
		budget int64
		change func(c *scheduling.Cluster)
		why    string
	}{
		"no budget":     {budget: scheduling.GiB / 2, why: "within 512 MiB"},
		"target closed": {budget: -1, change: func(c *scheduling.Cluster) { c.Must(state.KindHostCordon, state.HostCordon{Host: "b", Cordoned: true}) }},
		"other CPU": {budget: -1, see: moves.Observation{Partners: map[string]hypervisor.Partner{
			"a": {CPUModel: "old"}, "b": {CPUModel: "new"}}}},
		"other machines": {budget: -1, see: moves.Observation{Partners: map[string]hypervisor.Partner{
			"a": {Machines: []string{"q35-9"}}, "b": {Machines: []string{"q35-8"}}}}},
		"just moved": {budget: -1, o: moves.Options{MinResidency: time.Hour}, change: func(c *scheduling.Cluster) {
			for _, vm := range []state.VM{c.VMOf("x"), c.VMOf("y")} {
				for _, to := range []string{"b", "a"} {
					id := vm.ID + to
					c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Open: true, ID: id})
					c.Must(state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: to, Arrived: true, Move: c.Index})
				}
			}
		}},
		"another plan's": {budget: -1, change: func(c *scheduling.Cluster) {
			c.Expect("p", c.VMOf("x"), "b")
			c.Expect("q", c.VMOf("y"), "b")
		}},
	} {
		c := scheduling.Overfull(t, "a", "b")
		if o.change != nil {
			o.change(c)
		}
		p := plan(c, o.see, o.o, o.budget)
		if len(p.Steps) != 0 || !strings.Contains(p.Reason, "no beneficial move") || !strings.Contains(p.Reason, o.why) || p.MinYieldAfter != p.MinYieldBefore {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// Disks that lie on one host keep VMs there, unless they may be copied, and then their bytes count.
func TestRebalanceDisks(t *testing.T) {
	for _, kind := range []string{"local", "copied", "shared"} {
		c := scheduling.NewCluster(t, "a", "b")
		if kind == "shared" {
			m, _ := c.Snapshot().Meta()
			set := state.DefaultSettings()
			set.SharedPools = []string{"default"}
			c.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
		}
		c.Must(state.KindHostCordon, state.HostCordon{Host: "b", Cordoned: true})
		for _, name := range []string{"x", "y"} {
			g := scheduling.Group(1, 4, scheduling.GiB)
			g.Disk = state.Disk{Size: 3 * scheduling.GiB, Pool: "default"}
			c.Enact(name, admission.Create(c.Snapshot(), scheduling.VC(name, 0, g), c.Env()).Plan)
		}
		c.Run()
		c.Must(state.KindHostCordon, state.HostCordon{Host: "b"})
		p := plan(c, moves.Observation{}, moves.Options{CopyStorage: kind == "copied"}, -1)
		switch {
		case kind == "local" && len(p.Steps) != 0, kind != "local" && len(p.Steps) != 1:
			t.Errorf("%s: %+v", kind, p)
		case kind == "copied" && (p.Bytes < 4*scheduling.GiB || !p.Steps[0].CopyStorage), kind == "shared" && p.Bytes > 3*scheduling.GiB/2:
			t.Errorf("%s: %d bytes, %+v", kind, p.Bytes, p.Steps)
		}
	}
}

// A busy guest costs more, one that uses little of its memory less.
func TestMoveBytes(t *testing.T) {
	bytes := func(u moves.Use) int64 {
		c := scheduling.Overfull(t, "a", "b")
		p := plan(c, moves.Observation{Use: map[string]moves.Use{c.VMOf("x").ID: u, c.VMOf("y").ID: u}}, moves.Options{}, -1)
		return p.Bytes
	}
	if b := bytes(moves.Use{}); b < scheduling.GiB || b > scheduling.GiB*11/10 {
		t.Errorf("a quiet one: %d bytes", b)
	}
	if b := bytes(moves.Use{Resident: scheduling.GiB / 4}); b < scheduling.GiB/4 || b > scheduling.GiB/3 {
		t.Errorf("one that uses little: %d bytes", b)
	}
	if b := bytes(moves.Use{Dirty: 62_500_000}); b < scheduling.GiB*19/10 || b > scheduling.GiB*22/10 { // half the link
		t.Errorf("one that writes half as fast as can be sent: %d bytes", b)
	}
	if b := bytes(moves.Use{Dirty: 1e12}); b < 3*scheduling.GiB || b > scheduling.GiB*33/10 {
		t.Errorf("one that writes faster than can be sent: %d bytes", b)
	}
	if b := bytes(moves.Use{Sent: 2 * scheduling.GiB}); b < 2*scheduling.GiB {
		t.Errorf("one whose last move sent 2 GiB: %d bytes", b)
	}
}

// A VC that waits for want of room is answered which moves room would take, and gets it within the budget.
func TestRoom(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b")
	for name, shut := range map[string]string{"x": "a", "y": "b"} { // one on each host
		c.Must(state.KindHostCordon, state.HostCordon{Host: shut, Cordoned: true})
		c.Enact(name, admission.Create(c.Snapshot(), scheduling.VC(name, 0, scheduling.Group(1, 1, 3*scheduling.GiB)), c.Env()).Plan)
		c.Must(state.KindHostCordon, state.HostCordon{Host: shut})
	}
	c.Run()
	big := scheduling.VC("big", 0, scheduling.Group(1, 1, 6*scheduling.GiB))
	if a := admission.Create(c.Snapshot(), big, c.Env()); a.Plan == nil || !a.Queued {
		t.Fatalf("%+v", a)
	} else {
		c.Must(state.KindPlan, a.Plan)
	}
	waits, _ := c.Snapshot().VC("vc-big")
	room := func(budget int64) (state.MovePlan, float64) {
		p, takes, err := rebalance.PlanRoom(moves.NewFleet(c.Snapshot(), c.Env(), moves.Observation{}, moves.Options{}, waits), budget)
		if err != nil {
			t.Fatal(err)
		}
		return p, takes
	}
	if p, takes := room(scheduling.GiB); len(p.Steps) != 0 || takes < 3*float64(scheduling.GiB) || takes > 4*float64(scheduling.GiB) {
		t.Errorf("within 1 GiB: %v bytes would do: %+v", takes, p)
	}
	p, _ := room(4 * scheduling.GiB)
	if len(p.Steps) != 1 || p.Bytes < 3*scheduling.GiB || p.Bytes > 4*scheduling.GiB || p.Kind != state.MovesRoom {
		t.Errorf("within 4 GiB: %+v", p)
	}
	waits.Groups[0].Memory = 9 * scheduling.GiB
	if p, takes := room(-1); len(p.Steps) != 0 || !math.IsInf(takes, 1) {
		t.Errorf("larger than a host: %v bytes would do: %+v", takes, p)
	}
}
