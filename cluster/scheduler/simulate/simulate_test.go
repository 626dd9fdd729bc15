package simulate_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/simulate"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

func run(c *scheduling.Cluster, w simulate.Request) simulate.Outcome {
	c.T.Helper()
	o, err := simulate.Run(c.Snapshot(), c.Env(), moves.Observation{}, w)
	if err != nil {
		c.T.Fatalf("%+v: %v", w, err)
	}
	return o
}

func TestSimulate(t *testing.T) {
	c := scheduling.Overfull(t, "a", "b") // two VMs of 4 cores on a, which has 4
	o := run(c, simulate.Request{Budget: 0})
	if o.Plan.MinYieldBefore != 0.5 || o.Plan.MinYieldAfter != 0.5 || o.Plan.Bytes != 0 || len(o.Refused)+len(o.Unplaced) > 0 {
		t.Errorf("no bytes: %+v", o)
	}
	o = run(c, simulate.Request{Budget: -1})
	if o.Plan.MinYieldAfter != 1 || len(o.Plan.Steps) != 1 || o.Plan.State != state.MovesProposed {
		t.Errorf("any bytes: %+v", o)
	}
	o = run(c, simulate.Request{Budget: -1, Needs: []simulate.Need{{VC: "x", Group: "g0", CPU: 2}}})
	if o.Plan.MinYieldBefore != 0.5 || o.Plan.MinYieldAfter != 1 {
		t.Errorf("x needs less: %+v", o)
	}
	o = run(c, simulate.Request{Budget: -1, Needs: []simulate.Need{{VC: "x", CPU: 8}}})
	if len(o.Refused) != 1 || !strings.Contains(o.Refused[0], "4 vCPUs") {
		t.Errorf("x needs more than its VM can use: %+v", o.Refused)
	}
	o = run(c, simulate.Request{Budget: -1, Remove: []string{"a"}})
	if len(o.Plan.Steps) != 2 || o.Plan.MinYieldAfter != 0.5 || o.Plan.Kind != state.MovesDrain {
		t.Errorf("without a: %+v", o)
	}
	o = run(c, simulate.Request{Budget: -1, Remove: []string{"a"}, Add: []simulate.Host{{CPU: 4, Memory: 8 * scheduling.GiB, Count: 2}}})
	if len(o.Plan.Steps) != 2 || o.Plan.MinYieldAfter != 1 {
		t.Errorf("without a, with two more: %+v", o)
	}
	for _, s := range o.Plan.Steps {
		if s.From != "a" || s.To == "a" {
			t.Errorf("%+v", s)
		}
	}
	o = run(c, simulate.Request{Budget: scheduling.GiB / 2, Remove: []string{"a"}})
	if len(o.Unplaced) != 2 || !strings.Contains(o.Unplaced[0].Why, "budget") {
		t.Errorf("without a, and few bytes: %+v", o)
	}
	index := c.Snapshot().Index()
	for _, w := range []simulate.Request{{Remove: []string{"z"}}, {Needs: []simulate.Need{{VC: "z", CPU: 1}}}, {Needs: []simulate.Need{{VC: "x", Group: "z", CPU: 1}}},
		{Needs: []simulate.Need{{VC: "x", CPU: -1}}}, {Needs: []simulate.Need{{VC: "x", CPU: math.NaN()}}}, {Add: []simulate.Host{{CPU: 1, Memory: 1}}}} {
		if _, err := simulate.Run(c.Snapshot(), c.Env(), moves.Observation{}, w); !errors.Is(err, simulate.ErrWhat) {
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
	c := scheduling.NewCluster(t, "a")
	c.Enact("x", admission.Create(c.Snapshot(), scheduling.VC("x", 0.8, scheduling.Group(2, 2, 3*scheduling.GiB)), c.Env()).Plan)
	c.Run()
	waits := scheduling.VC("waits", 0.5, scheduling.Group(1, 2, 3*scheduling.GiB))
	c.Enact("waits", admission.Create(c.Snapshot(), waits, c.Env()).Plan)
	o := run(c, simulate.Request{Budget: -1})
	if len(o.Refused) != 1 || !strings.HasPrefix(o.Refused[0], "waits: ") {
		t.Errorf("as it is: %+v", o.Refused)
	}
	if o = run(c, simulate.Request{Budget: -1, Add: []simulate.Host{{CPU: 4, Memory: 8 * scheduling.GiB, Count: 1}}}); len(o.Refused) != 0 {
		t.Errorf("with a host more: %+v", o.Refused)
	}
	c.Host("a", 4, 8*scheduling.GiB, state.Resources{CPU: 1})
	if o = run(c, simulate.Request{Budget: -1, Needs: []simulate.Need{{VC: "x", CPU: 2}}}); len(o.Refused) != 2 || !strings.Contains(o.Refused[0], "the least it accepts is 0.800") {
		t.Errorf("x cannot have what it was promised: %+v", o)
	}
}

// What VMs may take back by themselves is no room for those that wait, by the same count that decides when they are asked for.
func TestSimulateKeepsTheReserve(t *testing.T) {
	for _, more := range []int64{0, scheduling.MiB} {
		c := scheduling.NewCluster(t)
		c.Host("h1", 4, 40*scheduling.GiB, state.Resources{})
		c.Create(scheduling.VC("a", 1, scheduling.Group(8, 0.1, 4*scheduling.GiB)))
		c.CommitPlan()
		c.LessMemory("a", scheduling.GiB)
		const has = 8*(scheduling.GiB+64*scheduling.MiB) + 6*scheduling.GiB
		c.Host("h1", 4, has, state.Resources{})
		c.Enact("waits", admission.Create(c.Snapshot(), scheduling.VC("waits", 1, scheduling.Group(1, 0.1, 2*scheduling.GiB-64*scheduling.MiB+more)), c.Env()).Plan)
		c.Host("h1", 4, has+2*scheduling.GiB, state.Resources{})
		if o := run(c, simulate.Request{Budget: -1}); len(o.Refused) > 0 != (more > 0) {
			t.Errorf("%d bytes more than there are: %+v", more, o.Refused)
		}
	}
}
