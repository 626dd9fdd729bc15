package forecast

import "math"

// TogetherMargin is how much more memory a host keeps than its VMs were seen to use together, as a share of that.
const TogetherMargin = 0.1

// PastUse is what a VM used of a resource in each of the latest steps, up to as many as Remember says.
type PastUse struct {
	used  []float32 // by step, modulo the length
	first int64     // step of the first value
	last  int64     // and of the latest; before first: there is none
}

// Remember so many steps. What was noted before is forgotten.
func (p *PastUse) Remember(steps int) { *p = PastUse{used: make([]float32, steps), last: -1} }

// Note what was used in a step. The latest step keeps the larger of two uses. A use of an earlier step counts for the latest one. Steps
// that are left out count as the one before. A step that is older than all that are remembered forgets them: the clock was ahead.
func (p *PastUse) Note(step int64, used float64) {
	n := int64(len(p.used))
	switch {
	case p.last < p.first:
		p.first, p.last = step, step-1
	case step <= p.last-n: // the clock was ahead
		p.Remember(int(n))
		p.first, p.last = step, step-1
	case step <= p.last:
		p.used[p.last%n] = max(p.used[p.last%n], float32(used))
		return
	}
	before := p.used[max(p.last, 0)%n]
	for s := max(p.last+1, step-n+1); s < step; s++ {
		p.used[s%n] = before
	}
	p.used[step%n], p.last = float32(used), step
}

// at is what was used in a step; false: that is not known.
func (p *PastUse) at(step int64) (float64, bool) {
	n := int64(len(p.used))
	if step < p.first || step > p.last || step <= p.last-n {
		return 0, false
	}
	return float64(p.used[step%n]), true
}

// Neighbor is a VM on a host: what it may use at most, and what it used.
type Neighbor struct {
	Request float64
	Past    *PastUse
}

// PeakTogether returns the most that VMs which share a host used together in one step of the last so many. Where the use of a VM in a
// step is not known, it counts with a share of its request: the mean share that the other VMs used then, less two standard errors, or
// nothing if fewer than two are known.
func PeakTogether(vms []Neighbor, now int64, steps int) float64 {
	peak, begin := 0.0, now+1
	for i := range vms {
		if p := vms[i].Past; p.last >= p.first {
			begin = min(begin, p.first)
		}
	}
	for s := now; s > now-int64(steps) && s >= begin; s-- {
		var n, shares, squares, sum, unknown float64
		for i := range vms {
			v := &vms[i]
			used, known := v.Past.at(s)
			switch {
			case !known:
				unknown += v.Request
			case v.Request > 0:
				share := used / v.Request
				n, shares, squares = n+1, shares+share, squares+share*share
				fallthrough
			default:
				sum += used
			}
		}
		if n >= 2 {
			m := shares / n
			sum += unknown * max(0, m-2*math.Sqrt(max(0, squares/n-m*m)/n))
		}
		peak = max(peak, sum)
	}
	return peak
}
