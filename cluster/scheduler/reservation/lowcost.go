package reservation

import "math"

// maxGangs bounds the gangs that one trial places one by one; a larger demand is placed in larger gangs.
const maxGangs = 4096

// elastic is an elastic request as LowCost sees it.
type elastic struct {
	base     []Amount // load in the window, without this request
	capacity Amount
	unit     Amount
	stages   []int // VMs
	gang     int   // VMs placed at once
	parallel []int // the most VMs of each stage in one step
	minLen   []int // steps that each stage takes at least
}

func newElastic(l *Load, r *Request) *elastic {
	e := &elastic{base: l.folded(r), capacity: l.capacity, unit: r.Elastic.Unit, gang: max(1, r.Elastic.Gang)}
	total := 0
	for _, s := range r.Stages {
		e.stages = append(e.stages, max(1, s.VMs)) // a run has no holes
		total += max(1, s.VMs)
	}
	if by := (total/e.gang + maxGangs - 1) / maxGangs; by > 1 {
		grown := e.gang * by
		if m := r.Elastic.MaxParallel; m > 0 {
			grown = min(grown, m/e.gang*e.gang)
		}
		e.gang = max(e.gang, grown)
	}
	for _, s := range e.stages {
		peak := s
		if m := r.Elastic.MaxParallel; m > 0 {
			peak = min(peak, m)
		}
		gangs, atOnce := (s+e.gang-1)/e.gang, max(1, peak/e.gang)
		if peak == s {
			atOnce = gangs
		}
		e.parallel = append(e.parallel, peak)
		e.minLen = append(e.minLen, (gangs+atOnce-1)/atOnce)
	}
	return e
}

// shortest is how many steps the stages take at least.
func (e *elastic) shortest() (sum int) {
	for _, n := range e.minLen {
		sum += n
	}
	return sum
}

// interval is how many steps of left a stage may use: in proportion to its part of the demand that is not placed yet (figure 7).
func interval(stage, remaining, left int) int {
	return int(math.Round(float64(stage) / float64(remaining) * float64(left)))
}

// endingAt places the stages in reverse, the last VM in the step before end (sec. 6.3). counts has the VMs in each step of the
// window. ok is false if they do not fit the time.
func (e *elastic) endingAt(end int) (start int, counts []int, cost float64, ok bool) {
	before, remaining := e.shortest(), 0
	if before > end {
		return 0, nil, 0, false
	}
	for _, s := range e.stages {
		remaining += s
	}
	counts = make([]int, len(e.base))
	costs := make([]float64, len(e.base))
	for x, b := range e.base {
		costs[x], _ = b.share(e.capacity)
	}
	right := end
	for k := len(e.stages) - 1; k >= 0; k-- {
		before -= e.minLen[k]
		length := min(max(interval(e.stages[k], remaining, right), e.minLen[k]), right-before)
		current := right
		for placed := 0; placed < e.stages[k]; {
			n := min(e.gang, e.stages[k]-placed)
			at := -1
			for x := max(current-1, right-length); x < right; x++ {
				// Of equal costs the earliest step, which leaves more slack for re-provisioning. The paper leaves ties open.
				if counts[x]+n <= e.parallel[k] && (at < 0 || costs[x] < costs[at]) {
					at = x
				}
			}
			if at < 0 {
				return 0, nil, 0, false
			}
			counts[at] += n
			placed += n
			costs[at], _ = e.base[at].plus(e.unit, float64(counts[at])).share(e.capacity)
			current = min(current, at)
		}
		remaining -= e.stages[k]
		right = current
	}
	for x := right; x < end; x++ {
		cost = max(cost, costs[x])
	}
	return right, counts, cost, true
}

// rigid is a request whose VMs all run: CPU is stretched, memory is kept for as long.
type rigid struct {
	base     []Amount
	capacity Amount
	stages   []Stage
}

// stretched is the demand of the stages over so many steps: all the CPU work, evenly slower, and in each step the most memory and
// VMs of the stages that run in it.
func (g *rigid) stretched(length int) []Amount {
	out := make([]Amount, length)
	per := float64(len(g.stages)) / float64(length) // stages in a step
	for j := range out {
		from, to := float64(j)*per, float64(j+1)*per
		for k := int(from); k < len(g.stages); k++ {
			overlap := min(to, float64(k+1)) - max(from, float64(k))
			if overlap <= 1e-9 {
				if float64(k) >= to {
					break
				}
				continue
			}
			s := g.stages[k]
			out[j][Cores] += s.Cores * overlap
			out[j][Memory] = max(out[j][Memory], s.Memory)
			out[j][VMs] = max(out[j][VMs], float64(s.VMs))
		}
	}
	return out
}

func (g *rigid) cost(amounts []Amount, start int, above float64) (cost float64) {
	for j, a := range amounts {
		c, _ := g.base[start+j].plus(a, 1).share(g.capacity)
		if cost = max(cost, c); cost > above {
			return cost
		}
	}
	return cost
}
