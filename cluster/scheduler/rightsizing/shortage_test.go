package rightsizing_test

import (
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// planMoves plans moves for what a host lacks.
func planMoves(c *scheduling.Rightsized, short rightsizing.Shortage, pinned map[string]string) rebalance.MemoryPlan {
	s := c.Snapshot()
	return rebalance.PlanMemory(s, short.Host, short.Bytes, c.Now, time.Minute, func() *moves.Fleet {
		return moves.NewFleet(s, c.Env(), moves.Observation{}, moves.Options{Pinned: pinned})
	})
}

// movingAway plans moves for what a cluster lacks, and carries none out. found takes the plans.
func movingAway(c *scheduling.Rightsized, found *[]state.MovePlan) func(rightsizing.Shortage, map[string]string) rightsizing.MovesAway {
	return func(short rightsizing.Shortage, pinned map[string]string) rightsizing.MovesAway {
		m := planMoves(c, short, pinned)
		if m.Plan != nil {
			*found = append(*found, *m.Plan)
		}
		return rightsizing.MovesAway{Moves: m.Plan != nil || m.Waits, Why: m.Why}
	}
}

// crowded is a cluster in which the use of one VM on h1 grows until an elastic one would be evicted.
func crowded(t *testing.T, hosts ...string) *scheduling.Rightsized {
	c := scheduling.NewRightsized(t, state.RightsizingOn, hosts...) // 4 cores and 8 GiB each
	for _, h := range hosts[1:] {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true, Reason: "later"})
	}
	c.AddVC("old", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 4*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.AddVC("young", state.NeedsEstimated, "elastic", 1, scheduling.Resources(1, 3*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB))
	c.Minutes(14)
	c.AddVC("fixed", state.NeedsDeclared, "elastic", 1, scheduling.Resources(1, 2*scheduling.GiB), scheduling.Resources(1, 2*scheduling.GiB))
	for _, h := range hosts[1:] {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h})
	}
	c.Use["old-g0-0"], c.Use["young-g0-0"] = scheduling.Resources(0.1, 3900*scheduling.MiB), scheduling.Resources(0.1, 2*scheduling.GiB)
	return c
}

func TestMovesBeforeEvictions(t *testing.T) {
	c := crowded(t, "h1", "h2")
	var found []state.MovePlan
	c.MoveAway = movingAway(c, &found)
	for n := 0; n < 5 && len(found) == 0; n++ {
		c.Minute()
	}
	if len(found) == 0 {
		t.Fatalf("no plan: %+v", c.Last.Preempt)
	}
	plan := found[0]
	if plan.Kind != state.MovesMemory || plan.Host != "h1" || len(plan.Steps) != 1 || plan.Steps[0].To != "h2" || plan.Steps[0].VMName == "old-g0-0" ||
		!strings.HasPrefix(plan.Text, "host h1 lacks ") {
		t.Errorf("%+v", plan)
	}
	if vm, _ := c.VM("young-g0-0"); vm.Goal != state.GoalRun {
		t.Errorf("evicted, though others could move: %+v", vm)
	}
}

// What became of a plan decides whether the next evaluation waits, evicts or plans again.
func TestPlanInForce(t *testing.T) {
	for name, x := range map[string]struct {
		state state.MovePlanState
		after time.Duration // it began, or ended
		want  string        // a part of why; "waits", "plans"
	}{
		"under way":       {state.MovesRunning, time.Minute, "waits"},
		"for too long":    {state.MovesRunning, 5 * time.Minute, "the moves of plan m are not over after 5m0s"},
		"just done":       {state.MovesDone, 30 * time.Second, "waits"},
		"done long ago":   {state.MovesDone, 18 * time.Minute, "plans"},
		"just failed":     {state.MovesFailed, 30 * time.Second, "the moves of plan m did not bring it: no route"},
		"failed long ago": {state.MovesFailed, 18 * time.Minute, "plans"},
	} {
		c := crowded(t, "h1", "h2")
		young := c.VMOf("young")
		c.Must(state.KindMovePlan, state.MovePlanPut{Plan: state.MovePlan{ID: "m", Kind: state.MovesMemory, State: state.MovesRunning, Host: "h1", Budget: -1,
			Steps: []state.MoveStep{{VM: young.ID, VMName: young.Name, From: "h1", To: "h2", State: state.StepWaiting, Allotment: -1}}}})
		p, _ := c.Snapshot().MovePlan("m")
		now := p.CreatedAt.Add(x.after)
		if x.state != state.MovesRunning {
			p.State, p.Reason, p.Steps = x.state, "no route", state.Skipped(p.Steps, "test")
			c.Must(state.KindMovePlan, state.MovePlanPut{Plan: p, Version: p.ModifyIndex})
			p, _ = c.Snapshot().MovePlan("m")
			now = p.EndedAt.Add(x.after)
		}
		c.Now = now
		got := planMoves(c, rightsizing.Shortage{Host: "h1", Bytes: scheduling.GiB}, nil)
		switch {
		case x.want == "waits" && !got.Waits, x.want == "plans" && got.Plan == nil, x.want != "waits" && x.want != "plans" && (got.Waits || got.Plan != nil || !strings.Contains(got.Why, x.want)):
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Where no move does, the event says so.
func TestNoMoveHelps(t *testing.T) {
	for name, x := range map[string]struct {
		hosts []string
		edit  func(c *scheduling.Rightsized)
		want  string
	}{
		"no other host": {[]string{"h1"}, func(*scheduling.Rightsized) {}, "; no VM moves for it: no other host was found to have room for VMs of this one"},
		"moves are off": {[]string{"h1", "h2"}, func(c *scheduling.Rightsized) {
			m, _ := c.Snapshot().Meta()
			m.Settings.Moves.Mode = state.MovesOff
			c.Must(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
		}, "; no VM moves for it: the settings let no VM move by itself (moves.mode)"},
		"a small budget": {[]string{"h1", "h2"}, func(c *scheduling.Rightsized) {
			m, _ := c.Snapshot().Meta()
			m.Settings.Moves.MaxBytes = 64 << 20
			c.Must(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
		}, "and a plan may send 64 (moves.maxBytes)"},
	} {
		c := crowded(t, x.hosts...)
		c.MoveAway = movingAway(c, new([]state.MovePlan))
		x.edit(c)
		c.Minutes(5)
		if vm, _ := c.VM("young-g0-0"); vm.Goal != state.GoalStop || !strings.Contains(vm.Reason, x.want) {
			t.Errorf("%s: %s %s", name, vm.Goal, vm.Reason)
		}
	}
}
