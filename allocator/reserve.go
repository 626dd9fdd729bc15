package allocator

// Reserve is what a host keeps free for VMs that have less memory than they were started with, and may take back what they lack by
// themselves (autodeflate). It is the largest deficit of one VM, so that any one may take all of it at any time, or a quarter of the sum of
// all deficits, whichever is more: of many VMs more than one takes memory back before the agent observes it. The zero value is the reserve
// of a host without VMs. With LargestOnly the quarter is not kept.
//
// Deficits are added up exactly in whole bytes. A Reserve is a value: callers may change a copy to try a change.
type Reserve[N int64 | float64] struct {
	LargestOnly bool

	largest N // that one VM lacks
	second  N // the same of all others, or more where it is not known any more
	sum     N
}

// NewReserves returns the reserves of that many hosts without VMs.
func NewReserves[N int64 | float64](hosts int, largestOnly bool) []Reserve[N] {
	out := make([]Reserve[N], hosts)
	for i := range out {
		out[i].LargestOnly = largestOnly
	}
	return out
}

// Add a VM that lacks so much. One that has all of its memory, or more, takes nothing back.
func (r *Reserve[N]) Add(deficit N) {
	if deficit > 0 {
		r.Change(0, deficit)
	}
}

// Change says that one of the VMs, which lacked so much, lacks another amount now; 0: it has all.
func (r *Reserve[N]) Change(from, to N) {
	from, to = max(0, from), max(0, to)
	r.sum = max(0, r.sum+to-from)
	switch {
	case from > 0 && from == r.largest:
		r.largest = max(to, r.second) // if it is another's now, which one is second to it is not known
	case to > r.largest:
		r.second, r.largest = r.largest, to
	case to > r.second:
		r.second = to
	}
}

// Bytes that the host keeps free.
func (r Reserve[N]) Bytes() N { return max(r.largest, r.quarter()) }

// Largest of what the VMs lack. It is the part of the reserve without which one VM alone could exceed the host.
func (r Reserve[N]) Largest() N { return r.largest }

// With is what the host keeps if a VM comes that lacks so much.
func (r Reserve[N]) With(deficit N) Reserve[N] {
	r.Add(deficit)
	return r
}

// MaxGrant is the most that can be given to one of the VMs, with this deficit, so that the reserve still fits; free is what the host has
// beside what all VMs have. The reserve for the VM's own deficit is no obstacle: a grant lowers the deficit by as much.
func (r Reserve[N]) MaxGrant(deficit, free N) N {
	others := r.largest
	if deficit == r.largest {
		others = r.second
	}
	if r.LargestOnly {
		return max(0, free-others)
	}
	// Given d: d + others <= free, and d + (sum-d)/4 <= max(free, deficit).
	return max(0, min(free-others, (4*max(free, deficit)-r.sum)/3))
}

func (r Reserve[N]) quarter() N {
	if r.LargestOnly {
		return 0
	}
	q := r.sum / 4
	if 4*q < r.sum { // whole bytes: no less than a quarter
		q++
	}
	return q
}
