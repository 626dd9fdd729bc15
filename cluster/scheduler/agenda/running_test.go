package agenda_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// What the agenda counts as room in a slot that is open, admission gives to its run: beside VMs that stay or end, that may take memory back,
// that move, or are about to.
func TestARunIsAdmittedWhereItsSlotIs(t *testing.T) {
	kept, refused, about := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		hosts := rapid.IntRange(1, 3).Draw(r, "hosts")
		var names []string
		for i := range hosts {
			names = append(names, fmt.Sprintf("h%d", i+1))
		}
		c := scheduling.NewCluster(r, names...)
		k := contract(rapid.IntRange(1, 2).Draw(r, "VMs of the run"), rapid.Int64Range(4, 48).Draw(r, "memory of the run")*scheduling.GiB/8)
		k.Recurrence, k.MinYield = "DTSTART;TZID=UTC:20260101T040000\nRRULE:FREQ=DAILY", 0.1
		signed(r, c, "nightly", k)
		for i := range rapid.IntRange(1, 5).Draw(r, "others") {
			name := fmt.Sprintf("x%d", i)
			memory := rapid.Int64Range(4, 24).Draw(r, "memory") * scheduling.GiB / 8
			vc := scheduling.VC(name, 0.1, scheduling.Group(rapid.IntRange(1, 2).Draw(r, "VMs"), 0.1, memory))
			vc.Duration = 60 * rapid.Int64Range(0, 120).Draw(r, "minutes") // 0: not known
			if a := c.Create(vc); a.Plan == nil || a.Queued {
				continue
			}
			c.CommitPlan()
			if rapid.Bool().Draw(r, "less") {
				c.LessMemory(name, memory/rapid.SampledFrom([]int64{2, 4, 8}).Draw(r, "by"))
			}
			if vm := c.VMOf(name); rapid.Bool().Draw(r, "moves") {
				to := rapid.SampledFrom(names).Draw(r, "to")
				move := state.MovePlan{ID: "to-" + name, Kind: state.MovesRebalance, State: state.MovesRunning, Budget: -1,
					Steps: []state.MoveStep{{VM: vm.ID, From: vm.Host, To: to, Allotment: -1, State: state.StepPreparing}}}
				if to != vm.Host && c.Put(state.KindMovePlan, state.MovePlanPut{Plan: move}) == nil {
					about++
				}
			}
		}
		plan(r, c)
		c.Ahead = 56*time.Minute - time.Duration(c.Index)*time.Second // 04:00:05
		plan(r, c)
		o := c.Snapshot().Agenda()[0]
		if !o.Reserves() {
			refused++
			return
		}
		kept++
		run := scheduling.VC("nightly", 0.1, scheduling.Group(k.Groups[0].Count, k.Groups[0].CPU, k.Groups[0].Memory))
		run.Periodic.Name, run.OnFull = "nightly", state.Queue
		if a := admission.Create(c.Snapshot(), run, c.Env()); a.Plan == nil || a.Queued || a.Plan.Occurrence != o.ID {
			r.Fatalf("%s on %s: its run is not admitted: %+v", o.State, o.Hosts, a.Decision)
		}
	})
	if kept == 0 || refused == 0 || about == 0 {
		t.Errorf("%d slots with hosts, %d without, %d VMs about to move: one of them was not tried", kept, refused, about)
	}
}
