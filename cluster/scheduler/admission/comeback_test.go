package admission

import (
	"testing"
	"time"

	"evenkeel/cluster/state"
)

func TestComesBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for after, want := range map[time.Duration]bool{0: false, preemptedFor - time.Second: false, preemptedFor: true, -time.Second: false, -24 * time.Hour: true} {
		vm := state.VM{Goal: state.GoalStop, Phase: state.Stopped, PreemptedAt: now.Add(-after).Unix()}
		if got := ComesBack(&vm, now); got != want {
			t.Errorf("%s after it was preempted: %v, want %v", after, got, want)
		}
		if vm.Phase = state.Stopping; ComesBack(&vm, now) {
			t.Errorf("%s after it was preempted it comes back while it stops", after)
		}
	}
}
