package admission

import (
	"time"

	"evenkeel/cluster/state"
)

// ComesBack says whether a VM that was preempted has been stopped, and has waited for long enough.
func ComesBack(vm *state.VM, now time.Time) bool {
	return vm.PreemptedAt > 0 && vm.Goal == state.GoalStop && vm.Phase == state.Stopped && now.Sub(time.Unix(vm.PreemptedAt, 0)) >= preemptedFor
}
