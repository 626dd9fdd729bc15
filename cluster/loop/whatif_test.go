package loop_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

func (c *cluster) simulate(w loop.Simulation) loop.Outcome {
	c.t.Helper()
	o, err := loop.Simulate(c.Snapshot(), c.env(), loop.FleetObservation{}, w)
	if err != nil {
		c.t.Fatalf("%+v: %v", w, err)
	}
	return o
}

func TestSimulate(t *testing.T) {
	c := overfull(t, "a", "b") // two VMs of 4 cores on a, which has 4
	o := c.simulate(loop.Simulation{Budget: 0})
	if o.Plan.MinYieldBefore != 0.5 || o.Plan.MinYieldAfter != 0.5 || o.Plan.Bytes != 0 || len(o.Refused)+len(o.Unplaced) > 0 {
		t.Errorf("no bytes: %+v", o)
	}
	o = c.simulate(loop.Simulation{Budget: -1})
	if o.Plan.MinYieldAfter != 1 || len(o.Plan.Steps) != 1 || o.Plan.State != state.MovesProposed {
		t.Errorf("any bytes: %+v", o)
	}
	o = c.simulate(loop.Simulation{Budget: -1, Needs: []loop.SimulatedNeed{{VC: "x", Group: "g0", CPU: 2}}})
	if o.Plan.MinYieldBefore != 0.5 || o.Plan.MinYieldAfter != 1 {
		t.Errorf("x needs less: %+v", o)
	}
	o = c.simulate(loop.Simulation{Budget: -1, Needs: []loop.SimulatedNeed{{VC: "x", CPU: 8}}})
	if len(o.Refused) != 1 || !strings.Contains(o.Refused[0], "4 vCPUs") {
		t.Errorf("x needs more than its VM can use: %+v", o.Refused)
	}
	o = c.simulate(loop.Simulation{Budget: -1, Remove: []string{"a"}})
	if len(o.Plan.Steps) != 2 || o.Plan.MinYieldAfter != 0.5 || o.Plan.Kind != state.MovesDrain {
		t.Errorf("without a: %+v", o)
	}
	o = c.simulate(loop.Simulation{Budget: -1, Remove: []string{"a"}, Add: []loop.SimulatedHost{{CPU: 4, Memory: 8 * gib, Count: 2}}})
	if len(o.Plan.Steps) != 2 || o.Plan.MinYieldAfter != 1 {
		t.Errorf("without a, with two more: %+v", o)
	}
	for _, s := range o.Plan.Steps {
		if s.From != "a" || s.To == "a" {
			t.Errorf("%+v", s)
		}
	}
	o = c.simulate(loop.Simulation{Budget: gib / 2, Remove: []string{"a"}})
	if len(o.Unplaced) != 2 || !strings.Contains(o.Unplaced[0].Why, "budget") {
		t.Errorf("without a, and few bytes: %+v", o)
	}
	index := c.Snapshot().Index()
	for _, w := range []loop.Simulation{{Remove: []string{"z"}}, {Needs: []loop.SimulatedNeed{{VC: "z", CPU: 1}}}, {Needs: []loop.SimulatedNeed{{VC: "x", Group: "z", CPU: 1}}},
		{Needs: []loop.SimulatedNeed{{VC: "x", CPU: -1}}}, {Needs: []loop.SimulatedNeed{{VC: "x", CPU: math.NaN()}}}, {Add: []loop.SimulatedHost{{CPU: 1, Memory: 1}}}} {
		if _, err := loop.Simulate(c.Snapshot(), c.env(), loop.FleetObservation{}, w); !errors.Is(err, loop.ErrWhat) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if c.Snapshot().Index() != index {
		t.Error("a question changed something")
	}
}

// A VC that waits is admitted if there is room in the end, and reported as waiting still if not. Promises that would be broken
// are reported.
func TestSimulateTheQueueAndPromises(t *testing.T) {
	c := newCluster(t, "a")
	c.enact("x", loop.Create(c.Snapshot(), vc("x", 0.8, group(2, 2, 3*gib)), c.env()).Plan)
	c.run()
	waits := vc("waits", 0.5, group(1, 2, 3*gib))
	c.enact("waits", loop.Create(c.Snapshot(), waits, c.env()).Plan)
	o := c.simulate(loop.Simulation{Budget: -1})
	if len(o.Refused) != 1 || !strings.HasPrefix(o.Refused[0], "waits: ") {
		t.Errorf("as it is: %+v", o.Refused)
	}
	if o = c.simulate(loop.Simulation{Budget: -1, Add: []loop.SimulatedHost{{CPU: 4, Memory: 8 * gib, Count: 1}}}); len(o.Refused) != 0 {
		t.Errorf("with a host more: %+v", o.Refused)
	}
	c.host("a", 4, 8*gib, state.Resources{CPU: 1})
	if o = c.simulate(loop.Simulation{Budget: -1, Needs: []loop.SimulatedNeed{{VC: "x", CPU: 2}}}); len(o.Refused) != 2 || !strings.Contains(o.Refused[0], "the least it accepts is 0.800") {
		t.Errorf("x cannot have what it was promised: %+v", o)
	}
}

// What VMs may take back by themselves is no room for those that wait, by the same count that decides when they are asked for.
func TestSimulateKeepsTheReserve(t *testing.T) {
	for _, more := range []int64{0, mib} {
		c := newCluster(t)
		c.host("h1", 4, 40*gib, state.Resources{})
		c.create(vc("a", 1, group(8, 0.1, 4*gib)))
		c.commitPlan()
		c.lessMemory("a", gib)
		const has = 8*(gib+64*mib) + 6*gib
		c.host("h1", 4, has, state.Resources{})
		c.enact("waits", loop.Create(c.Snapshot(), vc("waits", 1, group(1, 0.1, 2*gib-64*mib+more)), c.env()).Plan)
		c.host("h1", 4, has+2*gib, state.Resources{})
		if o := c.simulate(loop.Simulation{Budget: -1}); len(o.Refused) > 0 != (more > 0) {
			t.Errorf("%d bytes more than there are: %+v", more, o.Refused)
		}
	}
}

func TestFailoverRows(t *testing.T) {
	c := newCluster(t, "a", "b")
	x := vc("x", 0, group(1, 4, 5*gib))
	x.OnHostLoss = state.RestartOnLoss
	c.enact("x", loop.Create(c.Snapshot(), x, c.env()).Plan)
	c.enact("y", loop.Create(c.Snapshot(), vc("y", 0, group(1, 4, gib)), c.env()).Plan)
	c.run()
	rows, err := loop.FailoverCapacity(c.Snapshot(), c.env())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v %v", rows, err)
	}
	for _, r := range rows {
		if !r.Fits || r.MinYield != 0.5 || r.Text == "" {
			t.Errorf("%+v", r)
		}
	}
	c.enact("z", loop.Create(c.Snapshot(), vc("z", 0, group(1, 1, 4*gib)), c.env()).Plan)
	c.run()
	rows, err = loop.FailoverCapacity(c.Snapshot(), c.env())
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for _, r := range rows {
		if !r.Fits {
			bad++
			if len(r.Unplaced) == 0 || !strings.Contains(r.Text, "memory") || r.MinYield != 0 {
				t.Errorf("%+v", r)
			}
		}
	}
	if bad != 2 {
		t.Errorf("%+v", rows)
	}
}

func BenchmarkWhatIf(b *testing.B) {
	for _, scale := range scales {
		c := scale.make(b)
		s := c.Snapshot()
		run := func(name string, f func() error) {
			b.Run(scale.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("spare", func() error { _, err := loop.FailoverCapacity(s, c.env()); return err })
		run("lose a host", func() error {
			_, err := loop.Simulate(s, c.env(), loop.FleetObservation{}, loop.Simulation{Budget: 1 << 40, Remove: []string{"h7"}})
			return err
		})
		run("add hosts", func() error {
			_, err := loop.Simulate(s, c.env(), loop.FleetObservation{}, loop.Simulation{Budget: 1 << 40, Add: []loop.SimulatedHost{{CPU: 30, Memory: 120 * gib, Count: 10}}})
			return err
		})
		run("drain", func() error {
			_, err := loop.Drain(loop.NewFleet(s, c.env(), loop.FleetObservation{}, loop.FleetOptions{}), "h7", loop.DrainOptions{Budget: -1, OptionalBytes: 75e9, MinGain: 0.1})
			return err
		})
	}
}
