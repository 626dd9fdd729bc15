package failover_test

import (
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

func TestFailoverRows(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b")
	x := scheduling.VC("x", 0, scheduling.Group(1, 4, 5*scheduling.GiB))
	x.OnHostLoss = state.RestartOnLoss
	c.Enact("x", admission.Create(c.Snapshot(), x, c.Env()).Plan)
	c.Enact("y", admission.Create(c.Snapshot(), scheduling.VC("y", 0, scheduling.Group(1, 4, scheduling.GiB)), c.Env()).Plan)
	c.Run()
	rows, err := failover.Capacity(c.Snapshot(), c.Env())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v %v", rows, err)
	}
	for _, r := range rows {
		if !r.Fits || r.MinYield != 0.5 || r.Text == "" {
			t.Errorf("%+v", r)
		}
	}
	c.Enact("z", admission.Create(c.Snapshot(), scheduling.VC("z", 0, scheduling.Group(1, 1, 4*scheduling.GiB)), c.Env()).Plan)
	c.Run()
	rows, err = failover.Capacity(c.Snapshot(), c.Env())
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
