package drain_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Whatever becomes of its moves, a drain ends, and its report is true: drained only with nothing left, else with what is left
// and why. No VM is stopped unless that was asked for. The moves never send more bytes than allowed.
func TestDrainsEndAndReportTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "hosts")]
		c := scheduling.NewCluster(t, hosts...)
		for i := range rapid.IntRange(0, 5).Draw(t, "vcs") {
			g := scheduling.Group(rapid.IntRange(1, 3).Draw(t, "count"), 0.1, int64(rapid.IntRange(1, 6).Draw(t, "memory"))*scheduling.GiB/2)
			if rapid.IntRange(0, 3).Draw(t, "spread") == 0 {
				g.Affinity.Spread = "host"
			}
			if rapid.IntRange(0, 5).Draw(t, "disk") == 0 {
				g.Image = "disk"
			}
			if a := admission.Create(c.Snapshot(), scheduling.VC(fmt.Sprint("v", i), 0, g), c.Env()); a.Plan != nil {
				c.Enact("create", a.Plan)
			}
		}
		c.Run()
		d := state.Drain{OnBlocked: rapid.SampledFrom([]string{drain.OnBlockedStop, drain.OnBlockedSkip, drain.OnBlockedShutdown}).Draw(t, "on blocked")}
		if rapid.Bool().Draw(t, "bounded") {
			d.MaxBytes = int64(rapid.IntRange(1, 8).Draw(t, "bytes")) * scheduling.GiB
		}
		drained(c, "a", d)
		asked := d.OnBlocked == drain.OnBlockedShutdown
		for round := 0; ; round++ {
			if round > 60 {
				t.Fatalf("it goes on for ever: %+v", drainOf(c, "a"))
			}
			inventory := drain.HostInventory{Listed: true}
			for _, vm := range c.Snapshot().VMsOn("a") {
				if vm.ConsumesResources() {
					inventory.Running = append(inventory.Running, vm.Name)
				}
			}
			nextAt(c, "a", inventory, c.Env().Now.Add(time.Duration(round)*time.Minute))
			now := drainOf(c, "a")
			if now.State != state.DrainRunning {
				break
			}
			if p, ok := c.Snapshot().MovePlan(now.Plan); ok && p.State == state.MovesRunning {
				execute(c, t, p)
			}
			for _, vm := range c.Snapshot().VMs() { // guests that were asked to do
				if vm.Phase == state.Stopping {
					c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
				}
			}
		}
		s, end := c.Snapshot(), drainOf(c, "a")
		left := 0
		for _, vm := range s.VMs() {
			if vm.ConsumesResources() && vm.Host == "a" {
				left++
			}
			if !asked && (vm.Goal != state.GoalRun || vm.Phase != state.Running) || vm.Generation != 1 {
				t.Errorf("not asked for: %+v", vm)
			}
			if vm.Phase == state.Stopped && vm.Reason == "" {
				t.Errorf("it was shut down, and nothing says why: %+v", vm)
			}
		}
		if drained := end.State == state.DrainDone; drained != (left == 0) || end.Text == "" || asked && !drained {
			t.Errorf("%d VMs are left: %+v", left, end)
		}
		sent := int64(0)
		for _, m := range s.Migrations() {
			sent += m.BytesMoved
		}
		if end.MaxBytes >= 0 && sent > end.MaxBytes {
			t.Errorf("%d bytes were sent of %d", sent, end.MaxBytes)
		}
	})
}

// execute a plan out, move after move, some of which fail.
func execute(c *scheduling.Cluster, t *rapid.T, p state.MovePlan) {
	for i := range p.Steps {
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			carryOut(c, p.ID, i, false)
			ends(c, p.ID, state.MovesFailed)
			return
		}
		carryOut(c, p.ID, i, true)
	}
	ends(c, p.ID, state.MovesDone)
}
