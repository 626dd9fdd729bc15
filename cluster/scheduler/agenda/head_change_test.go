package agenda_test

import (
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Changes with a restart, and starts of single VMs, leave the room that is kept for the head of the queue, as new VCs do.
func TestChangesLeaveKeptRoom(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	runs := scheduling.VC("runs", 0.5, scheduling.Group(2, 1, 2*scheduling.GiB))
	runs.Duration = 3600
	c.Create(runs)
	c.Create(scheduling.VC("grower", 0.5, scheduling.Group(1, 0.1, scheduling.GiB/8)))
	c.Create(scheduling.VC("big", 0.5, scheduling.Group(1, 0.1, 4*scheduling.GiB)))
	c.Run()
	vm := c.Snapshot().VMsOf(c.Named("big").ID)[0]
	c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Failed}}})
	vm, _ = c.Snapshot().VM(vm.ID)
	c.Create(scheduling.VC("first", 0.5, scheduling.Group(2, 1, 6*scheduling.GiB)))
	head, err := agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), c.Env())
	if err != nil || head == nil {
		t.Fatalf("%+v, %v", head, err)
	}
	grower := c.Named("grower")
	restart := map[string]bool{c.Snapshot().VMsOf(grower.ID)[0].ID: true}
	for _, kept := range []bool{false, true} {
		env := c.Env()
		if kept {
			env.Head = head
		}
		for memory, fits := range map[int64]bool{scheduling.GiB / 8: true, 5 * scheduling.GiB: !kept} {
			vc := grower
			vc.Groups = append([]state.Group(nil), vc.Groups...)
			vc.Groups[0].Memory = memory
			if a := admission.Change(c.Snapshot(), vc, "apply", restart, env); (a.Plan != nil) != fits {
				t.Errorf("room is kept: %v: a change to %d MiB: %s", kept, memory>>20, a.Decision.Summary)
			}
		}
		if a := admission.StartVM(c.Snapshot(), c.Named("big"), vm, env); (a.Plan != nil) == kept {
			t.Errorf("room is kept: %v: a start: %s", kept, a.Decision.Summary)
		}
	}
}
