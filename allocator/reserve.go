package allocator

// Reserve is what a host keeps free for VMs that have less memory than they were started with, and may take back what they lack by
// themselves (autodeflate): as much as the one that lacks most, so that any one may have all of it at any time, and a quarter of what all
// lack, as with many VMs more than one does so before anybody has looked. The zero value is that of nobody.
//
// What VMs lack is added up exactly in whole bytes. It is a value: a copy is a question.
type Reserve[N int64 | float64] struct {
	largest N // that one VM lacks
	second  N // the same of all others, or more where it is not known any more
	sum     N
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

// MaxGrant is the most that one of the VMs, which lacks so much, can be given where so much is free beside what all have, for the reserve to
// fit beside it. That for what it lacks itself is no obstacle: what it is given it lacks no more, and its host is no worse off.
func (r Reserve[N]) MaxGrant(deficit, free N) N {
	others := r.largest
	if deficit == r.largest {
		others = r.second
	}
	// Given d: d + others <= free, and d + (sum-d)/4 <= free, or <= lacks.
	return max(0, min(free-others, (4*max(free, deficit)-r.sum)/3))
}

func (r Reserve[N]) quarter() N {
	q := r.sum / 4
	if 4*q < r.sum { // whole bytes: no less than a quarter
		q++
	}
	return q
}
