package moves

import (
	"math"

	"evenkeel/cluster/state"
)

// Use is the last measurement of a VM that runs.
type Use struct {
	Resident int64   // bytes of the host's memory that it has; 0 = not known
	Dirty    float64 // bytes per second that it writes again, measured when it last moved; 0 = not known
	Sent     int64   // bytes that its last move sent, whatever became of it; 0 = not known
}

// memoryBytes predicts how many bytes of its memory the move of a VM sends: what is in use once (Casanova et al. 2008, eq. 31,
// count no more), then what the guest wrote again meanwhile, and so on: a geometric series with the ratio of dirty rate to
// bandwidth.
func memoryBytes(inUse int64, dirty, bandwidth float64) float64 {
	total, left := 0.0, float64(inUse)
	for range 64 {
		total += left
		if left <= bandwidth*downtime || dirty <= 0 {
			break
		}
		left *= dirty / bandwidth
		if total >= maxPasses*float64(inUse) {
			break
		}
	}
	return min(total, maxPasses*float64(inUse))
}

// moveBytes predicts how many bytes the move of a VM sends: memory, its disk if that is copied, and a margin. What its last
// move needed beyond the prediction is added for the next.
func moveBytes(g state.Group, vm state.VM, u Use, disk int64, bandwidth float64) int64 {
	inUse := vm.CountedMemory(g)
	if u.Resident > 0 {
		inUse = min(inUse, u.Resident)
	}
	b := memoryBytes(inUse, u.Dirty, bandwidth)
	b = max(b, min(float64(u.Sent), maxPasses*float64(inUse))) + float64(disk)
	return int64(math.Ceil(b + max(predictionSlack*b, minSlack)))
}
