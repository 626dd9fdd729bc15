package admission

import (
	"time"

	"evenkeel/cluster/state"
)

// ComesBack says whether a VM that was preempted has been stopped, and has waited for long enough. One that was preempted in the future,
// by the clock of a leader that was ahead, has.
func ComesBack(vm *state.VM, now time.Time) bool {
	waited := now.Sub(time.Unix(vm.PreemptedAt, 0))
	return vm.PreemptedAt > 0 && vm.Goal == state.GoalStop && vm.Phase == state.Stopped && (waited >= preemptedFor || waited < -time.Minute)
}
