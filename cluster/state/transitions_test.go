package state

import (
	"testing"

	"pgregory.net/rapid"
)

// phases that a VM of one generation can come to by its host's reports, by its goal.
var byReports = map[Goal]map[Phase][]Phase{
	GoalRun: {
		Starting: {Running, Failed}, Running: {Failed}, Stopping: {Failed}, Stopped: nil, Failed: {Running}, Lost: {Running},
	},
	GoalStop: {
		Starting: {Running, Stopped, Failed}, Running: {Stopped, Failed}, Stopping: {Stopped, Failed}, Stopped: nil, Failed: nil, Lost: nil,
	},
}

var phases = []Phase{Starting, Running, Stopping, Stopped, Failed, Lost}

// A report leads where the table says, for every phase, goal and report; what a VM is charged follows its phase.
func TestReported(t *testing.T) {
	g := Group{Memory: 100, Allocation: 1}
	for goal, from := range byReports {
		for phase, to := range from {
			want := map[Phase]bool{phase: true}
			for _, p := range to {
				want[p] = true
			}
			got := map[Phase]bool{}
			for _, report := range phases {
				if report == Lost { // no report of VM.reported
					continue
				}
				v := VM{Goal: goal, Phase: phase, Target: 40, BootMemory: 100}
				if v.ConsumesResources() {
					v.ChargedMemory = 60
				}
				after := v.reported(VMStatus{Phase: report, Reason: "because"}, &g)
				got[after.Phase] = true
				if after.ConsumesResources() != (after.ChargedMemory >= after.Due(g)) && after.Phase != phase {
					t.Errorf("%s, %s, reported %s: %+v", goal, phase, report, after)
				}
			}
			for _, p := range phases {
				if want[p] != got[p] {
					t.Errorf("%s, %s: reports lead to %s: %v, want %v", goal, phase, p, got[p], want[p])
				}
			}
		}
	}
}

// Whatever happened to a VM, once it is lost, found or to leave it has no move, and is charged for as long as it takes resources.
func TestTransitionsKeepTheCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Group{Memory: rapid.Int64Range(1, 100).Draw(t, "memory"), Allocation: 1, VCPUs: 2}
		v := VM{Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Goal: rapid.SampledFrom([]Goal{GoalRun, GoalStop, GoalDelete}).Draw(t, "goal"), Generation: 3,
			BootMemory: rapid.Int64Range(1, 100).Draw(t, "boot"), Target: rapid.Int64Range(0, 100).Draw(t, "target")}
		if v.ConsumesResources() {
			v.ChargedMemory = max(v.Due(g), rapid.Int64Range(1, 100).Draw(t, "charged"))
			if v.Phase == Running && rapid.Bool().Draw(t, "moves") {
				v.MovingTo, v.Frozen = "h2", 2
			}
		}
		if lost := v.lost("its host burned"); lost.ConsumesResources() || lost.ChargedMemory != 0 || lost.Frozen != 0 || lost.MovingTo != "" || lost.Phase == Lost != (v.Goal == GoalRun) {
			t.Fatalf("lost: %+v, then %+v", v, lost)
		}
		if found := v.found("h9", 5, g); found.Host != "h9" || found.Generation != 5 || found.MovingTo != "" || !found.ConsumesResources() || found.ChargedMemory < g.Memory || found.Phase == Running && found.Goal != GoalRun {
			t.Fatalf("found: %+v, then %+v", v, found)
		}
		leaving := v.Leaving(g, GoalStop)
		if leaving.ConsumesResources() != v.ConsumesResources() || leaving.ChargedMemory != v.ChargedMemory || leaving.Phase == Stopping && v.Phase != Stopping && leaving.Frozen < g.Allocation {
			t.Fatalf("leaving: %+v, then %+v", v, leaving)
		}
		if v.ConsumesResources() {
			return
		}
		started := v.Start(g)
		if started.Phase != Starting || started.Generation != v.Generation+1 || started.ChargedMemory != g.Memory || started.BootMemory != g.Memory || started.Target != 0 {
			t.Fatalf("started: %+v, then %+v", v, started)
		}
	})
}
