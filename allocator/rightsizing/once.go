package rightsizing

import "evenkeel/allocator"

// Once keeps the greater of two amounts of memory on a host, not their sum: the deviations of forecasts, and the reserve. Deviations are
// what VMs are given beyond the means of their forecasts (K2 V of Pace, sec. III-B). The reserve is what the host keeps free for memory
// that VMs take back. Both cover use that no mean foresees. The zero value is a host without VMs. Amounts are bytes.
type Once struct {
	Reserve allocator.Reserve[float64] // of what VMs lack without their deviations

	deviations, lacking float64 // sums
	largest, ofLargest  float64 // the largest deficit of a VM, and the deviation of that VM
}

// Add a VM with that deficit where it is given no deviation. Its deviation is no more than that.
func (k *Once) Add(deficit, deviation float64) {
	deficit = max(0, deficit)
	deviation = min(max(0, deviation), deficit)
	k.Reserve.Add(deficit)
	k.deviations, k.lacking = k.deviations+deviation, k.lacking+deficit
	if deficit > k.largest || deficit == k.largest && deviation > k.ofLargest {
		k.largest, k.ofLargest = deficit, deviation
	}
}

// Share is the share of its deviation that each VM is given, 0 to 1: the smallest for which the deviations given and the reserve then left
// surely are in sum no less than all deviations, and no less than the reserve if none were given.
func (k *Once) Share() float64 {
	if k.deviations <= k.Reserve.Bytes() {
		return 0
	}
	// With a share x of all deviations d the reserve is at least the largest lack less its part, l - x m, and a quarter of what all lack, (s - x d)/4.
	share := 1.0
	if d := k.deviations - k.ofLargest; d > 0 {
		share = min(share, (k.deviations-k.largest)/d)
	}
	if !k.Reserve.LargestOnly {
		share = min(share, (k.deviations-k.lacking/4)/(0.75*k.deviations))
	}
	return max(0, share)
}
