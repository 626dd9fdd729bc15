package leader_test

import (
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// A slot for which no host has room gets it by moves, a quarter of an hour before it begins. What the moves free is kept for its run, which
// then starts at once; a VC that waits does not get it.
func TestMovesBeforeASlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		c.moves(func(m *state.MoveSettings) { m.Mode = state.MovesAuto })
		run := vc("job-1", 1, 1, 6<<30)
		run.Periodic.Name = "job"
		c.done(c.Create(ctx, run, leader.Call{}))
		if _, err := c.Delete(ctx, "job-1", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		c.eventually("the first run is gone", func(v *leader.View) bool { return len(v.VCs()) == 0 })
		c.oneOnEach(3 << 30)
		ask := leader.PeriodicAsk{Verb: "accept", Ask: agenda.Ask{Rule: "FREQ=MINUTELY;INTERVAL=20", Length: 5 * time.Minute, Deadline: 10 * time.Minute, Cores: 1}}
		if _, err := c.DecidePeriodic(ctx, "job", ask, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		next := func(v *leader.View) state.Occurrence {
			if all := v.Occurrences("job"); len(all) > 0 {
				return all[0]
			}
			return state.Occurrence{}
		}
		v := c.eventually("its slot has no room", func(v *leader.View) bool { return next(v).State == state.Degraded })
		if o := next(v); o.Reserves() || len(v.MovePlans()) > 0 {
			t.Errorf("%+v", o)
		}
		begin := next(v).Start
		time.Sleep(time.Until(begin.Add(-16 * time.Minute))) // sleep: until nearly a quarter of an hour before it
		v = c.eventually("time has passed", func(*leader.View) bool { return true })
		if o := next(v); o.State != state.Degraded || o.Reserves() || len(v.MovePlans()) > 0 {
			t.Errorf("16 minutes before: %+v", o)
		}
		time.Sleep(5 * time.Minute) // sleep: a quarter of an hour before it, and some rounds of the agenda
		v = c.eventually("moves have made room", func(v *leader.View) bool { return next(v).State == state.Reconfirmed })
		if plans := v.MovePlans(); len(plans) != 1 || plans[0].Kind != state.MovesRoom || plans[0].State != state.MovesDone || plans[0].Occurrence != next(v).ID || !strings.Contains(plans[0].Text, "job job") {
			t.Errorf("plans: %+v", plans)
		}
		if _, err := c.Create(ctx, vc("waits", 1, 1, 6<<30), leader.Call{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(time.Second))) // sleep: until the slot
		run.Name = "job-2"
		v = c.done(c.Create(ctx, run, leader.Call{}))
		if x := c.vc(v, "waits"); x.State != state.VCQueued || len(v.MovePlans()) != 1 {
			t.Errorf("the VC that waits is %s; plans: %+v", x.State, v.MovePlans())
		}
		if o := next(v); o.State != state.RunningNow || len(o.Hosts) != 1 || v.VMsOf(o.VC)[0].Host != o.Hosts[0] {
			t.Errorf("%+v", o)
		}
	})
}
