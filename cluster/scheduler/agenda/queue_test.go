package agenda_test

import (
	"fmt"
	"slices"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Many VCs that cannot fit keep no later one from room that no slot needs, beside slots ahead as without.
func TestQueueBesideSlots(t *testing.T) {
	for _, slots := range []bool{false, true} {
		c := scheduling.NewCluster(t, "h1")
		if slots {
			k := contract(1, scheduling.GiB/8)
			k.Recurrence = "DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=12"
			k.Groups[0].CPU, k.Cores = 0.01, []float64{0.01, 0.01}
			signed(t, c, "nightly", k)
			put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Must(state.KindAgenda, put)
		}
		c.Create(scheduling.VC("fill", 1, scheduling.Group(1, 3.5, scheduling.GiB/8)))
		for i := range 70 {
			c.Create(scheduling.VC(fmt.Sprint("large", i), 1, scheduling.Group(40, 4, scheduling.GiB)))
		}
		c.Create(scheduling.VC("small", 1, scheduling.Group(1, 1, scheduling.GiB/8)))
		small := c.Named("small").ID
		if c.State("small") != state.VCQueued {
			t.Fatalf("small is %s, want it to wait for fill", c.State("small"))
		}
		c.Run()
		c.Must(state.KindPlan, state.Plan{Basis: c.Index, Verb: "stopped", VC: stopped(c, "fill"), VCVersion: c.Named("fill").ModifyIndex, VMs: gone(c, "fill")})
		for _, vm := range c.Snapshot().VMs() {
			if vm.Goal == state.GoalDelete {
				c.Follow(vm)
			}
		}
		if ids := admission.Fitting(c.Snapshot(), c.Env()); slots != c.Snapshot().HasAgenda() || !slices.Contains(ids, small) {
			t.Errorf("slots ahead: %v: of the queue are to be admitted: %q, want %s among them", slots, ids, small)
		}
	}
}
